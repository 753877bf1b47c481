package api

import (
	"context"
	"fmt"
	"sync"
	"time"
)

const (
	// lookMost bounds one look, and restFactor times what it took is until the next.
	lookMost   = 15 * time.Second
	restFactor = 10
	// stateWaits is how long the state waits for a look.
	stateWaits = 500 * time.Millisecond
)

// look asks the store one thing for all who want to know it at the same time, not
// more often than they need it. When the answer takes its time, it rests ten times as
// long. A failure counts as long as an answer, so that a store that is down is not
// asked by everybody.
type look[T any] struct {
	of      string          // what is looked at, for errors
	running context.Context // no look outlives it
	ask     func(context.Context) (T, error)
	// take makes what is shown from what was shown and an answer. Default: the answer.
	take func(before, answer T) T

	mu      sync.Mutex
	flight  chan struct{} // closed when the look that is under way has ended; nil without one
	shown   T             // as the last look that was answered found it
	tried   time.Time     // when the last look ended, answered or not
	took    time.Duration
	failure error // of the last look
	changes int   // how often something was changed
}

// view returns what was seen about age ago.
func (l *look[T]) view(ctx context.Context, age time.Duration) (T, error) {
	// Twice: a look that was under way when something was changed may not show it.
	for range 2 {
		under := l.start(age)
		if under == nil {
			break
		}
		select {
		case <-under:
		case <-ctx.Done():
			var none T
			return none, fmt.Errorf("looking at %s: %w", l.of, context.Cause(ctx))
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.shown, l.failure
}

// known returns what was seen last, and what the last look met. A look that takes
// long is not waited for: what it belongs to is not to wait for it, nor to be
// called old when it is.
func (l *look[T]) known(ctx context.Context, age time.Duration) (T, error) {
	if under := l.start(age); under != nil {
		timer := time.NewTimer(stateWaits)
		defer timer.Stop()
		select {
		case <-under:
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.shown, l.failure
}

// start returns a look to wait for, which it begins if it is due; nil if what is
// known is good enough.
func (l *look[T]) start(age time.Duration) <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.flight != nil {
		return l.flight
	}
	if time.Since(l.tried) < max(age, restFactor*l.took) {
		return nil
	}
	l.flight = make(chan struct{})
	go l.look(l.changes)
	return l.flight
}

func (l *look[T]) look(changes int) {
	ctx, cancel := context.WithTimeout(l.running, lookMost)
	defer cancel()
	started := time.Now()
	answer, err := l.ask(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.flight)
	l.flight, l.tried, l.took, l.failure = nil, time.Now(), time.Since(started), err
	if changes != l.changes {
		l.tried = time.Time{}
	}
	switch {
	case err != nil:
	case l.take != nil:
		l.shown = l.take(l.shown, answer)
	default:
		l.shown = answer
	}
}

// forget makes the next one who asks look anew, because something was changed.
func (l *look[T]) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tried = time.Time{}
	l.changes++
}
