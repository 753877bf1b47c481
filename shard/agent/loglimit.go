package agent

import (
	"errors"
	"strings"
	"time"
	"unicode"

	"github.com/understudy-ha/understudy/shard"
)

// logAgainAfter is how often a problem that lasts is logged.
const logAgainAfter = 10 * time.Second

// logLimiter keeps a problem that is met many times a second from filling the log: it is logged when it
// starts, when it becomes one of another kind, and every [logAgainAfter]. The zero limiter has logged nothing.
type logLimiter struct {
	kind string
	at   time.Duration
}

// shouldLog reports whether a problem of this kind must be logged now.
func (l *logLimiter) shouldLog(kind string, now time.Duration) bool {
	if l.kind == kind && now < l.at+logAgainAfter {
		return false
	}
	l.kind, l.at = kind, now
	return true
}

// end ends the problem, and reports whether there was one.
func (l *logLimiter) end() bool {
	was := l.kind != ""
	*l = logLimiter{}
	return was
}

// withoutDigits is a text without its numbers, some of which grow all the time.
func withoutDigits(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsDigit(r) {
			return -1
		}
		return r
	}, text)
}

// kindOf is what a node's error is about. Its text would not do: it names another port each time.
func kindOf(err error) string {
	for _, kind := range []error{shard.ErrNodeAccess, shard.ErrNodeUnhealthy, shard.ErrNodeRefused, shard.ErrNodeGone} {
		if errors.Is(err, kind) {
			return kind.Error()
		}
	}
	return "no answer"
}
