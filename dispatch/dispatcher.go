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
	cfg     Config
	clock   lease.Clock
	log     *slog.Logger
	m       *machine
	report  *reporter
	health  *lease.StoreHealth
	session *lease.ActiveSession // that the machine works under

	sendTasks chan sendTask
	events    chan func(now time.Duration)
	due       chan struct{} // scheduled messages are due

	published  time.Duration
	targetLate bool // see isTargetLate

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
		log:       cfg.Logger.With("queue", cfg.Name, "instance", cfg.Keeper.Instance().Label()),
		sendTasks: make(chan sendTask, cfg.Concurrency), // startSends gives out no more at a time
		// Room for everything that can be in flight at once: a goroutine that reports
		// must not wait for a runner that has returned.
		events: make(chan func(time.Duration), 4*cfg.Concurrency+8),
		due:    make(chan struct{}, 1),
	}
	d.health = lease.NewStoreHealth(d.clock)
	d.report = newReporter(d.log, cfg.Target.Name())
	d.m.onRecorded = d.report.recorded
	d.publishStats()
	return d, nil
}

// Stats returns the counts so far.
func (d *Dispatcher) Stats() Stats {
	d.mu.Lock()
	s := d.stats
	d.mu.Unlock()
	s.FailingFor, s.FailingAt, s.Failure = d.health.Failing()
	return s
}

// WorstTakeover is how long the keys of a crashed instance wait at most: idle ones, and
// those with a submission in flight.
func (d *Dispatcher) WorstTakeover() (idle, submitting time.Duration) {
	idle, submitting = d.cfg.Windows.WorstTakeover()
	if !d.cfg.Target.Semantics().NeedsSecondWindow() {
		submitting = idle
	}
	return idle, submitting
}

// errStopped is why a submission ends that the stop grace did not wait for; operators read it as the reason of its message.
var errStopped = errors.New("this instance stopped before the target answered")

// Run delivers until ctx ends; call it once. Then it releases every key without a
// submission in flight at once, waits up to StopGrace for the others, releases the
// rest as unknown, and returns nil when everything that it started has stopped. While the
// store does not answer it gives up five seconds after StopGrace, or, if the target ignores its
// context, within ten seconds after that has returned: its keys are free when the session
// lapses. The keeper must run until Run has returned: if it cannot continue, Run returns its
// error.
func (d *Dispatcher) Run(ctx context.Context) error {
	running, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	d.deliver(running, fail)
	if ctx.Err() == nil {
		return context.Cause(running)
	}
	return nil
}

// deliver delivers until ctx ends; fail ends it when there can be no session any more.
func (d *Dispatcher) deliver(ctx context.Context, fail func(error)) {
	var started sync.WaitGroup
	work, cancelWork := context.WithCancelCause(context.WithoutCancel(ctx))
	polls, cancelPolls := context.WithCancel(work)
	calls, cancelCalls := context.WithCancel(context.WithoutCancel(ctx))
	defer started.Wait()
	defer cancelCalls() // under way still if the store does not answer; whether they took effect nobody asks any more
	defer cancelWork(errStopped)
	defer cancelPolls()
	for range d.cfg.Concurrency {
		started.Go(func() { d.runSender(work) })
	}
	if d.cfg.KeepFor > 0 {
		started.Go(func() { d.pruneFinished(ctx) })
	}
	started.Go(func() { d.enqueueDue(ctx) })
	if d.cfg.Admin != nil {
		started.Go(func() { d.watchBlocked(ctx) })
	}
	started.Go(func() { d.followSessions(ctx, fail) })
	woken := d.cfg.Keeper.Notifier().Subscribe(claim.WakeID(Space(d.cfg.Name)))
	defer woken.Close()

	r := run{d: d, calls: calls, polls: polls, started: &started}
	stopping := ctx.Done()
	var hard, giveUp <-chan time.Time
	stop := func() bool { return false } // of the one of these timers that runs
	defer func() { stop() }()
	for !d.m.isDone() {
		now := d.clock.Now()
		d.report.tick(now)
		r.execute(d.m.step(now))
		if now >= d.published+publishEvery {
			d.published = now
			d.publishStats()
		}
		timer, stopTimer := d.clock.Timer(d.m.nextWake(now) - now)
		select {
		case f := <-d.events:
			d.handleEvents(f)
		case c := <-woken.C():
			if c.Successor == "" || d.session != nil && c.Successor == d.session.ID() {
				d.m.wakeUp()
			}
		case <-timer:
		case <-stopping:
			stopping = nil
			d.m.stop()
			cancelPolls()
			hard, stop = d.clock.Timer(d.cfg.StopGrace)
		case <-hard:
			hard = nil
			cancelWork(errStopped)
			giveUp, stop = d.clock.Timer(stopTimeout)
		case <-giveUp:
			if d.isTargetLate() {
				giveUp, stop = d.clock.Timer(stopTimeout)
				break
			}
			stopTimer()
			d.log.Warn("stopped without releasing all keys: the store does not answer; they are free when the session lapses")
			d.publishStats()
			return
		}
		stopTimer()
	}
	d.publishStats()
}

