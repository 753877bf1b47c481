package sim

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/understudy-ha/understudy/job"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/lease/leasetest"
)

// jobNode is one run of one instance that offers the job.
type jobNode struct {
	process
	name  string
	world *jobWorld
	clock *clock
	link  *leasetest.Faulty

	dead    atomic.Bool
	working atomic.Int64
	leave   context.CancelFunc // what is offered
	end     context.CancelFunc // the keeper's
	done    chan struct{}
}

func (w *jobWorld) newNode(name string, stream uint64) *jobNode {
	d := newDice(w.setup.Seed, stream)
	g := &gate{dice: d}
	rate := 1 + 0.9*w.setup.Timing.RateTolerance()*[]float64{-1, 1, 0, 0.5}[d.n(4)]
	n := &jobNode{
		process: process{
			dice: d, gate: g, longest: 4 * w.setup.Timing.Timeout,
			freezes: func() bool { return !w.calm.Load() && w.setup.Freezes },
		},
		name: name, world: w, done: make(chan struct{}),
		clock: &clock{gate: g, begin: time.Now(), rate: rate, offset: d.upTo(1000 * time.Hour), wall: d.upTo(time.Hour) - 30*time.Minute},
		link:  leasetest.NewFaulty(w.server, w.setup.Seed^stream),
	}
	n.link.Change(func(l *leasetest.Network) { *l = w.network() })
	return n
}

func (n *jobNode) start() {
	s := n.world.setup
	view := frozen{n.link, &n.process, s.Timing}
	keeper, err := lease.NewKeeper(lease.KeeperConfig{
		Store: view, Roster: view, Instance: lease.NewInstance(n.name, ""), Timing: s.Timing, Clock: n.clock,
		Jitter: func(d time.Duration) time.Duration { return n.dice.upTo(d - 1) },
	})
	if err != nil {
		panic(err) // the set-up is ours
	}
	cfg := job.Config{
		Keeper: keeper, Store: jobView{node: n}, StopGrace: s.Grace,
		Offers: []job.Offer{{Name: jobName, Definition: s.Def, Work: n.work}},
	}
	var offer, keep context.Context
	offer, n.leave = context.WithCancel(context.Background())
	keep, n.end = context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { n.mustStop(keep, "the keeper", keeper.Run(keep)) })
	running.Go(func() {
		defer n.end()
		n.mustStop(offer, "what is offered", job.Serve(offer, cfg))
	})
	go func() {
		defer close(n.done)
		running.Wait()
	}()
}

func (n *jobNode) mustStop(ctx context.Context, what string, err error) {
	if ctx.Err() == nil {
		n.world.judge.says("%s of %s returned %v", what, n.name, err)
	}
}

// kill ends the node without a word to anybody: see node.kill.
func (n *jobNode) kill() {
	n.dead.Store(true)
	n.world.judge.dies(n)
	n.link.Change(func(l *leasetest.Network) { *l = leasetest.Network{Lose: 1} })
	n.gate.thaw()
	n.leave()
	n.end()
}

// work is a run: it takes some time, and when it is told to stop nearly all of its grace.
func (n *jobNode) work(ctx context.Context, t job.Task) error {
	if n.dead.Load() {
		return ctx.Err()
	}
	n.working.Add(1)
	defer n.working.Add(-1)
	n.world.judge.begins(n, t)
	fails := n.dice.hit(n.world.setup.Fails)
	if lease.Sleep(ctx, n.clock, n.dice.upTo(n.world.setup.Takes)) {
		n.gate.wait()
		if n.world.judge.ends(n, t, !fails); fails {
			return errors.New("it failed")
		}
		return nil
	}
	lease.Sleep(context.Background(), n.clock, time.Duration(float64(n.world.setup.Grace)*0.9))
	n.world.judge.ends(n, t, false)
	return ctx.Err()
}

// jobView is an instance's view of the jobs. A change is decided in the instance, from what it read, and written if the
// job is still the same: of all stores' ways, this leaves most room for faults.
type jobView struct {
	job.Store
	node *jobNode
}

var errChanged = errors.New("the job has changed")

type jobAt struct {
	job job.Job
	now time.Time
}

func (v jobView) send(ctx context.Context, op func(context.Context) (jobAt, error)) (jobAt, error) {
	return through(&v.node.process, func() (jobAt, error) {
		return leasetest.Send(ctx, v.node.link, func(ctx context.Context) (jobAt, error) {
			v.node.world.server.gate.wait()
			return op(ctx)
		})
	})
}

func (v jobView) read(ctx context.Context) (jobAt, error) {
	return v.send(ctx, func(ctx context.Context) (at jobAt, err error) {
		at.job, at.now, err = v.node.world.store.Jobs().Get(ctx, jobName)
		return at, err
	})
}

func (v jobView) Get(ctx context.Context, _ string) (job.Job, time.Time, error) {
	at, err := v.read(ctx)
	return at.job, at.now, err
}

func (v jobView) Change(ctx context.Context, name string, decide job.Decision) (job.Job, error) {
	w := v.node.world
	if twin := w.setup.Twin.Decide; twin != nil {
		decide = twin(v.node, decide)
	}
	for {
		was, err := v.read(ctx)
		if errors.Is(err, job.ErrNotFound) {
			was, err = jobAt{job.Job{Name: name}, w.now()}, nil
		}
		if err != nil {
			return job.Job{}, err
		}
		c, err := decide(was.job, was.now)
		if err != nil || c.Unchanged {
			return was.job, err
		}
		write := func(ctx context.Context) (at jobAt, err error) {
			at.job, err = w.judge.Change(ctx, name, func(j job.Job, _ time.Time) (job.Change, error) {
				if j.Version != was.job.Version {
					return job.Change{}, errChanged
				}
				return c, nil
			})
			return at, err
		}
		if twin := w.setup.Twin.Write; twin != nil {
			if j, done := twin(v.node, was.job, c, write); done {
				return j, nil
			}
		}
		got, err := v.send(ctx, write)
		if !errors.Is(err, errChanged) {
			return got.job, err
		}
	}
}

func (v jobView) PutOutput(context.Context, job.RunKey, int64, job.Output) error { return nil }
