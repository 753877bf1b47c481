package shard

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/understudy-ha/understudy/lease"
)

// errOvertaken: the fence was to be closed while it was being opened.
var errOvertaken = errors.New("shard: the fence is to be closed")

// gate opens and closes the node's fence. It closes it by itself at the end of trust,
// from a goroutine and a connection of its own, so that nothing else which hangs is in
// its way.
type gate struct {
	engine Engine
	clock  lease.Clock
	trust  *trust
	each   time.Duration // deadline of one exchange
	margin time.Duration // of trust, kept for closing
	late   time.Duration // for closing, when trust was over before that began
	log    *slog.Logger
	// hung is called when the node did not answer until trust was over, or for late if it was over before;
	// lost when trust ended.
	// Neither may block.
	hung, lost func()

	kick  chan struct{}
	told  said          // of closing; run's own
	hangs time.Duration // when a node that has not answered hangs; 0: it was not asked to close. run's own

	mu      sync.Mutex
	demand  int64         // raised whenever the fence is to be closed
	done    int64         // the demand that the node has acknowledged
	open    bool          // the node may accept writes, by our doing
	by      time.Duration // when to close it whatever trust there is; 0: never
	moved   time.Duration // when anything was last asked of the fence, or answered
	opening context.CancelFunc
	settled chan struct{} // closed and replaced when done rises
}

func newGate(cfg Config, t *trust, log *slog.Logger) *gate {
	return &gate{engine: cfg.Engines.At(cfg.Node), clock: cfg.Clock, trust: t, each: cfg.exchange(), margin: cfg.margin(), late: cfg.Timing.Timeout / 2, log: log,
		kick: make(chan struct{}, 1), settled: make(chan struct{})}
}

// close wants the fence closed. It does not wait.
func (g *gate) close() {
	g.mu.Lock()
	g.demand++
	if g.opening != nil {
		g.opening()
	}
	g.mu.Unlock()
	poke(g.kick)
}

// shut closes the fence, and returns when the node has acknowledged it or ctx ends.
func (g *gate) shut(ctx context.Context) error {
	g.mu.Lock()
	mine := g.demand + 1
	g.mu.Unlock()
	g.close()
	for {
		g.mu.Lock()
		done, settled := g.done >= mine, g.settled
		g.mu.Unlock()
		if done {
			return nil
		}
		select {
		case <-settled:
		case <-ctx.Done():
			return fmt.Errorf("closing the fence: %w", context.Cause(ctx))
		}
	}
}

// adopt takes a node under guard that is open already.
func (g *gate) adopt() error {
	if g.trust.remaining() <= g.margin {
		return errOvertaken
	}
	g.mu.Lock()
	g.open = true
	g.mu.Unlock()
	poke(g.kick)
	return nil
}

// set opens or arms the fence, if trust lasts beyond the time to close it again.
func (g *gate) set(ctx context.Context, f Fence, n int) error {
	ctx, cancel := context.WithTimeout(ctx, g.each)
	defer cancel()
	g.mu.Lock()
	if g.trust.remaining() <= g.margin+g.each || g.done != g.demand || g.opening != nil {
		g.mu.Unlock()
		return errOvertaken
	}
	mine := g.demand
	g.opening, g.open, g.by, g.moved = cancel, true, 0, g.clock.Now()
	g.mu.Unlock()
	poke(g.kick)

	err := g.engine.SetFence(ctx, f, n)

	g.mu.Lock()
	g.opening, g.moved = nil, g.clock.Now()
	if g.demand != mine {
		// The node may have got both in either order.
		g.demand++
		err = errors.Join(errOvertaken, err)
	}
	g.mu.Unlock()
	poke(g.kick)
	return err
}

// closeBy has the fence closed at the given time, whatever trust there is then.
func (g *gate) closeBy(at time.Duration) {
	g.mu.Lock()
	g.by = at
	g.mu.Unlock()
	poke(g.kick)
}

// isOpen tells that the node may be accepting writes by our doing.
func (g *gate) isOpen() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.open
}

// seen tells whether what the node said of its fence, when it was asked at the given time, is still so.
func (g *gate) seen(asked time.Duration) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return asked > g.moved && g.done == g.demand && g.opening == nil
}

