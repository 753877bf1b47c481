package shard

import (
	"errors"
	"strings"
	"time"
	"unicode"
)

// sayAgain is how often a trouble that lasts is told in the log.
const sayAgain = 10 * time.Second

// said keeps a trouble that is met many times a second from filling the log: it is told when it begins,
// when it becomes one of another kind, and every [sayAgain]. The zero said has told nothing.
type said struct {
	kind string
	at   time.Duration
}

// due tells whether a trouble of this kind is to be told now.
func (s *said) due(kind string, now time.Duration) bool {
	if s.kind == kind && now < s.at+sayAgain {
		return false
	}
	s.kind, s.at = kind, now
	return true
}

// over ends the trouble, and tells whether there was one.
func (s *said) over() bool {
	was := s.kind != ""
	*s = said{}
	return was
}

// wording is a text without its numbers, some of which grow all the time.
func wording(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsDigit(r) {
			return -1
		}
		return r
	}, text)
}

// kindOf is what a node's error is about. Its text would not do: it names another port each time.
func kindOf(err error) string {
	for _, kind := range []error{ErrNodeAccess, ErrNodeUnwell, ErrNodeRefused, ErrNodeGone} {
		if errors.Is(err, kind) {
			return kind.Error()
		}
	}
	return "no answer"
}