// isTargetLate reports whether the target has not returned although its context has ended, or has only just returned: what it
// answers can still be recorded. Run waits for it in any case.
func (d *Dispatcher) isTargetLate() bool {
	before, calls := d.targetLate, d.m.counts[sending]+d.m.pollsInFlight
	d.targetLate = calls > 0
	if d.targetLate && !before {
		d.log.Warn("the target has not returned although its context has ended; waiting for it", "target", d.cfg.Target.Name(), "calls", calls)
	}
	return d.targetLate || before
}

// publishEvery is how stale Stats may be.
const publishEvery = 50 * time.Millisecond

// stopTimeout is how long a stopping dispatcher keeps trying to reach the store.
const stopTimeout = 5 * time.Second

// handleEvents applies an event and those that have arrived meanwhile.
func (d *Dispatcher) handleEvents(f func(time.Duration)) {
	for {
		now := d.clock.Now()
		d.report.tick(now)
		f(now)
		select {
		case f = <-d.events:
		default:
			return
		}
	}
}

// followSessions gives the machine each new session, and its end, until ctx ends or the keeper fails.
func (d *Dispatcher) followSessions(ctx context.Context, fail func(error)) {
	for {
		session, err := d.cfg.Keeper.Session(ctx)
		if err != nil {
			fail(err)
			return
		}
		if !d.sendEvent(ctx, func(time.Duration) {
			d.session = session
			d.m.setSession(session.ID())
		}) {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-session.Done():
		}
		d.sendEvent(ctx, func(time.Duration) {
			d.log.Info("session ended; other instances take its keys")
			d.session = nil
			d.m.setSession("")
		})
	}
}

func (d *Dispatcher) sendEvent(ctx context.Context, f func(time.Duration)) bool {
	select {
	case d.events <- f:
		return true
	case <-ctx.Done():
		return false
	}
}

// publishStats copies the machine's counts for Stats, not at every event.
func (d *Dispatcher) publishStats() {
	s := d.m.snapshot()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stats = s
}

// pruneFinished deletes old finished messages in small steps.
func (d *Dispatcher) pruneFinished(ctx context.Context) {
	// 500 rows keep each statement short: renewals share the store with it.
	const step, most = 500, 30 * time.Second
	pause := most
	for lease.Sleep(ctx, d.clock, pause/2+time.Duration(d.cfg.Jitter()*float64(pause))) {
		call, cancel := context.WithTimeout(ctx, callTimeout)
		deleted, through, err := d.cfg.Queue.Prune(call, d.cfg.Name, d.cfg.KeepFor, step)
		cancel()
		switch {
		case err != nil && ctx.Err() == nil:
			d.log.Warn("finished messages could not be pruned; trying again", "err", err)
			pause = most
		case through:
			pause = most
		default:
			pause = 200 * time.Millisecond
		}
		if deleted > 0 {
			d.log.Debug("pruned", "messages", deleted)
		}
	}
}