// closing tells that a demand has not been acknowledged.
func (g *gate) closing() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.done < g.demand
}

// run closes the fence whenever that is wanted, until ctx ends.
func (g *gate) run(ctx context.Context) {
	for ctx.Err() == nil {
		until, moved, renewed := g.trust.until()
		g.mu.Lock()
		open, owed, by := g.open, g.done < g.demand, g.by
		g.mu.Unlock()
		left := until - g.margin - g.clock.Now()
		if open && by != 0 && !owed && g.clock.Now() >= by {
			g.close()
			continue
		}
		if open && by != 0 {
			left = min(left, by-g.clock.Now())
		}
		if open && left <= 0 && !owed {
			g.log.Warn("trust in the session ends; closing the fence")
			g.close()
			g.lost()
			continue
		}
		if owed {
			g.closeOnce(ctx, until)
			continue
		}
		g.hangs = 0
		var timer <-chan time.Time
		stop := func() bool { return true }
		if open {
			timer, stop = g.clock.Timer(left)
		}
		select {
		case <-ctx.Done():
		case <-g.kick:
		case <-moved:
		case <-renewed:
		case <-timer:
		}
		stop()
	}
}

// closeOnce tries once to close the fence.
func (g *gate) closeOnce(ctx context.Context, until time.Duration) {
	g.mu.Lock()
	mine, open := g.demand, g.open
	g.mu.Unlock()
	each, left := g.each, until-g.clock.Now()
	if open && left > 0 {
		each = min(each, max(left, g.each/4))
	}
	if g.hangs == 0 {
		g.hangs = until
		if left <= 0 { // this agent stood still, or the whole host: a node that is well answers soon
			g.hangs = g.clock.Now() + g.late
		}
	}
	err := func() error {
		ctx, cancel := context.WithTimeout(ctx, each)
		defer cancel()
		return g.engine.SetFence(ctx, Closed, 0)
	}()
	g.mu.Lock()
	g.moved = g.clock.Now()
	if err == nil {
		g.done = max(g.done, mine)
		if g.done == g.demand && g.opening == nil {
			g.open, g.by = false, 0
		}
		close(g.settled)
		g.settled = make(chan struct{})
		g.mu.Unlock()
		if g.told.over() {
			g.log.Info("the fence is closed after all")
		}
		return
	}
	open = g.open
	g.mu.Unlock()
	if g.told.due(kindOf(err), g.clock.Now()) {
		g.log.Warn("the fence could not be closed; trying again", "err", err)
	}
	// One that answers, be it that it lets nobody in, does not hang.
	answers := errors.Is(err, ErrNodeAccess) || errors.Is(err, ErrNodeUnwell) || errors.Is(err, ErrNodeRefused)
	if until, _, _ := g.trust.until(); open && !answers && g.clock.Now() >= max(until, g.hangs) {
		g.hung()
	}
	lease.Sleep(ctx, g.clock, g.each/4)
}

// ended tells the gate that the node's process is over: it accepts nothing.
func (g *gate) ended() {
	g.mu.Lock()
	g.open = false
	g.demand = g.done
	close(g.settled)
	g.settled = make(chan struct{})
	g.mu.Unlock()
}

// trust is until when the node may be open, on the agent's clock: as long as its session
// is believed in, or all others promise not to replace it.
type trust struct {
	clock lease.Clock

	mu       sync.Mutex
	live     *lease.Live
	promised time.Duration
	moved    chan struct{}
}

func newTrust(clock lease.Clock) *trust { return &trust{clock: clock, moved: make(chan struct{})} }

// until is the end of trust, with channels that are closed when it moves.
func (t *trust) until() (until time.Duration, moved, renewed <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	until = t.promised
	if t.live != nil {
		end, changed := t.live.Until()
		until, renewed = max(until, end), changed
	}
	return until, t.moved, renewed
}

func (t *trust) remaining() time.Duration {
	until, _, _ := t.until()
	return max(0, until-t.clock.Now())
}

// set changes what trust rests on. A nil session is none.
func (t *trust) set(edit func(t *trust)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	edit(t)
	close(t.moved)
	t.moved = make(chan struct{})
}

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
