package schedule

import (
	"strings"
	"testing"
	"time"
)

func at(t testing.TB, text string) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

func TestNext(t *testing.T) {
	for _, c := range []struct{ text, anchor, after, want string }{
		{"every 90m", "2026-11-21T10:00:00.7Z", "2026-11-21T10:00:00Z", "2026-11-21T11:30:00Z"},
		{"every 90m", "2026-11-21T10:00:00Z", "2026-11-21T11:30:00Z", "2026-11-21T13:00:00Z"},
		{"every 90m", "2026-11-21T10:00:00Z", "2026-11-21T09:59:59Z", "2026-11-21T10:00:00Z"},
		{"every 90m", "2026-11-21T10:00:00Z", "2026-11-21T08:29:59.5Z", "2026-11-21T08:30:00Z"},
		{"every 2s", "", "2026-11-21T10:00:00.999Z", "2026-11-21T10:00:02Z"},
		{"EVERY 24h", "1900-01-01T06:00:00Z", "2026-11-21T10:00:00Z", "2026-11-22T06:00:00Z"}, // more than a Duration apart
		{"2026-12-24", "", "2026-11-21T10:00:00Z", "2026-12-24T00:00:00Z"},
		{"TZ=Europe/Berlin 2026-12-24 18:00", "", "2026-11-21T10:00:00Z", "2026-12-24T17:00:00Z"},
		{"TZ=Europe/Berlin 2026-12-24T18:00:30", "", "2026-11-21T10:00:00Z", "2026-12-24T17:00:30Z"},
		{"2026-12-24T18:00:30+05:45", "", "2026-11-21T10:00:00Z", "2026-12-24T12:15:30Z"},
		{"TZ=Europe/Berlin 2027-03-28 02:30", "", "2026-11-21T10:00:00Z", "2027-03-28T01:00:00Z"}, // in the gap
		{"TZ=Europe/Berlin 2026-10-25 02:30", "", "2026-10-21T10:00:00Z", "2026-10-25T00:30:00Z"}, // twice
		{"2026-12-24", "", "2026-12-24T00:00:00Z", ""},
		{"TZ=Europe/Berlin @daily", "", "2026-12-24T00:00:00Z", "2026-12-24T23:00:00Z"},
	} {
		s, err := Parse(c.text)
		if err != nil {
			t.Errorf("%s: %v", c.text, err)
			continue
		}
		if c.anchor != "" {
			s = s.Anchored(at(t, c.anchor))
		}
		got := ""
		if next := s.Next(at(t, c.after)); !next.IsZero() {
			got = next.UTC().Format(time.RFC3339Nano)
		}
		if got != c.want {
			t.Errorf("%s: after %s comes %q, want %q", c.text, c.after, got, c.want)
		}
	}
}

func TestRefused(t *testing.T) {
	for text, want := range map[string]string{
		"every":                         "as in: every 90m",
		"every 1h 30m":                  "as in: every 90m",
		"every day":                     `"day" is not a period`,
		"every 500ms":                   "whole seconds",
		"every 1500ms":                  "whole seconds",
		"every 0s":                      "whole seconds",
		"every -5m":                     "whole seconds",
		"every 9000h":                   "whole seconds",
		"@every 5m":                     "without the @, as in: every 5m",
		"@Every":                        "as in: every 90m",
		"TZ=Europe/Berlin every 5m":     "no time zone",
		"2026-13-01":                    "is not a date",
		"2026-02-30 12:00":              "is not a date",
		"2026-02-28 12:00 am":           "is not a date",
		"TZ=Mars/Olympus 2026-02-28":    "time zone: unknown",
		"TZ=Mars/Olympus":               "time zone: unknown",
		"TZ=UTC":                        "0 fields",
		"soon":                          "1 fields",
		strings.Repeat("every 5m ", 90): "use at most",
	} {
		if _, err := Parse(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// TestLast compares with walking from time to time.
func TestLast(t *testing.T) {
	for _, text := range []string{"every 1s", "every 7m", "*/5 1-5 * * *", "TZ=Europe/Berlin 30 2 * * *", "2026-11-21 12:00", "0 0 29 2 *"} {
		s, err := Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		after := at(t, "2026-11-21T10:00:00.5Z")
		for _, length := range []time.Duration{0, time.Second, time.Minute, time.Hour, 3 * time.Hour, 26 * time.Hour} {
			until, want := after.Add(length), time.Time{}
			for next := s.Next(after); !next.IsZero() && !next.After(until); next = s.Next(next) {
				want = next
			}
			if got := s.Last(after, until); !got.Equal(want) {
				t.Errorf("%s: the last within %v is %v, want %v", text, length, got, want)
			}
		}
	}
	for _, c := range []struct{ text, after, until, want string }{
		{"@daily", "1900-01-01T00:00:00Z", "2026-11-21T10:00:00Z", "2026-11-21T00:00:00Z"},
		{"0 2 * * 6", "2025-01-01T00:00:00Z", "2026-11-21T01:59:59Z", "2026-11-14T02:00:00Z"},
		{"* 2 * * *", "2025-01-01T00:00:00Z", "2026-11-21T13:00:00Z", "2026-11-21T02:59:00Z"},
		{"TZ=Europe/Berlin 30 2 29 3 *", "2025-01-01T00:00:00Z", "2026-11-21T00:00:00Z", "2026-03-29T01:00:00Z"}, // it comes at the jump
		{"0 0 29 2 *", "2024-09-12T00:00:00Z", "2026-11-21T00:00:00Z", ""},
	} {
		s, err := Parse(c.text)
		if err != nil {
			t.Fatal(err)
		}
		want := time.Time{}
		if c.want != "" {
			want = at(t, c.want)
		}
		if got := s.Last(at(t, c.after), at(t, c.until)); !got.Equal(want) {
			t.Errorf("%s between %s and %s: %v, want %v", c.text, c.after, c.until, got, want)
		}
	}
}
