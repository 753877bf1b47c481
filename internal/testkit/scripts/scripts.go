// Package scripts replays scripts through a pure core: text files that hold what it is told, and what it answers.
package scripts

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var rewrite = flag.Bool("rewrite", false, "write what the scripts really print; look at the difference")

// Replay replays testdata/*.txt, at least so many of them, each as a subtest. The function returns the script as the
// core really answers; it must be the same to the byte.
func Replay(t *testing.T, least int, replay func(t *testing.T, path, text string) string) {
	t.Helper()
	paths, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(paths) < least {
		t.Fatalf("%d scripts, %v", len(paths), err)
	}
	for _, path := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			got := replay(t, path, string(text))
			if *rewrite {
				if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			want := strings.Split(string(text), "\n")
			for i, line := range strings.Split(got, "\n") {
				if i >= len(want) || line != want[i] {
					t.Fatalf("%s:%d: is %q", path, i+1, line)
				}
			}
			if len(got) < len(text) {
				t.Errorf("%s: ends early", path)
			}
		})
	}
}
