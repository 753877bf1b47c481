package clientgo

import (
	"context"
	"fmt"

	"github.com/understudy-ha/understudy/lease"
)

// Context returns a context for the work of the leader. It ends with parent, which must end, and with cause [lease.ErrLost] when the
// term can no longer be trusted: before another process can lead. Its Err method asks the clock, so that work that was paused past
// the end finds out at its next look. Done, and contexts derived from this one, follow by a timer: up to RetryPeriod late after the
// host was suspended. A context that was made while this process does not lead is for its next term.
func (l *Lock) Context(parent context.Context) context.Context {
	ctx, cancel := context.WithCancelCause(parent)
	c := &termContext{Context: ctx, lock: l, cancel: cancel}
	go c.watch()
	return c
}

// termContext computes its validity when asked; see [Lock.Context].
type termContext struct {
	context.Context
	lock   *Lock
	cancel context.CancelCauseFunc
}

func (c *termContext) Err() error {
	if t := c.lock.lostTenure(); t != nil {
		c.cancel(c.lock.lost(t))
	}
	return c.Context.Err()
}

// watch cancels in time for those who wait on Done instead of asking Err.
func (c *termContext) watch() {
	clock := c.lock.cfg.Clock
	for c.Err() == nil {
		// Not longer, because a term may begin meanwhile, which lasts for longer than that, and because timers stand still while
		// the host is suspended.
		wait := c.lock.cfg.RetryPeriod
		if t := c.lock.tenure.Load(); t != nil {
			wait = min(wait, t.trust.Remaining(clock.Now()))
		}
		lease.Sleep(c.Context, clock, wait)
	}
}

// lostTenure is the tenure if its trust has ended, else nil. From then on a renewal that is on its way fails: client-go would lead on,
// although the work has ended.
func (l *Lock) lostTenure() *tenure {
	for {
		t := l.tenure.Load()
		if t == nil || t.trust.Remaining(l.cfg.Clock.Now()) > 0 {
			return nil
		}
		if lost := (&tenure{session: t.session, term: t.term}); l.tenure.CompareAndSwap(t, lost) {
			return lost
		}
	}
}

func (l *Lock) lost(t *tenure) error {
	return fmt.Errorf("%w: %s, term %d", lease.ErrLost, l.Describe(), t.term)
}
