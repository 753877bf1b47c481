package lease

import (
	"context"
	"sync"
	"time"
)

// ActiveSession is this process's own view of its session, which a [Keeper] keeps:
// how long the process may trust it. Validity is computed from the clock on every
// call; no timer has to fire for it to turn false.
type ActiveSession struct {
	id     string
	timing Timing
	clock  Clock

	mu       sync.Mutex
	trust    Trust
	ended    bool          // by the store or by us: it is never trusted again
	changed  chan struct{} // closed and replaced whenever trust moves
	done     chan struct{} // closed when ended
	bindings int           // contexts bound to it
	retained int           // leases under it that are being released
	idle     chan struct{} // closed when both fall to zero; nil until the keeper waits
}

func newActiveSession(id string, timing Timing, clock Clock, trust Trust) *ActiveSession {
	return &ActiveSession{id: id, timing: timing, clock: clock, trust: trust,
		changed: make(chan struct{}), done: make(chan struct{})}
}

// ID is the session's id.
func (l *ActiveSession) ID() string { return l.id }

// Timing is how the session is kept.
func (l *ActiveSession) Timing() Timing { return l.timing }

// Remaining is how long the session may still be trusted; 0 when it may not.
func (l *ActiveSession) Remaining() time.Duration {
	until, _ := l.Until()
	return max(0, until-l.clock.Now())
}

// Valid reports whether the session may be trusted now.
func (l *ActiveSession) Valid() bool { return l.Remaining() > 0 }

// whyRefused is why the store has refused to renew the session. A store that keeps time refuses none that is still trusted.
func (l *ActiveSession) whyRefused() string {
	if l.Valid() {
		return "the store ended it before its time: its clock was stepped, an old copy of it was restored, or somebody ended the session"
	}
	return "it was not renewed for T"
}

// Until is the reading of the [Clock] at which trust ends, 0 when the session has
// ended, and a channel that is closed when that changes.
func (l *ActiveSession) Until() (until time.Duration, changed <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return 0, l.changed
	}
	return l.trust.Until(), l.changed
}

// Done is closed when the session has ended for good: the store refused it, or its
// keeper ended it. Trust may end earlier.
func (l *ActiveSession) Done() <-chan struct{} { return l.done }

// Bind returns a context for work done under this session. It is cancelled with
// cause [ErrLost] when less than margin of trust is left: margin is the time
// that the work needs to stop. Its Err method asks the clock, so that work that
// was paused past the end finds out at its next look, before any timer fires.
// The session is not ended while bound work continues: release must be called when
// the work has stopped.
func (l *ActiveSession) Bind(ctx context.Context, margin time.Duration) (bound context.Context, release func()) {
	// boundContext is outermost: a context derived from it would answer from a
	// flag that a timer sets, instead of asking the clock.
	inner, cancel := context.WithCancelCause(ctx)
	b := &boundContext{Context: inner, session: l, margin: margin, cancel: cancel}
	l.mu.Lock()
	l.bindings++
	l.mu.Unlock()
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		b.watch()
	}()
	return b, sync.OnceFunc(func() {
		cancel(nil)
		<-stopped
		l.leave(&l.bindings)
	})
}

// Retain keeps the session from being ended, while it may be trusted, until release is
// called: a lease that was bound to it is still to be released.
func (l *ActiveSession) Retain() (release func()) {
	l.mu.Lock()
	l.retained++
	l.mu.Unlock()
	return sync.OnceFunc(func() { l.leave(&l.retained) })
}

func (l *ActiveSession) leave(count *int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	*count--
	if l.bindings+l.retained == 0 && l.idle != nil {
		close(l.idle)
		l.idle = nil
	}
}

// isBound reports work that has not stopped.
func (l *ActiveSession) isBound() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.bindings > 0
}

// whenIdle returns a channel that is closed when no work is bound and no lease retains the session.
func (l *ActiveSession) whenIdle() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.bindings+l.retained == 0 {
		c := make(chan struct{})
		close(c)
		return c
	}
	if l.idle == nil {
		l.idle = make(chan struct{})
	}
	return l.idle
}

func (l *ActiveSession) extend(t Trust) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return
	}
	l.trust = t
	l.signalChange()
}

func (l *ActiveSession) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return
	}
	l.ended = true
	close(l.done)
	l.signalChange()
}

func (l *ActiveSession) signalChange() {
	close(l.changed)
	l.changed = make(chan struct{})
}

// boundContext computes its validity when asked; see [ActiveSession.Bind].
type boundContext struct {
	context.Context
	session *ActiveSession
	margin  time.Duration
	cancel  context.CancelCauseFunc
}

func (b *boundContext) Err() error {
	if err := b.Context.Err(); err != nil {
		return err
	}
	if b.session.Remaining() <= b.margin {
		b.cancel(ErrLost)
	}
	return b.Context.Err()
}

// watch cancels in time for those who wait on Done instead of asking Err.
func (b *boundContext) watch() {
	for b.Err() == nil {
		until, changed := b.session.Until()
		c, stop := b.session.clock.Timer(until - b.margin - b.session.clock.Now())
		select {
		case <-b.Done():
		case <-changed:
		case <-c:
		}
		stop()
	}
}
