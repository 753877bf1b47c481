package sim

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"sync/atomic"
	"time"

	"github.com/understudy-ha/understudy/elect"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/lease/leasetest"
)

const roleName = "role"

// node is one run of one instance. A node that was killed or has stopped is
// followed by another of the same name.
type node struct {
	process
	name  string
	world *world
	clock *clock
	link  *leasetest.Faulty
	view  leasetest.Target // the store as the node sees it

	dead   atomic.Bool
	office atomic.Pointer[office]
	cancel context.CancelFunc // stops the node
	leave  context.CancelFunc // stops its campaign alone
	done   chan struct{}
}

func (w *world) newNode(name string, stream uint64) *node {
	d := newDice(w.setup.Seed, stream)
	g := &gate{dice: d}
	worst := w.setup.RateError * w.setup.Timing.RateTolerance()
	rate := 1 + worst*[]float64{-1, 1, 0, 0.5}[d.n(4)]
	n := &node{
		process: process{
			dice: d, gate: g, longest: 4 * w.setup.Timing.Timeout,
			freezes: func() bool { return w.faulty() && w.setup.Fenced },
		},
		name: name, world: w, done: make(chan struct{}),
		clock: &clock{gate: g, begin: time.Now(), rate: rate, offset: d.upTo(1000 * time.Hour), wall: d.upTo(time.Hour)},
		link:  leasetest.NewFaulty(w.server, w.setup.Seed^stream),
	}
	n.link.Change(func(l *leasetest.Network) { *l = w.network() })
	n.view = frozen{n.link, &n.process, w.setup.Timing}
	if w.setup.Twin.Node != nil {
		n.view = w.setup.Twin.Node(n)
	}
	return n
}

// start runs the node until it is stopped or killed.
func (n *node) start() {
	timing := n.world.setup.Timing
	if twin := n.world.setup.Twin.Timing; twin != nil {
		timing = twin(timing)
	}
	keeper, err := lease.NewKeeper(lease.KeeperConfig{
		Store: n.view, Roster: n.view, Instance: lease.NewInstance(n.name, n.name+":80"), Timing: timing,
		Logger: slog.New(reports{n}), Clock: n.clock, Jitter: func(d time.Duration) time.Duration { return n.dice.upTo(d - 1) },
	})
	if err != nil {
		panic(err) // the set-up is ours
	}
	var ctx context.Context
	ctx, n.cancel = context.WithCancel(context.Background())
	var campaign context.Context
	campaign, n.leave = context.WithCancel(ctx)
	kept := make(chan struct{})
	go func() {
		defer close(kept)
		n.mustStop(ctx, "the keeper", keeper.Run(ctx))
	}()
	go func() {
		defer close(n.done)
		cfg := elect.Config{Keeper: keeper, Role: roleName, StopGrace: n.world.setup.Grace, Logger: slog.New(reports{n})}
		n.mustStop(campaign, "the campaign", elect.Run(campaign, cfg, n.work))
		<-kept
	}()
}

func (n *node) mustStop(ctx context.Context, what string, err error) {
	if ctx.Err() == nil {
		n.world.judge.mu.Lock()
		n.world.judge.breach("%s of %s returned %v", what, n.name, err)
		n.world.judge.mu.Unlock()
	}
}

// reports takes what a node logs as an error to the judge.
type reports struct{ *node }

func (r reports) Enabled(_ context.Context, l slog.Level) bool {
	return l >= slog.LevelError && !r.dead.Load() && !r.world.setup.Twin.Mute
}
func (r reports) Handle(_ context.Context, line slog.Record) error {
	r.world.judge.report(r.node, line.Message)
	return nil
}
func (r reports) WithAttrs([]slog.Attr) slog.Handler { return r }
func (r reports) WithGroup(string) slog.Handler      { return r }

// kill ends the node without a word to anybody. Goroutines cannot be ended from
// outside, so they are cut off from the world and left to run out.
func (n *node) kill() {
	n.dead.Store(true)
	// What it has sent may still arrive.
	n.link.Change(func(l *leasetest.Network) { *l = leasetest.Network{Lose: 1} })
	if o := n.office.Load(); o != nil {
		n.world.judge.leave(o)
	}
	n.gate.thaw()
	n.cancel()
}

// work is what a primary does: effects, at random intervals, for as long as it
// may. Told to stop, it takes nearly all of its grace.
func (n *node) work(ctx context.Context, term elect.Term) error {
	if n.world.setup.Twin.Derived {
		var cancel context.CancelFunc
		ctx, cancel = context.WithCancel(ctx)
		defer cancel()
	}
	j, grace := n.world.judge, n.world.setup.Grace
	o := &office{node: n.name, session: term.Session.ID(), term: term.Number}
	j.enter(o)
	n.office.Store(o)
	defer func() {
		j.leave(o)
		n.office.Store(nil)
		if n.world.setup.Twin.Late {
			n.sleep(context.Background(), n.world.setup.Timing.Timeout)
		}
	}()
	if state, err := term.ReadState(ctx); err == nil {
		j.found(o, state)
	}
	for i := 0; ctx.Err() == nil && !n.dead.Load(); i++ {
		j.alive(o)
		n.stumble() // between looking and acting, of all places
		if n.dead.Load() {
			return ctx.Err()
		}
		j.act(o)
		if n.dice.hit(0.2) {
			_ = term.WriteState(ctx, fmt.Appendf(nil, "%d of %d", i, o.term)) // what it may not write, the judge knows
		}
		n.sleep(ctx, n.dice.upTo(n.world.setup.Timing.Interval/2))
		n.gate.wait()
	}
	j.stopping(o)
	if n.world.setup.Twin.Deaf {
		n.sleep(context.Background(), 2*n.world.setup.Timing.Timeout)
	}
	for range 5 {
		if n.dead.Load() {
			break
		}
		j.act(o)
		n.sleep(context.Background(), time.Duration(math.Floor(float64(grace)*0.198)))
	}
	return ctx.Err()
}

func (n *node) sleep(ctx context.Context, d time.Duration) {
	fired, stop := n.clock.Timer(d)
	defer stop()
	select {
	case <-ctx.Done():
	case <-fired:
	}
}
