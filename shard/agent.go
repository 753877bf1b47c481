package shard

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/understudy-ha/understudy/lease"
)

// errStopped: the agent's loop has ended.
var errStopped = errors.New("shard: the agent has stopped")

// Agent stands beside one node. It reports it, holds the shard's lease for it while it
// is the primary, keeps its fence, carries commands out, and orchestrates a plan when it is
// the one that holds the failover lock.
//
// One goroutine owns the state. Whatever may take time runs in goroutines of its own,
// bounded by a deadline, and reports back.
type Agent struct {
	cfg      Config
	log      *slog.Logger
	id       string
	instance lease.Instance
	folder   *folder
	node     Engine
	gate     *gate
	trust    *trust

	ctx   context.Context // of everything that the agent starts
	posts chan func()
	woken chan struct{}
	over  chan struct{} // closed when the loop has ended
	wg    sync.WaitGroup
	s     state // the loop's

	sessionMu sync.Mutex
	session   *session
	leases    leases
	unwell    atomic.Value // string: why the node cannot write
	paused    atomic.Int64 // clock reading until which its writes may be paused
	round     atomic.Int64 // clock reading when the loop last went round

	statusMu sync.Mutex
	status   Status
	changed  chan struct{}
}

// New checks the configuration, and opens and locks the data folder. [Agent.Run] must be
// called, which closes it again.
func New(cfg Config) (*Agent, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	if cfg.Boot == "" {
		cfg.Boot = thisBoot()
	}
	folder, err := openFolder(cfg.Dir, cfg.Shard, cfg.Boot, cfg.Clock.Now())
	if err != nil {
		return nil, err
	}
	id := folder.memory().NodeID
	log := cfg.Logger.With("shard", cfg.Shard, "node", fmt.Sprintf("%.8s", id))
	a := &Agent{
		cfg: cfg, log: log, id: id, instance: lease.NewInstance(cfg.Announced, cfg.AgentAddress), folder: folder,
		node: cfg.Engines.At(cfg.Node), trust: newTrust(cfg.Clock),
		posts: make(chan func()), woken: make(chan struct{}, 1), over: make(chan struct{}), changed: make(chan struct{}),
	}
	a.leases.Store = cfg.Leases
	a.gate = newGate(cfg, a.trust, log)
	a.s = newState(folder.memory())
	return a, nil
}

// ID is the node's id.
func (a *Agent) ID() string { return a.id }

// Instance is this run of the agent.
func (a *Agent) Instance() lease.Instance { return a.instance }

// Run acts until ctx ends, and returns nil when everything that it started has stopped. A
// primary that the agent supervises is handed over first, if a replica fits, and then closed; one
// that it does not supervise is left open. With the cause [ErrAbandon] everything is left
// as it is. It is called once.
func (a *Agent) Run(ctx context.Context) error {
	defer a.folder.close()
	inner, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	a.ctx = inner
	a.gate.hung = func() { go a.post(a.hung) }
	a.gate.lost = func() { go a.post(a.lost) }
	a.wg.Go(func() { a.gate.run(inner) })
	a.wg.Go(func() { a.watch(inner) })
	a.wg.Go(func() { a.take(inner) })
	if a.cfg.Process != nil {
		a.wg.Go(func() { a.supervise(inner) })
	}
	a.loop(ctx)
	if errors.Is(context.Cause(ctx), ErrAbandon) {
		a.leases.crashed.Store(true)
	} else {
		a.leave(inner)
	}
	cancel()
	close(a.over)
	a.rise()
	a.wg.Wait()
	return errors.Join(a.node.Close(), a.gate.engine.Close())
}

// loop owns the state until ctx ends and the node is handed over.
func (a *Agent) loop(ctx context.Context) {
	stop := ctx.Done()
	for {
		now := a.cfg.Clock.Now()
		a.round.Store(int64(now))
		a.turn(now)
		if a.s.left(now) {
			return
		}
		timer, cancel := a.cfg.Clock.Timer(max(time.Millisecond, a.s.next-a.cfg.Clock.Now()))
		select {
		case <-stop:
			stop = nil
			if errors.Is(context.Cause(ctx), ErrAbandon) {
				cancel()
				return
			}
			a.handOver()
		case f := <-a.posts:
			f()
		case <-a.woken:
			a.s.look = true
		case <-timer:
		}
		cancel()
	}
}

// post has f run by the loop, unless that has ended.
func (a *Agent) post(f func()) {
	select {
	case a.posts <- f:
	case <-a.over:
	}
}

// ask has f run by the loop and waits for it. It is false when the loop has ended.
func (a *Agent) ask(f func()) bool {
	done := make(chan struct{})
	select {
	case a.posts <- func() { defer close(done); f() }:
	case <-a.over:
		return false
	}
	select {
	case <-done:
		return true
	case <-a.over:
		return false
	}
}

// job runs f in a goroutine, one of each name at a time; the loop runs what it returns.
func (a *Agent) job(name string, within time.Duration, f func(ctx context.Context) func()) bool {
	if a.s.busy[name] {
		return false
	}
	a.s.busy[name] = true
	a.wg.Go(func() {
		ctx, cancel := context.WithTimeout(a.ctx, within)
		done := f(ctx)
		cancel()
		a.post(func() {
			delete(a.s.busy, name)
			if done != nil {
				done()
			}
		})
	})
	return true
}

// watch wakes the loop when the store says that something happened.
func (a *Agent) watch(ctx context.Context) {
	const first, most = 50 * time.Millisecond, 5 * time.Second
	for pause := first; ; {
		began := a.cfg.Clock.Now()
		err := a.cfg.Registry.Watch(ctx, a.cfg.Shard, func(string) { poke(a.woken) })
		if ctx.Err() != nil || errors.Is(err, errors.ErrUnsupported) {
			return
		}
		a.log.Debug("watch broke; polling goes on", "err", err)
		if a.cfg.Clock.Now()-began > most {
			pause = first
		}
		if !lease.Sleep(ctx, a.cfg.Clock, pause/2+a.cfg.Jitter(pause)) {
			return
		}
		pause = min(2*pause, most)
	}
}
