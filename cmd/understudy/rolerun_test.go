package main

import (
	"context"
	"errors"
	"fmt"
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
		"no time left":                 {fmt.Errorf("%w: p", guard.ErrTooLate), false, exitLost},
		"the deadline came first":      {died, true, exitLost},
		"a watcher died, time is left": {died, false, exitFailed},
	} {
		if got := exitCode(startResult(c.err, c.late)); got != c.code {
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
		"ended well":          {t.Context(), guard.Exit{Reason: guard.Exited}, nil, exitOK},
		"ended badly":         {t.Context(), guard.Exit{Reason: guard.Exited, Code: 7}, nil, 7},
		"stopped":             {moved, guard.Exit{Reason: guard.Stopped, Code: 143}, nil, 143},
		"lost":                {lost, guard.Exit{Reason: guard.Stopped, Code: 143}, nil, exitLost},
		"deadline":            {t.Context(), guard.Exit{Reason: guard.Deadline, Code: 137}, nil, exitLost},
		"its watcher died":    {t.Context(), guard.Exit{Reason: guard.WatcherLost, Code: 137}, nil, exitLost},
		"it may be alive yet": {t.Context(), guard.Exit{}, guard.ErrEscaped, exitFailed},
	} {
		if got := exitCode(programResult(c.ctx, c.exit, c.err)); got != c.code {
			t.Errorf("%s: exit code %d, want %d", name, got, c.code)
		}
	}
}
