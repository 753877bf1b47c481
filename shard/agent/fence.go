package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/shard"
)

// Why a fence is not opened.
var (
	errFenceClosing  = errors.New("shard: the fence is being opened or closed already")
	errTrustTooShort = errors.New("shard: trust in the session lasts too short to open the fence")
)

// fence opens and closes the node's fence. It closes it by itself at the end of trust, from a goroutine and a
// connection of its own, so that nothing else that hangs is in its way.
type fence struct {
	engine      shard.Engine
	clock       lease.Clock
	trust       *trust
	callTimeout time.Duration // deadline of one exchange
	margin      time.Duration // of trust, kept for closing
	lateGrace   time.Duration // for closing, when trust had ended before closing started
	log         *slog.Logger
	// onHung is called when the node does not answer until trust has ended, or for lateGrace if it had ended
	// before; onTrustEnd when trust ends with the node open. Neither may block.
	onHung, onTrustEnd func()

	wake    chan struct{}
	limiter logLimiter // of failures to close; run's own

	mu           sync.Mutex
	hungAt       time.Duration // when a node that does not answer counts as hung; 0: not known before the next try to close it
	requested    int64         // number of the latest request to close
	closed       int64         // number of the latest request that the node has acknowledged
	mayBeOpen    bool          // the node may accept writes: this agent opened it, took it over open, or found it open and silent
	closeBy      time.Duration // when to close it however long trust lasts; 0: never
	closedAt     time.Duration // when the node was known to be closed that had been open
	foundUntil   time.Duration // trust in a node that was found open and silent, without the lease; 0: there is none
	changedAt    time.Duration // when the node was last asked to change its fence, or answered
	opening      context.CancelFunc
	acknowledged chan struct{} // closed and replaced when closed rises
}

func newFence(cfg Config, t *trust, log *slog.Logger) *fence {
	return &fence{engine: cfg.Engines.At(cfg.Node), clock: cfg.Clock, trust: t, callTimeout: cfg.nodeTimeout(), margin: cfg.margin(), lateGrace: cfg.Timing.Timeout / 2, log: log,
		wake: make(chan struct{}, 1), acknowledged: make(chan struct{})}
}

// requestClose has the fence closed. It does not wait.
func (f *fence) requestClose() {
	f.mu.Lock()
	f.requested++
	if f.opening != nil {
		f.opening()
	}
	f.mu.Unlock()
	notify(f.wake)
}

// closeSilent has the fence of a node closed that was found open, and does not answer. The node counts as hung if it has not
// answered by the given time.
func (f *fence) closeSilent(until time.Duration) {
	f.mu.Lock()
	// Tries from before it was known to be silent, if it was to be closed already, do not count.
	f.mayBeOpen, f.foundUntil, f.hungAt = true, until, 0
	f.mu.Unlock()
	f.requestClose()
}

// closeAndWait closes the fence, and returns when the node has acknowledged it or ctx ends.
func (f *fence) closeAndWait(ctx context.Context) error {
	f.mu.Lock()
	mine := f.requested + 1
	f.mu.Unlock()
	f.requestClose()
	for {
		f.mu.Lock()
		done, acknowledged := f.closed >= mine, f.acknowledged
		f.mu.Unlock()
		if done {
			return nil
		}
		select {
		case <-acknowledged:
		case <-ctx.Done():
			return fmt.Errorf("closing the fence: %w", context.Cause(ctx))
		}
	}
}

// adoptOpen takes a node under guard that is open already.
func (f *fence) adoptOpen() error {
	if f.trust.remaining() <= f.margin {
		return errTrustTooShort
	}
	f.mu.Lock()
	f.mayBeOpen = true
	f.mu.Unlock()
	notify(f.wake)
	return nil
}

// open opens or arms the fence, if trust lasts beyond the time to close it again.
func (f *fence) open(ctx context.Context, as shard.Fence, n int) error {
	ctx, cancel := context.WithTimeout(ctx, f.callTimeout)
	defer cancel()
	f.mu.Lock()
	if f.trust.remaining() <= f.margin+f.callTimeout {
		f.mu.Unlock()
		return errTrustTooShort
	}
	if f.closed != f.requested || f.opening != nil {
		f.mu.Unlock()
		return errFenceClosing
	}
	mine := f.requested
	f.opening, f.mayBeOpen, f.closeBy, f.changedAt = cancel, true, 0, f.clock.Now()
	f.mu.Unlock()
	notify(f.wake)

	err := f.engine.SetFence(ctx, as, n)

	f.mu.Lock()
	f.opening, f.changedAt = nil, f.clock.Now()
	if f.requested != mine {
		// Closing was requested meanwhile. The node may have got both in either order: close once more.
		f.requested++
		err = errors.Join(errFenceClosing, err)
	}
	f.mu.Unlock()
	notify(f.wake)
	return err
}

