package postgres

import (
	"strings"
	"time"
	"unicode/utf8"

	"github.com/understudy-ha/understudy/dispatch"
)

// Values of Go as the database takes them, and back.

// micros is a time as the database takes it: microseconds since 1970, 0 for none.
func micros(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

// fromMicros is the reverse.
func fromMicros(us int64) time.Time {
	if us == 0 {
		return time.Time{}
	}
	return time.UnixMicro(us).UTC()
}

// micro is a duration that the database has in microseconds.
func micro(us int64) time.Duration { return time.Duration(us) * time.Microsecond }

// utc is a time that may be null: the zero one for null.
func utc(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.UTC()
}

// orNull is a time, or NULL for none.
func orNull(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// isStorable reports whether the database can hold these texts, and so can have anything by them.
func isStorable(texts ...string) bool {
	for _, t := range texts {
		if !utf8.ValidString(t) || strings.Contains(t, "\x00") {
			return false
		}
	}
	return true
}

// clean is a text for people as the database takes it: valid UTF-8 without a zero byte.
func clean(s string) string {
	return strings.ToValidUTF8(strings.ReplaceAll(s, "\x00", "\uFFFD"), "\uFFFD")
}

// cleanDetail is what a target said, as the database takes it.
func cleanDetail(s string) string { return dispatch.CutDetail(clean(s)) }

// payload is a message's payload, which is never null.
func payload(b dispatch.Message) []byte {
	if b.Payload == nil {
		return []byte{}
	}
	return b.Payload
}
