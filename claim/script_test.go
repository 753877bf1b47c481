package claim_test

import (
	"bufio"
	"os"
	"strings"
	"testing"
	"time"
)

// words are the input of a line of a script: flags, and key=value.
type words map[string]string

func (w words) has(flag string) bool {
	_, ok := w[flag]
	return ok
}

func (w words) duration(t *testing.T, key string) time.Duration {
	t.Helper()
	if !w.has(key) {
		return 0
	}
	d, err := time.ParseDuration(w[key])
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// script replays a file of lines "input -> result"; lines that start with "#" or
// "--" are for people.
func script(t *testing.T, file string, answer func(words) string) {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	played := 0
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || line[0] == '#' || strings.HasPrefix(line, "--") {
			continue
		}
		input, want, ok := strings.Cut(line, "->")
		if !ok {
			t.Fatalf("%s:%d: no result: %s", file, n, line)
		}
		w := words{}
		for word := range strings.FieldsSeq(input) {
			key, value, _ := strings.Cut(word, "=")
			w[key] = value
		}
		played++
		if got := answer(w); got != strings.TrimSpace(want) {
			t.Errorf("%s:%d: %s\n is %s", file, n, line, got)
		}
	}
	if err := lines.Err(); err != nil || played == 0 {
		t.Fatalf("%s: %d lines, %v", file, played, err)
	}
}
