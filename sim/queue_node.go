package sim

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/lease/leasetest"
)

// queueNode is one run of one instance that delivers the queue.
type queueNode struct {
	process
	name  string
	world *queueWorld
	clock *clock
	link  *leasetest.Faulty // to the store
	wire  *leasetest.Faulty // to the target

	dead  atomic.Bool
	leave context.CancelFunc // the dispatcher's
	end   context.CancelFunc // the keeper's
	done  chan struct{}
}

func (w *queueWorld) newNode(name string, stream uint64) *queueNode {
	d := newDice(w.setup.Seed, stream)
	g := &gate{dice: d}
	// Windows are seconds and minutes, and the deadlines within them have no
	// spare for clocks that are worse than real ones.
	rate := 1 + 0.0005*[]float64{-1, 1, 0, 0.5}[d.n(4)]
	n := &queueNode{
		process: process{
			dice: d, gate: g, longest: 2 * w.setup.Dispatch.Windows.Second,
			freezes: func() bool { return w.faulty() && w.setup.Freezes },
		},
		name: name, world: w, done: make(chan struct{}),
		clock: &clock{gate: g, begin: time.Now(), rate: rate, offset: d.upTo(1000 * time.Hour), wall: d.upTo(time.Hour)},
		link:  leasetest.NewFaulty(w.server, w.setup.Seed^stream),
		wire:  leasetest.NewFaulty(nil, w.setup.Seed^stream<<32),
	}
	n.heal()
	return n
}

// heal gives the node the networks that the world has now.
func (n *queueNode) heal() {
	store, wire := n.world.networks()
	n.link.Change(func(l *leasetest.Network) { *l = store })
	n.wire.Change(func(l *leasetest.Network) { *l = wire })
}

// start runs the node until it is stopped or killed.
func (n *queueNode) start() {
	cfg := n.world.setup.Dispatch
	keeper, err := lease.NewKeeper(lease.KeeperConfig{
		Store: frozen{n.link, &n.process, cfg.Windows.Timing()}, Instance: lease.NewInstance(n.name, ""),
		Timing: cfg.Windows.Timing(), Clock: n.clock,
		Jitter: func(d time.Duration) time.Duration { return n.dice.upTo(d - 1) },
	})
	if err != nil {
		panic(err) // the set-up is ours
	}
	view := queueView{node: n}
	cfg.Keeper, cfg.Claims, cfg.Queue, cfg.Target = keeper, view, view, remote{n}
	cfg.Jitter = func() float64 { return float64(n.dice.n(1000)) / 1000 }
	if twin := n.world.setup.Twin.Target; twin != nil {
		cfg.Target = twin(cfg.Target)
	}
	d, err := dispatch.New(cfg)
	if err != nil {
		panic(err)
	}
	var deliver, keep context.Context
	deliver, n.leave = context.WithCancel(context.Background())
	keep, n.end = context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { n.mustStop(keep, "the keeper", keeper.Run(keep)) })
	running.Go(func() {
		defer n.end()
		n.mustStop(deliver, "the dispatcher", d.Run(deliver))
	})
	go func() {
		defer close(n.done)
		running.Wait()
	}()
}

func (n *queueNode) mustStop(ctx context.Context, what string, err error) {
	if ctx.Err() == nil || err != nil {
		n.world.judge.says("%s of %s returned %v", what, n.name, err)
	}
}

// stop ends the node in order.
func (n *queueNode) stop() { n.leave() }

// kill ends the node without a word to anybody; what it has sent may still
// arrive. See node.kill.
func (n *queueNode) kill() {
	n.dead.Store(true)
	n.world.judge.dies(n)
	for _, l := range []*leasetest.Faulty{n.link, n.wire} {
		l.Change(func(l *leasetest.Network) { *l = leasetest.Network{Lose: 1} })
	}
	n.gate.thaw()
	n.leave()
	n.end()
}

// remote is the target as a node has it: behind a wire, and declared as what it is.
type remote struct{ node *queueNode }

func (r remote) Name() string                  { return "sink" }
func (r remote) Semantics() dispatch.Semantics { return r.node.world.setup.Target }

func (r remote) Submit(ctx context.Context, a dispatch.Assignment) dispatch.Answer {
	n := r.node
	n.stumble() // between the last look at the store and the sending
	if n.dead.Load() {
		return dispatch.Answer{Outcome: dispatch.Uncertain}
	}
	c := n.world.judge.sends(n, a)
	defer n.world.judge.sent(c)
	// A connection that breaks tells the sender at once; its request continues.
	ctx, hangUp := context.WithCancel(ctx)
	defer hangUp()
	if n.world.faulty() && n.dice.hit(n.world.setup.Breaks) {
		defer time.AfterFunc(n.dice.upTo(n.world.setup.Dispatch.SubmitTimeout), hangUp).Stop()
	}
	deadline, _ := ctx.Deadline()
	var over atomic.Bool
	defer over.Store(true)
	answer, err := through(&n.process, func() (dispatch.Answer, error) {
		return leasetest.Send(ctx, n.wire, func(context.Context) (dispatch.Answer, error) {
			n.world.sink.works()
			if !r.Semantics().Deduplicates && time.Now().After(deadline) {
				return dispatch.Answer{}, lease.ErrUnknown // see QueueSetup.networks
			}
			// What a frozen process has started to write waits for it. One that had heard before that its connection is
			// broken writes nothing more.
			told, arrives := over.Load(), time.Now()
			if n.gate.wait(); told && time.Now().After(arrives) {
				return dispatch.Answer{}, lease.ErrUnknown
			}
			return n.world.sink.submit(n, a)
		})
	})
	switch {
	case errors.Is(err, lease.ErrUnavailable):
		return dispatch.Answer{Outcome: dispatch.Busy, Detail: err.Error()}
	case err != nil:
		return dispatch.Answer{Outcome: dispatch.Uncertain, Detail: err.Error()}
	}
	return answer
}

func (r remote) Status(ctx context.Context, as []dispatch.Assignment) []dispatch.Answer {
	n := r.node
	answers, err := through(&n.process, func() ([]dispatch.Answer, error) {
		return leasetest.Send(ctx, n.wire, func(context.Context) ([]dispatch.Answer, error) { return n.world.sink.ask(as), nil })
	})
	if err != nil {
		return nil // silent about each
	}
	return answers
}