// enqueueDue puts scheduled messages into their keys when the store says that some are due, which it does once in joinEvery.
func (d *Dispatcher) enqueueDue(ctx context.Context) {
	failing := outage{
		failed:    tally{log: func(attrs ...any) { d.log.Warn("scheduled messages not enqueued; trying again", attrs...) }},
		recovered: func(attrs ...any) { d.log.Info("scheduled messages are enqueued again", attrs...) },
	}
	again := false // the request before failed, too
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.due:
		}
		for more := true; more; {
			call, cancel := context.WithTimeout(ctx, callTimeout)
			n, err := d.cfg.Queue.EnqueueDue(call, d.cfg.Name, 100)
			cancel()
			switch {
			case err == nil && n == 0: // another instance was at it, or is: that says nothing about what held this one up
			case err == nil:
				failing.succeed(d.clock.Now())
			case ctx.Err() != nil:
			// When the store goes away the runner reports that; nothing is due then until the store answers.
			case again || !errors.Is(err, lease.ErrUnavailable) && !errors.Is(err, lease.ErrUnknown):
				failing.fail(d.clock.Now(), "err", err)
			}
			again = err != nil || again && n == 0
			more = n > 0 && lease.Sleep(ctx, d.clock, 10*time.Millisecond)
		}
	}
}

// callTimeout is the deadline of a request to the store.
const callTimeout = 10 * time.Second

// run is the life of one call of Run.
type run struct {
	d            *Dispatcher
	calls, polls context.Context // of requests to the store, of status queries
	started      *sync.WaitGroup
}

func (r run) execute(effects []effect) {
	d := r.d
	for _, e := range effects {
		switch {
		case e.send != nil:
			d.sendTasks <- sendTask{slot: e.send, a: e.send.assignment, by: d.m.sendDeadline(e.send)}
		case e.poll != nil:
			as := make([]Assignment, len(e.poll))
			for i, s := range e.poll {
				as[i] = s.assignment
			}
			r.started.Go(func() { d.pollStatus(r.polls, e.poll, as) })
		case e.join != nil:
			r.callStore(func(ctx context.Context) func(time.Duration) {
				share, err := d.cfg.Claims.Join(ctx, *e.join)
				if share.Due {
					select {
					case d.due <- struct{}{}:
					default: // it is at it
					}
				}
				return func(now time.Duration) { d.m.handleJoin(now, share, d.logStoreError("joining", err)) }
			})
		case e.claimKeys != nil:
			r.callStore(func(ctx context.Context) func(time.Duration) {
				claims, err := d.cfg.Claims.ClaimKeys(ctx, *e.claimKeys)
				return func(now time.Duration) {
					d.m.handleClaims(now, *e.claimKeys, claims, d.logStoreError("claiming keys", err))
				}
			})
		case e.release != nil:
			r.callStore(func(ctx context.Context) func(time.Duration) {
				err := d.cfg.Claims.Release(ctx, Space(d.cfg.Name), e.release.session, e.release.claims)
				return func(now time.Duration) { d.m.handleRelease(now, *e.release, d.logStoreError("releasing keys", err)) }
			})
		case e.list != nil:
			r.callStore(func(ctx context.Context) func(time.Duration) {
				rows, err := d.cfg.Claims.List(ctx, *e.list)
				return func(now time.Duration) { d.m.handleList(now, *e.list, rows, d.logStoreError("listing own keys", err)) }
			})
		case e.exchange != nil:
			r.callStore(func(ctx context.Context) func(time.Duration) {
				out, err := d.cfg.Queue.Exchange(ctx, e.exchange.body)
				return func(now time.Duration) {
					d.m.handleExchange(now, e.exchange, out, d.logStoreError("exchanging results", err), errors.Is(err, lease.ErrUnknown))
				}
			})
		}
	}
}

// callStore makes a request to the store; the runner calls the function that it returns.
func (r run) callStore(f func(context.Context) func(time.Duration)) {
	r.started.Go(func() {
		ctx, cancel := context.WithTimeout(r.calls, callTimeout)
		defer cancel()
		r.d.events <- f(ctx)
	})
}

// logStoreError logs an error and returns it; the machine retries.
func (d *Dispatcher) logStoreError(doing string, err error) error {
	d.health.Record(doing, err)
	switch {
	case err == nil:
		d.report.store.succeed(d.report.now)
	case errors.Is(err, lease.ErrLapsed):
		d.log.Debug("the session has lapsed", "doing", doing)
	default:
		d.report.store.fail(d.report.now, "doing", doing, "err", err)
	}
	return err
}