// closeAt has the fence closed at the given time, however long trust lasts.
func (f *fence) closeAt(at time.Duration) {
	f.mu.Lock()
	f.closeBy = at
	f.mu.Unlock()
	notify(f.wake)
}

// isOpen reports whether the node may accept writes: see mayBeOpen.
func (f *fence) isOpen() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mayBeOpen
}

// closedSince is from when on the node is known to have accepted nothing, if its fence is closed.
func (f *fence) closedSince() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.closedAt
}

// isCurrent reports whether what the node said of its fence, when asked at the given time, still holds.
func (f *fence) isCurrent(asked time.Duration) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return asked > f.changedAt && f.closed == f.requested && f.opening == nil
}

// isClosing reports whether a request to close has not been acknowledged.
func (f *fence) isClosing() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.closed < f.requested
}

// run closes the fence when that is requested and when trust ends, until ctx ends.
func (f *fence) run(ctx context.Context) {
	for ctx.Err() == nil {
		until, moved, renewed := f.trust.until()
		f.mu.Lock()
		open, owed, by := f.mayBeOpen, f.closed < f.requested, f.closeBy
		if !owed {
			f.hungAt = 0
		}
		f.mu.Unlock()
		left := until - f.margin - f.clock.Now()
		if open && by != 0 && !owed && f.clock.Now() >= by {
			f.requestClose()
			continue
		}
		if open && by != 0 {
			left = min(left, by-f.clock.Now())
		}
		if open && left <= 0 && !owed {
			f.log.Warn("trust in the session ends; closing the fence")
			f.requestClose()
			f.onTrustEnd()
			continue
		}
		if owed {
			f.tryClose(ctx, until)
			continue
		}
		var timer <-chan time.Time
		stop := func() bool { return true }
		if open {
			timer, stop = f.clock.Timer(left)
		}
		select {
		case <-ctx.Done():
		case <-f.wake:
		case <-moved:
		case <-renewed:
		case <-timer:
		}
		stop()
	}
}

// tryClose tries once to close the fence.
func (f *fence) tryClose(ctx context.Context, until time.Duration) {
	f.mu.Lock()
	mine, open := f.requested, f.mayBeOpen
	until = max(until, f.foundUntil)
	each, left := f.callTimeout, until-f.clock.Now()
	if open && left > 0 {
		each = min(each, max(left, f.callTimeout/4))
	}
	if f.hungAt == 0 {
		f.hungAt = until
		if left <= 0 { // this agent or its whole host was paused: a healthy node answers soon
			f.hungAt = f.clock.Now() + f.lateGrace
		}
	}
	f.mu.Unlock()
	err := func() error {
		ctx, cancel := context.WithTimeout(ctx, each)
		defer cancel()
		return f.engine.SetFence(ctx, shard.Closed, 0)
	}()
	f.mu.Lock()
	f.changedAt = f.clock.Now()
	if err == nil {
		f.closed = max(f.closed, mine)
		if f.closed == f.requested && f.opening == nil {
			if f.mayBeOpen {
				f.closedAt = f.changedAt
			}
			f.mayBeOpen, f.closeBy, f.foundUntil = false, 0, 0
		}
		close(f.acknowledged)
		f.acknowledged = make(chan struct{})
		f.mu.Unlock()
		if f.limiter.end() {
			f.log.Info("fence is closed now")
		}
		return
	}
	open, hungAt := f.mayBeOpen, f.hungAt
	f.mu.Unlock()
	if f.limiter.shouldLog(kindOf(err), f.clock.Now()) {
		f.log.Warn("fence could not be closed; trying again", "err", err)
	}
	// A node that answers does not hang, even if it lets nobody in.
	answers := errors.Is(err, shard.ErrNodeAccess) || errors.Is(err, shard.ErrNodeUnhealthy) || errors.Is(err, shard.ErrNodeRefused)
	if until, _, _ := f.trust.until(); open && hungAt != 0 && !answers && f.clock.Now() >= max(until, hungAt) {
		f.onHung()
	}
	lease.Sleep(ctx, f.clock, f.callTimeout/4)
}

// nodeEnded: the node's process has ended, so that it accepts nothing.
func (f *fence) nodeEnded() {
	f.mu.Lock()
	if f.mayBeOpen {
		f.closedAt = f.clock.Now()
	}
	f.mayBeOpen, f.foundUntil = false, 0
	f.closed = f.requested // closeAndWait returns
	close(f.acknowledged)
	f.acknowledged = make(chan struct{})
	f.mu.Unlock()
}
