package untrusted

import (
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"
)

// MaxWords is the most bytes of what [Words] and [Tail] return.
const MaxWords = 500

// Words is what someone said, in one line of printable characters.
func Words(s string) string {
	if len(s) > MaxWords {
		n := MaxWords
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

// Tail keeps the end of a program's output. Writing to it never fails, so that the
// program is not stopped by it. It is safe to use from many goroutines.
type Tail struct {
	mu   sync.Mutex
	last []byte
}

// Write implements [io.Writer].
func (t *Tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last = append(t.last, p[max(0, len(p)-MaxWords):]...)
	if drop := len(t.last) - MaxWords; drop > 0 {
		t.last = append(t.last[:0], t.last[drop:]...)
	}
	return len(p), nil
}

// String is the output's end, from the first whole character on, as [Words] shows it.
func (t *Tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return Words(strings.ToValidUTF8(string(t.last), " "))
}

// RetryAfter reads the header of that name, in seconds or as a date; ok is false
// when there is none that can be read.
func RetryAfter(h http.Header, now time.Time) (d time.Duration, ok bool) {
	v := h.Get("Retry-After")
	if seconds, err := strconv.ParseUint(v, 10, 31); err == nil {
		return time.Duration(seconds) * time.Second, true
	}
	at, err := http.ParseTime(v)
	if err != nil {
		return 0, false
	}
	return max(0, at.Sub(now)), true
}
