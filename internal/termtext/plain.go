package termtext

import (
	"fmt"
	"strings"
	"time"
	"unicode"
)

// Text is a text without anything that a terminal would obey: tabs become spaces, what else cannot be printed �.
func Text(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || unicode.IsPrint(r):
			return r
		case r == '\t':
			return ' '
		default:
			return '�'
		}
	}, s)
}

// Line is a text that fits into a table: one line of at most 100 letters.
func Line(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	if r := []rune(s); len(r) > 100 {
		return string(r[:99]) + "…"
	}
	return s
}

// Brief is a duration as people read it: three figures are enough.
func Brief(d time.Duration) string {
	switch {
	case d < 0:
		return "-" + Brief(-d)
	case d < time.Millisecond:
		return d.Round(time.Microsecond).String()
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return fmt.Sprintf("%.1fs", d.Seconds())
	case d < 48*time.Hour:
		return d.Round(time.Second).String()
	default:
		return fmt.Sprintf("%dd", int(d.Hours()/24))
	}
}

// Duration is a duration without the parts of it that are zero.
func Duration(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// URL is a URL without its passwords, wherever a store may take them from.
func URL(url string) string {
	head, rest, ok := strings.Cut(url, "://")
	if !ok {
		return url
	}
	rest, query, asked := strings.Cut(rest, "?")
	if at := strings.LastIndex(rest, "@"); at >= 0 {
		if user, _, secret := strings.Cut(rest[:at], ":"); secret {
			rest = user + ":***" + rest[at:]
		}
	}
	if !asked {
		return head + "://" + rest
	}
	options := strings.Split(query, "&")
	for i, option := range options {
		if name, _, _ := strings.Cut(option, "="); strings.Contains(strings.ToLower(name), "pass") {
			options[i] = name + "=***"
		}
	}
	return head + "://" + rest + "?" + strings.Join(options, "&")
}

// Count is a number of things, as people say it.
func Count(n int64, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
