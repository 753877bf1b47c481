package lease

import (
	"context"
	"sync"
	"time"
)

// Live is a session of this process, as far as this process may believe in it.
// A [Keeper] keeps it. Validity is computed whenever it is asked for, from the
// clock; no timer has to fire for it to turn false.
type Live struct {
	id     string
	timing Timing
	clock  Clock

	mu      sync.Mutex
	trust   Trust
	over    bool          // the store's word, or ours: it will not be trusted again
	changed chan struct{} // closed and replaced whenever trust moves
	done    chan struct{} // closed when over
	users   int           // contexts bound to it
	idle    chan struct{} // closed when users falls to zero; nil until somebody waits
}

func newLive(id string, timing Timing, clock Clock, trust Trust) *Live {
	return &Live{id: id, timing: timing, clock: clock, trust: trust,
		changed: make(chan struct{}), done: make(chan struct{})}
}

// ID is the session's id.
func (l *Live) ID() string { return l.id }

// Timing is how the session is kept.
func (l *Live) Timing() Timing { return l.timing }

// Remaining is how long the session may still be believed in; 0 when not.
func (l *Live) Remaining() time.Duration {
	until, _ := l.Until()
	return max(0, until-l.clock.Now())
}

// Valid tells whether the session may be believed in now.
func (l *Live) Valid() bool { return l.Remaining() > 0 }

// Until is the reading of the [Clock] at which trust ends, 0 when the session is
// over, and a channel that is closed when that changes.
func (l *Live) Until() (until time.Duration, changed <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over {
		return 0, l.changed
	}
	return l.trust.Until(), l.changed
}

// Done is closed when the session is over for good: the store said so, or it
// was ended. Trust may end earlier.
func (l *Live) Done() <-chan struct{} { return l.done }

// Bind returns a context for work done under this session. It is cancelled with
// cause [ErrLost] when less than margin of trust is left: margin is the time
// that the work needs to stop. Its Err method asks the clock, so that work that
// was paused past the end finds out at its next look, before any timer fires.
// The session is not ended while bound work goes on: release must be called when
// the work has stopped.
func (l *Live) Bind(ctx context.Context, margin time.Duration) (bound context.Context, release func()) {
	inner, cancel := context.WithCancelCause(ctx)
	b := &boundContext{Context: inner, live: l, margin: margin, cancel: cancel}
	l.mu.Lock()
	l.users++
	l.mu.Unlock()
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		b.watch()
	}()
	return b, sync.OnceFunc(func() {
		cancel(nil)
		<-stopped
		l.mu.Lock()
		l.users--
		if l.users == 0 && l.idle != nil {
			close(l.idle)
			l.idle = nil
		}
		l.mu.Unlock()
	})
}

// whenIdle returns a channel that is closed when no work is bound.
func (l *Live) whenIdle() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.users == 0 {
		c := make(chan struct{})
		close(c)
		return c
	}
	if l.idle == nil {
		l.idle = make(chan struct{})
	}
	return l.idle
}

func (l *Live) renewed(t Trust) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over {
		return
	}
	l.trust = t
	l.signal()
}

func (l *Live) finish() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over {
		return
	}
	l.over = true
	close(l.done)
	l.signal()
}

func (l *Live) signal() {
	close(l.changed)
	l.changed = make(chan struct{})
}

// boundContext computes its validity when asked; see [Live.Bind].
type boundContext struct {
	context.Context
	live   *Live
	margin time.Duration
	cancel context.CancelCauseFunc
}

func (b *boundContext) Err() error {
	if err := b.Context.Err(); err != nil {
		return err
	}
	if b.live.Remaining() <= b.margin {
		b.cancel(ErrLost)
	}
	return b.Context.Err()
}

// watch cancels in time for those who wait on Done instead of asking Err.
func (b *boundContext) watch() {
	for b.Err() == nil {
		until, changed := b.live.Until()
		c, stop := b.live.clock.Timer(until - b.margin - b.live.clock.Now())
		select {
		case <-b.Done():
		case <-changed:
		case <-c:
		}
		stop()
	}
}
