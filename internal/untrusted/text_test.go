package untrusted

import (
	"net/http"
	"strings"
	"testing"
	"time"
)

func TestWords(t *testing.T) {
	for in, want := range map[string]string{
		"":                                   "",
		" a\r\n\tb\x1b[31m ":                 "a b [31m",
		"a\xffb":                             "a b",
		strings.Repeat("x", 9000):            strings.Repeat("x", MaxWords),
		strings.Repeat("ü", 9000):            strings.Repeat("ü", MaxWords/2),
		strings.Repeat("€", 9000):            strings.Repeat("€", MaxWords/3),
		"x" + strings.Repeat("\u20ac", 9000): "x" + strings.Repeat("\u20ac", (MaxWords-1)/3),
	} {
		if got := Words(in); got != want {
			t.Errorf("%.20q…: %q", in, got)
		}
	}
}

func TestTail(t *testing.T) {
	var got Tail
	for range 1000 {
		if n, err := got.Write([]byte("0123456789€")); n != 13 || err != nil {
			t.Fatal(n, err)
		}
	}
	if s := got.String(); len(s) > MaxWords || !strings.HasSuffix(s, "€0123456789€") {
		t.Errorf("%d bytes: %s", len(s), s)
	}
	if cap(got.last) > 8*MaxWords {
		t.Errorf("%d bytes are kept", cap(got.last))
	}
}

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	date := func(d time.Duration) string { return now.Add(d).Format(http.TimeFormat) }
	for value, want := range map[string]time.Duration{"": 0, "5": 5 * time.Second, "-5": 0, "x": 0, date(time.Minute): time.Minute, date(-time.Minute): 0} {
		if got, _ := RetryAfter(http.Header{"Retry-After": {value}}, now); got != want {
			t.Errorf("Retry-After %q: %v, want %v", value, got, want)
		}
	}
}
