package dispatch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/understudy-ha/understudy/claim"
	"github.com/understudy-ha/understudy/lease"
)

// Dispatcher delivers one queue on this instance. Any number of instances may do
// so for the same queue.
type Dispatcher struct {
	cfg   Config
	clock lease.Clock
	log   *slog.Logger
	m     *machine
	live  *lease.Live // the session that the machine works under

	jobs   chan job
	events chan func(now time.Duration)

	published time.Duration

	mu    sync.Mutex
	stats Stats
}

// New checks the configuration; see [Config.Validate].
func New(cfg Config) (*Dispatcher, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("dispatcher of queue %q: %w", cfg.Name, err)
	}
	cfg = cfg.withDefaults()
	d := &Dispatcher{
		cfg: cfg, clock: cfg.Keeper.Clock(), m: newMachine(cfg),
		log:  cfg.Logger.With("queue", cfg.Name, "instance", cfg.Keeper.Instance().Label()),
		jobs: make(chan job, 2*cfg.Concurrency+1),
		// Room for all that can be under way at once, so that nobody who reports waits
		// for a runner that has left.
		events: make(chan func(time.Duration), 4*cfg.Concurrency+8),
	}
	d.publish()
	return d, nil
}

// Stats returns the counts so far.
func (d *Dispatcher) Stats() Stats {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.stats
}

// WorstTakeover is how long the keys of an instance that died wait at most: those
// with nothing under way, and those with a submission under way.
func (d *Dispatcher) WorstTakeover() (idle, submitting time.Duration) {
	idle, submitting = d.cfg.Windows.WorstTakeover()
	if !d.cfg.Target.Semantics().Alone() {
		submitting = idle
	}
	return idle, submitting
}

// Run, which may be called once, delivers until ctx ends. Then it gives back at once every key that has no
// submission under way, waits up to StopGrace for those that have, gives the rest
// back as unknown, and returns nil when all it started has stopped. The
// keeper must run, and go on running until Run has returned.
func (d *Dispatcher) Run(ctx context.Context) error {
	var started sync.WaitGroup
	work, cancelWork := context.WithCancel(context.WithoutCancel(ctx))
	asking, cancelAsking := context.WithCancel(work)
	defer started.Wait()
	defer cancelWork()
	defer cancelAsking()
	for range d.cfg.Concurrency {
		started.Go(func() { d.sender(work) })
	}
	if d.cfg.KeepFor > 0 {
		started.Go(func() { d.prune(ctx) })
	}
	started.Go(func() { d.sessions(ctx) })
	woken := d.cfg.Keeper.Hub().Subscribe(claim.Wake(Space(d.cfg.Name)))
	defer woken.Close()

	r := run{d: d, work: work, asking: asking, started: &started}
	stopping, hard := ctx.Done(), (<-chan time.Time)(nil)
	var giveUp <-chan time.Time
	for !d.m.done() {
		now := d.clock.Now()
		r.carryOut(d.m.step(now))
		if now >= d.published+publishEvery {
			d.published = now
			d.publish()
		}
		timer, stopTimer := d.clock.Timer(d.m.next(now) - now)
		select {
		case f := <-d.events:
			d.drain(f)
		case c := <-woken.C():
			if c.Successor == "" || d.live != nil && c.Successor == d.live.ID() {
				d.m.wake()
			}
		case <-timer:
		case <-stopping:
			stopping = nil
			d.m.stop()
			cancelAsking()
			var stop func() bool
			hard, stop = d.clock.Timer(d.cfg.StopGrace)
			defer stop()
		case <-hard:
			hard = nil
			cancelWork()
			var stop func() bool
			giveUp, stop = d.clock.Timer(stopCalls)
			defer stop()
		case <-giveUp:
			stopTimer()
			d.log.Warn("stopped without having given everything back: the store does not answer; the keys are free when the session lapses")
			d.publish()
			return nil
		}
		stopTimer()
	}
	d.publish()
	return nil
}

// publishEvery is how stale Stats may be.
const publishEvery = 50 * time.Millisecond

// stopCalls is how long a dispatcher that stops goes on trying to tell the store.
const stopCalls = 5 * time.Second

// drain handles an event and those that have come meanwhile.
func (d *Dispatcher) drain(f func(time.Duration)) {
	for {
		f(d.clock.Now())
		select {
		case f = <-d.events:
		default:
			return
		}
	}
}

