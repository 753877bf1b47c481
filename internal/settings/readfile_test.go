package settings

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestFilesAreRegularAndSmall: what is no file of a configuration is refused at once, whoever reads it.
func TestFilesAreRegularAndSmall(t *testing.T) {
	dir := t.TempDir()
	pipe, large, full := filepath.Join(dir, "pipe"), filepath.Join(dir, "large"), filepath.Join(dir, "full")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	const text = "listen: 127.0.0.1:0\nmonitor: {checks: [{check: web, interval: 1s}]}\n"
	for path, n := range map[string]int{large: maxFile + 1, full: maxFile} {
		if err := os.WriteFile(path, []byte(text+strings.Repeat("\n", n-len(text))), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, read := range map[string]func(path string) error{
		"server's file": func(path string) error { _, err := Read(path); return err },
		"document":      func(path string) error { _, err := ReadDocument(path, "", nil); return err },
	} {
		for path, want := range map[string]string{pipe: "not a regular file", dir: "not a regular file", large: "larger than 4 MiB", full: ""} {
			done := make(chan error, 1)
			go func() { done <- read(path) }()
			select {
			case err := <-done:
				if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
					t.Errorf("%s %s: %v, want %q", name, filepath.Base(path), err, want)
				}
			case <-time.After(time.Minute):
				t.Errorf("%s %s: reading it does not end", name, filepath.Base(path))
			}
		}
	}
	stdin := strings.NewReader(text + strings.Repeat("\n", maxFile))
	if _, err := ReadDocument("-", "", stdin); err == nil || !strings.Contains(err.Error(), "larger than 4 MiB") {
		t.Errorf("standard input: %v", err)
	}
}
