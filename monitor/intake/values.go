package intake

import (
	"bytes"
	"encoding/json"
	"math"
	"strconv"
	"time"
	"unicode/utf8"
)

// unquote returns the text that a JSON text stands for.
func unquote(raw []byte) string {
	if inner := raw[1 : len(raw)-1]; bytes.IndexByte(inner, '\\') < 0 {
		return string(inner)
	}
	var s string
	_ = json.Unmarshal(raw, &s) // the scanner has taken it for a text
	return s
}

// absent reports whether a member of an object was left out, or null.
func absent(raw []byte) bool { return len(raw) == 0 || raw[0] == 'n' }

func isText(raw []byte) bool { return len(raw) > 0 && raw[0] == '"' }

// figures are the digits of a number, or of a text that has one.
func figures(raw []byte) (string, bool) {
	digits := string(raw)
	if isText(raw) {
		digits = unquote(raw)
	}
	if digits == "" || digits[0] != '-' && (digits[0] < '0' || digits[0] > '9') {
		return "", false
	}
	s := scanner{data: []byte(digits)}
	return digits, s.number() == nil && s.at == len(digits)
}

// whole reads a whole number; one that is too large, or has a fraction, is 0.
func whole(raw []byte) (int64, bool) {
	digits, ok := figures(raw)
	if !ok {
		return 0, false
	}
	if n, err := strconv.ParseInt(digits, 10, 64); err == nil {
		return n, true
	}
	f, err := strconv.ParseFloat(digits, 64)
	if err != nil || f != math.Trunc(f) || math.Abs(f) >= 1<<63 {
		return 0, true
	}
	return int64(f), true
}

// exitCode reads the exit code of a program. Unlike [whole] it refuses what it cannot keep: 0 is success, and must not stand
// for a failure.
func exitCode(raw []byte) (int, bool) {
	digits, ok := figures(raw)
	if !ok {
		return 0, false
	}
	f, err := strconv.ParseFloat(digits, 64)
	if err != nil || f != math.Trunc(f) || f < 0 || f > maxCode {
		return 0, false
	}
	return int(f), true
}

// From these sizes on a number is no longer seconds, milliseconds or
// microseconds since 1970: each would be in the year 5138.
const (
	fromMillis = 1e11
	fromMicros = 1e14
	fromNanos  = 1e17
)

// parseTime reads a time: RFC 3339, or a number since 1970. What cannot be a time of
// our days is the zero time; a sender's clock may be that wrong.
func parseTime(raw []byte) (time.Time, bool) {
	digits, ok := figures(raw)
	if !ok {
		if !isText(raw) || !utf8.Valid(raw) {
			return time.Time{}, false
		}
		t, err := time.Parse(time.RFC3339, unquote(raw))
		if err != nil {
			return time.Time{}, false
		}
		return plausibleTime(t), true
	}
	if n, err := strconv.ParseInt(digits, 10, 64); err == nil {
		return plausibleTime(ofWhole(n)), true
	}
	f, err := strconv.ParseFloat(digits, 64)
	switch {
	case err != nil || math.Abs(f) >= 1<<63:
		return time.Time{}, true
	case math.Abs(f) < fromMillis:
		return plausibleTime(time.UnixMicro(int64(f * 1e6))), true
	case math.Abs(f) < fromMicros:
		return plausibleTime(time.UnixMicro(int64(f * 1e3))), true
	}
	return plausibleTime(ofWhole(int64(f))), true
}

func ofWhole(n int64) time.Time {
	switch {
	case n < fromMillis:
		return time.Unix(n, 0)
	case n < fromMicros:
		return time.UnixMilli(n)
	case n < fromNanos:
		return time.UnixMicro(n)
	}
	return time.Unix(0, n)
}

// plausibleTime is the time in the precision of the stores, if it is after 1970 began.
func plausibleTime(t time.Time) time.Time {
	if t.Unix() <= 0 {
		return time.Time{}
	}
	return t.UTC().Truncate(time.Microsecond)
}
