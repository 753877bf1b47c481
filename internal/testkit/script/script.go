package script

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

var rewrite = flag.Bool("rewrite", false, "write what the scripts really print; look at the difference")

// Input is a line of a transcript that begins with "> ".
type Input struct {
	Where string // file, number and text of the line, for errors
	Words []string
}

// Play gives an input to the part of one section, and returns what the part did: before the input, because
// time passed until then, and after it.
type Play func(Input) (before, after []string)

// Begin starts a section under its header, and returns how it is played.
type Begin func(t *testing.T, header string) Play

// Transcripts replays the files that match the pattern, at least one.
func Transcripts(t *testing.T, pattern string, begin Begin) {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatalf("%s: no scripts (%v)", pattern, err)
	}
	for _, path := range files {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txt"), func(t *testing.T) {
			text := read(t, path)
			got := Replay(t, path, text, begin)
			if *rewrite {
				if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			want := strings.Split(text, "\n")
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

// Replay returns a transcript with what its parts really do.
func Replay(t *testing.T, path, text string, begin Begin) string {
	where := ""
	defer func() {
		if r := recover(); r != nil {
			panic(fmt.Sprintf("%s: %v", where, r))
		}
	}()
	var out strings.Builder
	show := func(lines ...string) {
		for _, line := range lines {
			fmt.Fprintln(&out, line)
		}
	}
	var play Play
	number := 0
	for line := range strings.Lines(text) {
		number++
		line = strings.TrimSuffix(line, "\n")
		where = fmt.Sprintf("%s:%d: %s", path, number, line)
		switch {
		case strings.HasPrefix(line, "--"):
			play = begin(t, line)
			show(line)
		case strings.HasPrefix(line, "> "):
			before, after := play(Input{Where: where, Words: strings.Fields(line[2:])})
			show(before...)
			show(line)
			show(after...)
		case line == "", strings.HasPrefix(line, "#"):
			show(line)
		}
	}
	return out.String()
}

// Words are the input of a line of a table: flags, and key=value.
type Words map[string]string

// Has reports whether there is such a flag or key.
func (w Words) Has(key string) bool {
	_, ok := w[key]
	return ok
}

// Duration is the value of a key, 0 if it is not there.
func (w Words) Duration(t *testing.T, key string) time.Duration {
	t.Helper()
	if w[key] == "" {
		return 0
	}
	d, err := time.ParseDuration(w[key])
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// Table replays one file. begin is called for each section, and returns what answers its lines.
func Table(t *testing.T, path string, begin func() (answer func(Words) string)) {
	t.Helper()
	answer := begin()
	played, number := 0, 0
	for line := range strings.Lines(read(t, path)) {
		number++
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "--") {
			answer = begin()
			continue
		}
		if line == "" || line[0] == '#' {
			continue
		}
		input, want, ok := strings.Cut(line, "->")
		if !ok {
			t.Fatalf("%s:%d: no result: %s", path, number, line)
		}
		words := Words{}
		for word := range strings.FieldsSeq(input) {
			key, value, _ := strings.Cut(word, "=")
			words[key] = value
		}
		played++
		if got := answer(words); got != strings.TrimSpace(want) {
			t.Errorf("%s:%d: %s\n is %s", path, number, line, got)
		}
	}
	if played == 0 {
		t.Fatalf("%s: nothing in it", path)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
