package instance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/understudy-ha/understudy/elect"
	"github.com/understudy-ha/understudy/internal/guard"
	"github.com/understudy-ha/understudy/lease"
)

func TestStartResult(t *testing.T) {
	missing := &guard.StartError{Program: "p", Code: 127, Err: errors.New("gone")}
	died := errors.New("a watcher died")
	for name, c := range map[string]struct {
		err  error
		late bool
		code int
	}{
		"no such program":              {missing, false, 127},
		"no such program, on a slug":   {missing, true, 127},
		"no time left":                 {fmt.Errorf("%w: p", guard.ErrTooLate), false, lostCode},
		"the deadline came first":      {died, true, lostCode},
		"a watcher died, time is left": {died, false, failedCode},
	} {
		if got := codeOf(startResult(c.err, c.late)); got != c.code {
			t.Errorf("%s: exit code %d, want %d", name, got, c.code)
		}
	}
}

func TestProgramResult(t *testing.T) {
	lost, cancel := context.WithCancelCause(t.Context())
	cancel(lease.ErrLost)
	moved, cancel := context.WithCancelCause(t.Context())
	cancel(elect.ErrMoved)
	for name, c := range map[string]struct {
		ctx  context.Context
		exit guard.Exit
		err  error
		code int
	}{
		"ended well":          {t.Context(), guard.Exit{Reason: guard.Exited}, nil, 0},
		"ended badly":         {t.Context(), guard.Exit{Reason: guard.Exited, Code: 7}, nil, 7},
		"stopped":             {moved, guard.Exit{Reason: guard.Stopped, Code: 143}, nil, 143},
		"lost":                {lost, guard.Exit{Reason: guard.Stopped, Code: 143}, nil, lostCode},
		"deadline":            {t.Context(), guard.Exit{Reason: guard.Deadline, Code: 137}, nil, lostCode},
		"its watcher died":    {t.Context(), guard.Exit{Reason: guard.WatcherLost, Code: 137}, nil, lostCode},
		"it may be alive yet": {t.Context(), guard.Exit{}, guard.ErrEscaped, failedCode},
	} {
		if got := codeOf(programResult(c.ctx, c.exit, c.err)); got != c.code {
			t.Errorf("%s: exit code %d, want %d", name, got, c.code)
		}
	}
}

// Codes that only this test knows, for errors that have none of their own.
const (
	lostCode   = -1
	failedCode = -2
)

// codeOf is what an error says of a program's exit.
func codeOf(err error) int {
	var start *guard.StartError
	var child Exit
	switch {
	case err == nil:
		return 0
	case errors.As(err, &start):
		return start.Code
	case errors.As(err, &child):
		return child.Code
	case errors.Is(err, lease.ErrLost):
		return lostCode
	default:
		return failedCode
	}
}

// A program gets what this process got, but for the store's URL and the token, unless it is to have them.
func TestProgramEnvironment(t *testing.T) {
	own := []string{"HOME=/srv", "UNDERSTUDY_STORE=postgres://u:hidden@db/a", "UNDERSTUDY_TOKEN=hidden", "UNDERSTUDY_STORED=x"}
	given := []string{"UNDERSTUDY_ROLE=billing", "UNDERSTUDY_TERM=7"}
	want := append([]string{"HOME=/srv", "UNDERSTUDY_STORED=x"}, given...)
	if got := (&Program{}).environ(slices.Clone(own), given...); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if got, want := (&Program{PassStore: true}).environ(slices.Clone(own), given...), append(slices.Clone(own), given...); !slices.Equal(got, want) {
		t.Errorf("with the store: %q, want %q", got, want)
	}
}
