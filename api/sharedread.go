package api

import (
	"context"
	"fmt"
	"sync"
	"time"
)

const (
	// maxReadTime bounds one read. restFactor times its duration passes until the next, so that reads take at most a
	// tenth of the store's time.
	maxReadTime = 15 * time.Second
	restFactor  = 10
	// maxFailedRest bounds the rest after a read that failed. It took as long as the store hung, which says nothing of how
	// long the next one takes: ten times that would refuse sessions for minutes after the store answers again.
	maxFailedRest = time.Second
	// maxLatestWait is how long the page's state waits for a read: half of its interval.
	maxLatestWait = 500 * time.Millisecond
)

// sharedRead reads one thing from the store for all requests that want it at the same time. A slow store is read less often:
// after a read it rests ten times as long as the read took. A failure counts, too, so that a store that is down does not get
// a read from every request, but for no longer than maxFailedRest.
type sharedRead[T any] struct {
	subject string          // of the read, for errors
	running context.Context // no read outlives it
	load    func(context.Context) (T, error)

	mu       sync.Mutex
	inFlight chan struct{} // closed when the running read ends; nil without one
	value    T             // of the last read that succeeded
	endedAt  time.Time     // when the last read ended, successful or not
	took     time.Duration
	failure  error // of the last read
	changes  int   // how often something was changed
}

// fresh returns the value as of about age ago, and waits for the read if one is due.
func (l *sharedRead[T]) fresh(ctx context.Context, age time.Duration) (T, error) {
	// Twice: a read that was running when something changed may not show the change.
	for range 2 {
		under := l.startIfDue(age)
		if under == nil {
			break
		}
		select {
		case <-under:
		case <-ctx.Done():
			var none T
			return none, fmt.Errorf("reading %s: %w", l.subject, context.Cause(ctx))
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.value, l.failure
}

// latest returns the last value and the error of the last read. It waits for a slow read no longer than maxLatestWait: the
// page's state must not be late, nor count as failed, because one of its parts is slow.
func (l *sharedRead[T]) latest(ctx context.Context, age time.Duration) (T, error) {
	if under := l.startIfDue(age); under != nil {
		timer := time.NewTimer(maxLatestWait)
		defer timer.Stop()
		select {
		case <-under:
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.value, l.failure
}

// startIfDue returns the read to wait for, and starts it if it is due; nil if the value is young enough.
func (l *sharedRead[T]) startIfDue(age time.Duration) <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.inFlight != nil {
		return l.inFlight
	}
	rest := restFactor * l.took
	if l.failure != nil {
		rest = min(rest, maxFailedRest)
	}
	if time.Since(l.endedAt) < max(age, rest) {
		return nil
	}
	l.inFlight = make(chan struct{})
	go l.run(l.changes)
	return l.inFlight
}

func (l *sharedRead[T]) run(changes int) {
	ctx, cancel := context.WithTimeout(l.running, maxReadTime)
	defer cancel()
	started := time.Now()
	answer, err := l.load(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.inFlight)
	l.inFlight, l.endedAt, l.took, l.failure = nil, time.Now(), time.Since(started), err
	// Something changed during the read: its value may be from before, so the next request reads again.
	if changes != l.changes {
		l.endedAt = time.Time{}
	}
	if err == nil {
		l.value = answer
	}
}

// invalidate makes the next request read again, because something was changed.
func (l *sharedRead[T]) invalidate() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.endedAt = time.Time{}
	l.changes++
}
