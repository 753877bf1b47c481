package source

import (
	"slices"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
)

const (
	defaultMaxValue = 16 << 20
	maxWords        = 500 // bytes that are shown of what a source said
)

// words makes what a source said fit to be shown.
func words(s string) string {
	if len(s) > maxWords {
		n := maxWords
		for n > 0 && !utf8.RuneStart(s[n]) {
			n--
		}
		s = s[:n]
	}
	s = strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, s)
	return strings.Join(strings.Fields(s), " ")
}

// tail keeps the end of a program's output. Writing to it never fails, so that the
// program is not stopped by it.
type tail struct {
	mu   sync.Mutex
	last []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last = append(t.last, p[max(0, len(p)-maxWords):]...)
	if drop := len(t.last) - maxWords; drop > 0 {
		t.last = append(t.last[:0], t.last[drop:]...)
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return words(strings.ToValidUTF8(string(t.last), " "))
}

// fit gives back memory that a value was read into and does not need: it is
// kept for long.
func fit(value []byte) []byte {
	if cap(value)-len(value) > len(value)/8 {
		return append(make([]byte, 0, len(value)), value...)
	}
	return slices.Clip(value)
}
