package api

import (
	"fmt"
	"html"
	"net/http"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/understudy-ha/understudy/monitor"
)

// maxBadgeText is how many characters of a name a badge shows.
const maxBadgeText = 40

// badge draws the state of a source.
func (p *monitorPart) badge(w http.ResponseWriter, r *http.Request) error {
	s, err := p.source(r)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "image/svg+xml")
	_, _ = w.Write(drawBadge(s))
	return nil
}

func drawBadge(s monitor.SourceRecord) []byte {
	state, colour := string(s.State), "#6b7280"
	switch {
	case s.State == monitor.Down:
		state, colour = string(s.Reason), "#b91c1c"
	case s.State == monitor.Up && s.Last.IsZero():
		state = "not seen yet"
	case s.State == monitor.Up && s.Left < 0:
		state, colour = "late", "#b45309" // its alarm is about to be raised, its path is blind, or its event is paused
	case s.State == monitor.Up:
		colour = "#15803d"
	}
	name := s.Source
	if utf8.RuneCountInString(name) > maxBadgeText {
		name = string([]rune(name)[:maxBadgeText-1]) + "…"
	}
	left, right := badgeWidth(name), badgeWidth(state)
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="20" role="img" aria-label="%s: %s">`, left+right, escaped(name), escaped(state))
	fmt.Fprintf(&b, `<rect width="%d" height="20" fill="#374151"/><rect x="%d" width="%d" height="20" fill="%s"/>`, left, left, right, colour)
	b.WriteString(`<g fill="#fff" text-anchor="middle" font-family="Verdana,Geneva,DejaVu Sans,sans-serif" font-size="11">`)
	fmt.Fprintf(&b, `<text x="%d" y="14">%s</text><text x="%d" y="14">%s</text></g></svg>`, left/2, escaped(name), left+right/2, escaped(state))
	return []byte(b.String())
}

// badgeWidth is about how wide a text is, with a margin.
func badgeWidth(text string) int { return 7*utf8.RuneCountInString(text) + 12 }

// escaped is a text as SVG shows it; what XML cannot say becomes a mark.
func escaped(text string) string {
	return html.EscapeString(strings.Map(func(c rune) rune {
		if unicode.IsPrint(c) {
			return c
		}
		return unicode.ReplacementChar
	}, text))
}

// printable is what can be shown of bytes that anybody sent.
func printable(b []byte) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || unicode.IsPrint(r) {
			return r
		}
		return utf8.RuneError
	}, strings.ToValidUTF8(string(b), "\uFFFD"))
}