// sessions tells the machine which session it works under.
func (d *Dispatcher) sessions(ctx context.Context) {
	for {
		live, err := d.cfg.Keeper.Session(ctx)
		if err != nil {
			return
		}
		if !d.report(ctx, func(time.Duration) {
			d.live = live
			d.m.live(live.ID())
		}) {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-live.Done():
		}
		d.report(ctx, func(time.Duration) {
			d.log.Warn("the session is over; its keys are left to whoever takes them")
			d.live = nil
			d.m.live("")
		})
	}
}

func (d *Dispatcher) report(ctx context.Context, f func(time.Duration)) bool {
	select {
	case d.events <- f:
		return true
	case <-ctx.Done():
		return false
	}
}

// publish shows the machine's counts to other goroutines, not for every event.
func (d *Dispatcher) publish() {
	s := d.m.snapshot()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stats = s
}

// prune deletes old finished batches in small steps.
func (d *Dispatcher) prune(ctx context.Context) {
	const step, most = 500, 30 * time.Second
	pause := most
	for {
		timer, stop := d.clock.Timer(pause/2 + time.Duration(d.cfg.Jitter()*float64(pause)))
		select {
		case <-ctx.Done():
			stop()
			return
		case <-timer:
		}
		stop()
		call, cancel := context.WithTimeout(ctx, callTimeout)
		deleted, through, err := d.cfg.Queue.Prune(call, d.cfg.Name, d.cfg.KeepFor, step)
		cancel()
		switch {
		case err != nil && ctx.Err() == nil:
			d.log.Warn("finished batches could not be pruned; trying again", "err", err)
			pause = most
		case through:
			pause = most
		default:
			pause = 200 * time.Millisecond
		}
		if deleted > 0 {
			d.log.Debug("pruned", "batches", deleted)
		}
	}
}

// callTimeout is the deadline of a request to the store.
const callTimeout = 10 * time.Second

// run is the life of one call of Run.
type run struct {
	d            *Dispatcher
	work, asking context.Context
	started      *sync.WaitGroup
}

func (r run) carryOut(effects []effect) {
	d := r.d
	for _, e := range effects {
		switch {
		case e.send != nil:
			d.jobs <- job{slot: e.send, a: e.send.a}
		case e.ask != nil:
			as := make([]Assignment, len(e.ask))
			for i, s := range e.ask {
				as[i] = s.a
			}
			r.started.Go(func() { d.inquire(r.asking, e.ask, as) })
		case e.join != nil:
			r.call(func(ctx context.Context) func(time.Duration) {
				share, err := d.cfg.Claims.Join(ctx, *e.join)
				return func(now time.Duration) { d.m.joined(now, share, d.told("joining", err)) }
			})
		case e.take != nil:
			r.call(func(ctx context.Context) func(time.Duration) {
				claims, err := d.cfg.Claims.Take(ctx, *e.take)
				return func(now time.Duration) { d.m.taken(now, *e.take, claims, d.told("taking keys", err)) }
			})
		case e.give != nil:
			r.call(func(ctx context.Context) func(time.Duration) {
				err := d.cfg.Claims.Release(ctx, Space(d.cfg.Name), e.give.session, e.give.claims)
				return func(now time.Duration) { d.m.gave(now, *e.give, d.told("giving keys back", err)) }
			})
		case e.find != nil:
			r.call(func(ctx context.Context) func(time.Duration) {
				rows, err := d.cfg.Claims.List(ctx, *e.find)
				return func(now time.Duration) { d.m.listed(now, *e.find, rows, d.told("listing own keys", err)) }
			})
		case e.turn != nil:
			r.call(func(ctx context.Context) func(time.Duration) {
				out, err := d.cfg.Queue.Turn(ctx, e.turn.turn)
				return func(now time.Duration) {
					d.m.turned(now, e.turn, out, d.told("a turn with the store", err), errors.Is(err, lease.ErrUnknown))
				}
			})
		}
	}
}

// call makes a request to the store; what it returns is done by the runner.
func (r run) call(f func(context.Context) func(time.Duration)) {
	r.started.Go(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(r.work), callTimeout)
		defer cancel()
		r.d.events <- f(ctx)
	})
}

// told logs an error once, where it is handled by trying again.
func (d *Dispatcher) told(doing string, err error) error {
	switch {
	case err == nil:
	case errors.Is(err, lease.ErrLapsed):
		d.log.Debug("the session does not live", "doing", doing)
	default:
		d.log.Warn("the store did not do it; trying again", "doing", doing, "err", err)
	}
	return err
}
