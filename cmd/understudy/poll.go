package main

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"time"

	"github.com/understudy-ha/understudy/api/apitype"
	"github.com/understudy-ha/understudy/api/client"
	"github.com/understudy-ha/understudy/internal/backoff"
)

// pollOptions is how poll reads the same thing again and again.
type pollOptions struct {
	subject []any           // what is read, as attributes of the log
	timeout time.Duration   // of each read
	wake    <-chan struct{} // ends a pause; nil: nothing does
}

// pollRetry is the pause after a read without an answer.
const pollRetry = time.Second

// poll reads until read returns no pause, with nil, until ctx ends, with nil as well, or until it returns an error that
// will stay. A server or store that does not answer is asked again, and the log says when that starts, and when it ends; a
// server that has had too many requests is asked again when it says.
func (a *app) poll(ctx context.Context, o pollOptions, read func(context.Context) (pause time.Duration, err error)) error {
	for unread := false; ; {
		call, cancel := context.WithTimeout(ctx, o.timeout)
		pause, err := read(call)
		cancel()
		if err = apiError(err); !a.usesServer() {
			err = inProcessError(err)
		}
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && !maySucceedLater(err):
			return err
		case err != nil && !unread: // as text: of an error the log would make an outage of the store
			a.Log.Warn("there is no answer, and what was printed may have changed; trying again", append(slices.Clone(o.subject), "err", err.Error())...)
		case err == nil && unread:
			a.Log.Info("there are answers again", o.subject...)
		}
		unread = err != nil
		switch {
		case waitRetryAfter(ctx, err):
			continue
		case unread:
			pause = pollRetry
		case pause == 0:
			return nil
		}
		select {
		case <-ctx.Done():
		case <-o.wake:
		case <-time.After(pause):
		}
	}
}

// maySucceedLater reports whether a read that failed so is worth another one: also what a server answers that failed itself, has had
// too many requests, or ended in the middle of its answer.
func maySucceedLater(err error) bool {
	return mayRecover(err) || errors.Is(err, errInternal) || errors.As(err, new(tooManyError)) ||
		errors.Is(err, io.ErrUnexpectedEOF) || errors.As(err, new(*net.OpError))
}

// wokenBy runs run, which polls, and wakes it at each event that is wanted. An error of the events ends nothing: they are followed again
// after pollRetry, and until then run reads only when its own pauses end.
func wokenBy(ctx context.Context, c *client.Client, f client.Follow, wanted func(apitype.Event) bool, run func(ctx context.Context, wake <-chan struct{}) error) error {
	wake := make(chan struct{}, 1)
	follow := func(ctx context.Context) error {
		for ctx.Err() == nil {
			_ = c.Events(ctx, f, func(e apitype.Event) error {
				if wanted(e) {
					select {
					case wake <- struct{}{}:
					default: // it is going to read anyway
					}
				}
				return nil
			})
			backoff.Sleep(ctx, pollRetry)
		}
		return nil
	}
	return alongside(ctx, follow, func(ctx context.Context) error { return run(ctx, wake) })
}
