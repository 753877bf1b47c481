package claim

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime/debug"
	"sync"
	"time"

	"github.com/understudy-ha/understudy/lease"
)

// Next tells when a key is ready again after a step of work.
type Next struct {
	In   time.Duration // 0 is at once
	Idle bool          // not before it is offered again
}

// Work is one step of work on a key. Its context ends with the step's deadline, or
// when the instance stops and StopGrace is over. An error is logged, and the
// key is ready again after a back-off, for any instance. c.Interrupted tells
// that the last step before this one may have been done in part.
type Work func(ctx context.Context, c Claim) (Next, error)

// Config tells [Run] what to work on.
type Config struct {
	// Space of the keys: 1 to 32 of a–z, 0–9, '-', '_' and '.', starting with a
	// letter. Required.
	Space string
	// Keeper of this instance's session, whose timing is that of Windows, and
	// Table, of the same store. Required.
	Keeper *lease.Keeper
	Table  Table
	// Windows that keep keys from others. Default 30 s and 3 min.
	Windows Windows
	// Step is the deadline of one step. Default 1 min; shorter than the second
	// window.
	Step time.Duration
	// Concurrency is how many steps may be under way at once. Default 8, at most
	// MaxKeys.
	Concurrency int
	// Most is how many keys this instance holds at most. Default 10,000.
	Most int
	// StopGrace is how long steps may go on when Run is stopped; keys without a
	// step are given back at once. Default 5 s.
	StopGrace time.Duration
	// Logger; nil is silent.
	Logger *slog.Logger
}

