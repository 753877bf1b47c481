package main

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/understudy-ha/understudy/internal/termtext"
)

// Values as tables and lines show them.

func when(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.Local().Format(time.DateTime)
}

func orNothing[N int | int64](n N) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatInt(int64(n), 10)
}

// briefOrBlank is a duration as people read it, and "" when it is none.
func briefOrBlank(d time.Duration) string {
	if d <= 0 {
		return ""
	}
	return termtext.Brief(d)
}

// durationOrBlank is a duration that is configured, in full.
func durationOrBlank(ms int64) string {
	if ms == 0 {
		return ""
	}
	return millis(ms).String()
}

// millis is a duration that JSON has in milliseconds.
func millis(n int64) time.Duration { return time.Duration(n) * time.Millisecond }

// orEmpty keeps null out of JSON.
func orEmpty[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

// after puts a text behind its introduction, unless there is none.
func after(intro, text string) string {
	if text == "" {
		return ""
	}
	return intro + text
}

// labelText is labels as the flags take them.
func labelText(labels map[string]string) string {
	out := make([]string, 0, len(labels))
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		out = append(out, name+"="+labels[name])
	}
	return strings.Join(out, ", ")
}

// cutTo fits a text into a line or a column.
func cutTo(s string, most int) string {
	s = strings.Join(strings.Fields(s), " ")
	if r := []rune(s); len(r) > most {
		return string(r[:most-1]) + "…"
	}
	return s
}