func (c Config) withDefaults() Config {
	c.Windows = c.Windows.WithDefaults()
	if c.Step == 0 {
		c.Step = time.Minute
	}
	if c.Concurrency == 0 {
		c.Concurrency = 8
	}
	if c.Most == 0 {
		c.Most = defaultMost
	}
	if c.StopGrace == 0 {
		c.StopGrace = 5 * time.Second
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

func (c Config) validate() error {
	if err := lease.ValidateSpace(c.Space); err != nil {
		return err
	}
	if err := validateHolder(c.Keeper, c.Table, c.Windows, c.Most); err != nil {
		return err
	}
	if c.Concurrency < 1 || c.Concurrency > MaxKeys || c.Step <= 0 || c.StopGrace < 0 {
		return fmt.Errorf("%w: use 1 to %d steps at once, and positive durations", lease.ErrInvalid, MaxKeys)
	}
	return c.Windows.Validate(c.Step)
}

// Run claims this instance's fair share of a space's keys and does a step of work
// on each whenever it is ready, until ctx ends. Then it gives its keys back and
// returns nil once every step has returned. The keeper must run, and go on
// running until Run has returned.
func Run(ctx context.Context, cfg Config, work Work) error {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return fmt.Errorf("claims of %q: %w", cfg.Space, err)
	}
	w := &worker{cfg: cfg, work: work, done: make(chan outcome, cfg.Concurrency)}
	w.holder = newHolder(cfg.Keeper, cfg.Table, cfg.Space, cfg.Most, cfg.Logger)
	for ctx.Err() == nil {
		live, err := cfg.Keeper.Session(ctx)
		if err != nil {
			break
		}
		w.underSession(ctx, live)
	}
	return nil
}

// outcome of a step.
type outcome struct {
	*owned
	next Next
	err  error
}

// worker is Run's state; one goroutine owns it.
type worker struct {
	holder
	cfg   Config
	work  Work
	steps int // under way
	done  chan outcome
}

// underSession works until the session is over or ctx ends, and returns when
// every step has.
func (w *worker) underSession(ctx context.Context, live *lease.Live) {
	steps, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	woken := w.cfg.Keeper.Hub().Subscribe(Wake(w.cfg.Space))
	defer woken.Close()
	var over sync.WaitGroup
	defer over.Wait()
	clear(w.keys)
	w.lookAt = w.clock.Now()
	for ctx.Err() == nil {
		if w.clock.Now() >= w.lookAt {
			w.look(ctx, live.ID(), w.steps == 0)
		}
		w.begin(ctx, steps, live.ID(), &over)
		timer, stop := w.clock.Timer(w.pause())
		select {
		case <-ctx.Done():
		case <-live.Done():
			stop()
			w.log.Warn("the session is over; its keys are left to whoever takes them")
			cancel()
			w.drain(ctx, live.ID())
			return
		case <-woken.C():
			w.lookAt = w.clock.Now()
		case <-timer:
		case o := <-w.done:
			w.finish(ctx, live.ID(), o)
		}
		stop()
	}
	w.stop(ctx, live.ID(), cancel)
}

// begin starts steps on keys that are ready.
func (w *worker) begin(ctx, steps context.Context, session string, over *sync.WaitGroup) {
	now, room := w.clock.Now(), w.cfg.Concurrency-w.steps
	var due, back []Claim
	for _, k := range w.keys {
		switch {
		case k.inStep || k.ready > now:
		case w.shed > 0:
			w.shed--
			back = append(back, k.Claim)
		case len(due) < room:
			due = append(due, k.Claim)
		}
	}
	w.release(ctx, session, back)
	if len(due) == 0 {
		return
	}
	begun, err := request(ctx, func(ctx context.Context) ([]Claim, error) {
		return w.cfg.Table.Begin(ctx, w.cfg.Space, session, w.cfg.Windows.Second, due)
	})
	if err != nil {
		// It may have begun: then the keys are in a step that nobody does. They go back.
		w.trouble("beginning", err)
		w.release(ctx, session, due)
		return
	}
	started := map[string]bool{}
	for _, c := range begun {
		started[c.Key] = true
		k := w.keys[c.Key]
		k.inStep = true
		w.steps++
		over.Go(func() { w.done <- w.step(steps, k) })
	}
	for _, c := range due {
		if !started[c.Key] {
			delete(w.keys, c.Key) // not ours any more
		}
	}
}

// step does the work, and survives its panics.
func (w *worker) step(ctx context.Context, k *owned) (o outcome) {
	ctx, cancel := context.WithTimeout(ctx, w.cfg.Step)
	defer cancel()
	defer func() {
		if p := recover(); p != nil {
			o = outcome{owned: k, err: fmt.Errorf("the work panicked: %v\n%s", p, debug.Stack())}
		}
	}()
	next, err := w.work(ctx, k.Claim)
	return outcome{k, next, err}
}

func (w *worker) finish(ctx context.Context, session string, o outcome) {
	w.steps--
	f := Finished{Key: o.Key, Term: o.Term, In: o.next.In, Idle: o.next.Idle}
	if o.err != nil {
		o.tries++
		f.In, f.Idle, f.Release = min(time.Minute, time.Second<<min(o.tries, 10))/2, false, true
		f.In += rand.N(f.In)
		w.log.Warn("a step failed; the key is tried again", "key", o.Key, "err", o.err, "in", f.In)
	}
	f.Release = f.Release || f.Idle || ctx.Err() != nil
	accepted, err := request(ctx, func(ctx context.Context) ([]string, error) {
		return w.cfg.Table.Finish(ctx, w.cfg.Space, session, []Finished{f})
	})
	if err != nil {
		w.trouble("finishing", err)
		w.release(ctx, session, []Claim{o.Claim}) // interrupted, for whoever takes it
	}
	if err != nil || len(accepted) == 0 || f.Release {
		delete(w.keys, o.Key)
		return
	}
	o.inStep, o.Interrupted, o.ready = false, false, w.clock.Now()+f.In
	if o.err == nil {
		o.tries = 0
	}
}

// pause until something is due.
func (w *worker) pause() time.Duration {
	now := w.clock.Now()
	d := max(0, w.lookAt-now)
	if w.steps >= w.cfg.Concurrency {
		return d
	}
	for _, k := range w.keys {
		if !k.inStep {
			d = min(d, max(0, k.ready-now))
		}
	}
	return d
}

// stop gives everything back, steps under way last.
func (w *worker) stop(ctx context.Context, session string, cancel context.CancelFunc) {
	var back []Claim
	for _, k := range w.keys {
		if !k.inStep {
			back = append(back, k.Claim)
		}
	}
	w.release(ctx, session, back)
	timer, stop := w.clock.Timer(w.cfg.StopGrace)
	defer stop()
	for w.steps > 0 {
		select {
		case o := <-w.done:
			w.finish(ctx, session, o)
		case <-timer:
			cancel()
			w.drain(ctx, session)
		}
	}
}

// drain waits for steps that have been cancelled.
func (w *worker) drain(ctx context.Context, session string) {
	for w.steps > 0 {
		w.finish(ctx, session, <-w.done)
	}
}
