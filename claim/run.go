package claim

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/understudy-ha/understudy/internal/backoff"
	"github.com/understudy-ha/understudy/lease"
)

// NextStep is when a key is ready again after a step of work.
type NextStep struct {
	In   time.Duration // 0 is at once
	Idle bool          // not before it is offered again
}

// StepFunc is one step of work on a key. Its context ends at the step's deadline, which
// counts from when the store was asked to start the step, or StopGrace after the
// instance was stopped. An error is logged, and the key is ready again after a back-off,
// for any instance. c.Interrupted: the previous step may have been done in part.
type StepFunc func(ctx context.Context, c Claim) (NextStep, error)

// Config of [Run].
type Config struct {
	// Space of the keys: 1 to 32 of a–z, 0–9, '-', '_' and '.', starting with a
	// letter. Required.
	Space string
	// Keeper of this instance's session, whose timing is that of Windows, and
	// Table, of the same store. Required.
	Keeper *lease.Keeper
	Table  KeyTable
	// Windows that keep keys from others. Default 30 s and 3 min.
	Windows Windows
	// StepTimeout is the deadline of one step. Default 1 min; shorter than the second
	// window.
	StepTimeout time.Duration
	// Concurrency is how many steps may be in progress at once. Default 8, at most
	// MaxKeys.
	Concurrency int
	// MaxKeys is how many keys this instance holds at most. Default 10,000.
	MaxKeys int
	// StopGrace is how long steps may continue when Run is stopped; keys without a
	// step are released at once. Default 5 s.
	StopGrace time.Duration
	// Logger; nil is silent.
	Logger *slog.Logger
}

func (c Config) withDefaults() Config {
	c.Windows = c.Windows.WithDefaults()
	c.StepTimeout = cmp.Or(c.StepTimeout, time.Minute)
	c.Concurrency = cmp.Or(c.Concurrency, 8)
	c.MaxKeys = cmp.Or(c.MaxKeys, defaultMost)
	c.StopGrace = cmp.Or(c.StopGrace, 5*time.Second)
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	return c
}

func (c Config) validate() error {
	if err := lease.ValidateSpace(c.Space); err != nil {
		return err
	}
	if err := validateHolder(c.Keeper, c.Table, c.Windows, c.MaxKeys); err != nil {
		return err
	}
	if c.Concurrency < 1 || c.Concurrency > MaxKeys || c.StepTimeout <= 0 || c.StopGrace < 0 {
		return fmt.Errorf("%w: use 1 to %d steps at once, and positive durations", lease.ErrInvalid, MaxKeys)
	}
	return c.Windows.Validate(c.StepTimeout)
}

// Run claims this instance's fair share of a space's keys and runs a step of work on
// each whenever it is ready, until ctx ends. Then it releases its keys and returns
// nil once every step has returned; while the store does not answer it gives up five
// seconds after StopGrace, and its keys are free when the session ends. The keeper must run until Run has returned: if it
// cannot continue, Run returns its error.
func Run(ctx context.Context, cfg Config, work StepFunc) error {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return fmt.Errorf("claims of %q: %w", cfg.Space, err)
	}
	w := &worker{cfg: cfg, work: work, done: make(chan stepOutcome, cfg.Concurrency), failed: map[string]failures{}}
	w.holder = newHolder(cfg.Keeper, cfg.Table, cfg.Space, cfg.MaxKeys, cfg.Logger)
	for ctx.Err() == nil {
		live, err := cfg.Keeper.Session(ctx)
		if err != nil && ctx.Err() == nil {
			return fmt.Errorf("claims of %q: %w", cfg.Space, err)
		}
		if err != nil {
			break
		}
		w.workUnderSession(ctx, live)
	}
	return nil
}

// stepOutcome of a step.
type stepOutcome struct {
	*ownedKey
	next NextStep
	err  error
	late bool // it was not started: its deadline had passed, or its context had ended
}

// worker is Run's state; one goroutine owns it.
type worker struct {
	holder
	cfg   Config
	work  StepFunc
	steps int // under way
	done  chan stepOutcome
	// startAt is when steps may be started again after the store failed to start some.
	startAt time.Duration
	failed  map[string]failures // by key
}

// failures of a key's steps in a row, as far as this instance knows: a failed step
// releases the key.
type failures struct {
	n    int
	last time.Duration
}

const (
	failureMemory = 10 * time.Minute // how long they count if another instance has the key
	maxFailures   = 100_000          // of so many keys they are remembered
)

// countFailure returns how many there were in a row.
func (w *worker) countFailure(key string) int {
	f, now := w.failed[key], w.clock.Now()
	if now-f.last > failureMemory {
		f.n = 0
	}
	if len(w.failed) >= maxFailures {
		clear(w.failed)
	}
	w.failed[key] = failures{f.n + 1, now}
	return f.n + 1
}

// stopTimeout is how long, after StopGrace, an instance that stops keeps trying to reach the store.
const stopTimeout = 5 * time.Second

// endLater returns a context that ends a while after ctx has ended, or when it is cancelled.
func endLater(ctx context.Context, clock lease.Clock, after time.Duration) (later context.Context, cancel func()) {
	later, end := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		lease.Sleep(later, clock, after)
		end()
	})
	return later, func() { stop(); end() }
}

// workUnderSession works until the session ends or ctx ends, and returns when every
// step has.
func (w *worker) workUnderSession(ctx context.Context, live *lease.ActiveSession) {
	// Of their own accord: the loop may be waiting for the store then.
	steps, cancel := endLater(ctx, w.clock, w.cfg.StopGrace)
	defer cancel()
	calls, cancelCalls := endLater(ctx, w.clock, w.cfg.StopGrace+stopTimeout)
	defer cancelCalls()
	woken := w.cfg.Keeper.Notifier().Subscribe(WakeID(w.cfg.Space))
	defer woken.Close()
	var over sync.WaitGroup
	defer over.Wait()
	clear(w.keys)
	w.claimAt = w.clock.Now()
	for ctx.Err() == nil {
		if w.clock.Now() >= w.claimAt {
			w.joinAndClaim(calls, live.ID(), w.steps == 0)
		}
		w.startSteps(calls, steps, live.ID(), &over)
		timer, stop := w.clock.Timer(w.untilDue())
		select {
		case <-ctx.Done():
		case <-live.Done():
			stop()
			w.log.Info("session ended; other instances take its keys")
			cancel()
			w.awaitSteps(ctx, calls, live.ID())
			return
		case <-woken.C():
			w.claimAt = w.clock.Now()
		case <-timer:
		case o := <-w.done:
			w.finishSteps(ctx, calls, live.ID(), []stepOutcome{o})
		}
		stop()
	}
	w.releaseIdle(calls, live.ID())
	w.awaitSteps(ctx, calls, live.ID())
}

// startSteps starts steps on keys that are ready.
func (w *worker) startSteps(calls, steps context.Context, session string, over *sync.WaitGroup) {
	now, room := w.clock.Now(), w.cfg.Concurrency-w.steps
	if now < w.startAt {
		return
	}
	var due, back []Claim
	for _, k := range w.keys {
		switch {
		case k.inStep || k.ready > now:
		case w.surplus > 0:
			w.surplus--
			back = append(back, k.Claim)
		case len(due) < room:
			due = append(due, k.Claim)
		}
	}
	w.release(calls, session, back)
	if len(due) == 0 {
		return
	}
	// Before the request is sent: the second window may count from any moment after, and no step may outlast it.
	sent := w.clock.Now()
	begun, err := callStore(calls, func(ctx context.Context) ([]Claim, error) {
		return w.cfg.Table.StartSteps(ctx, w.cfg.Space, session, w.cfg.Windows.Second, due)
	})
	if err != nil {
		// It may have been applied: then the keys are in a step that no one runs, which
		// would keep them from everyone for the second window. Release them.
		w.logStoreError("beginning", err)
		w.release(calls, session, due)
		// Then pause: keys are still ready, and a store that refuses at once would be called without end.
		w.startAt = w.clock.Now() + PollInterval
		return
	}
	started := map[string]bool{}
	for _, c := range begun {
		started[c.Key] = true
		k := w.keys[c.Key]
		k.inStep = true
		w.steps++
		over.Go(func() { w.done <- w.runStep(steps, k, sent+w.cfg.StepTimeout) })
	}
	for _, c := range due {
		if !started[c.Key] {
			delete(w.keys, c.Key) // another instance has it
		}
	}
}

// runStep runs the work until the end, by this host's clock; a panic counts as an error.
func (w *worker) runStep(ctx context.Context, k *ownedKey, end time.Duration) (o stepOutcome) {
	left := end - w.clock.Now()
	if left <= 0 || ctx.Err() != nil {
		return stepOutcome{ownedKey: k, late: true}
	}
	ctx, cancel := context.WithTimeout(ctx, left)
	defer cancel()
	defer func() {
		if p := recover(); p != nil {
			o = stepOutcome{ownedKey: k, err: fmt.Errorf("the work panicked: %v\n%s", p, debug.Stack())}
		}
	}()
	next, err := w.work(ctx, k.Claim)
	return stepOutcome{ownedKey: k, next: next, err: err}
}

// finishSteps records how steps ended. Once ctx has ended, their keys are released with it.
func (w *worker) finishSteps(ctx, calls context.Context, session string, ended []stepOutcome) {
	w.steps -= len(ended)
	var late []Claim
	var finished []stepOutcome
	var results []StepResult
	for _, o := range ended {
		f := StepResult{Key: o.Key, Term: o.Term, In: o.next.In, Idle: o.next.Idle}
		switch {
		case o.late:
			w.log.Warn("a step was not started: it was too late when the store answered", "key", o.Key)
			late = append(late, o.Claim)
			continue
		case o.err != nil:
			f.In, f.Idle, f.Release = backoff.Pause(w.countFailure(o.Key), 2*time.Second, time.Minute), false, true
			w.log.Warn("a step failed; the key is tried again", "key", o.Key, "err", o.err, "in", f.In)
		default:
			delete(w.failed, o.Key)
		}
		f.Release = f.Release || f.Idle || ctx.Err() != nil
		finished, results = append(finished, o), append(results, f)
	}
	w.releaseStarted(calls, session, late)
	if len(late) > 0 {
		w.startAt = w.clock.Now() + PollInterval
	}
	if len(results) == 0 {
		return
	}
	accepted, err := callStore(calls, func(ctx context.Context) ([]string, error) {
		return w.cfg.Table.FinishSteps(ctx, w.cfg.Space, session, results)
	})
	if err != nil {
		w.logStoreError("finishing", err)
		var unrecorded []Claim
		for _, o := range finished {
			unrecorded = append(unrecorded, o.Claim)
		}
		w.releaseStarted(calls, session, unrecorded)
		return
	}
	for i, o := range finished {
		if f := results[i]; f.Release || !slices.Contains(accepted, f.Key) {
			delete(w.keys, o.Key)
		} else {
			o.inStep, o.Interrupted, o.ready = false, false, w.clock.Now()+f.In
		}
	}
}

// releaseStarted releases keys whose steps were started in the store and are not finished there: the next holder learns that.
func (w *worker) releaseStarted(calls context.Context, session string, claims []Claim) {
	w.release(calls, session, claims)
	for _, c := range claims {
		delete(w.keys, c.Key)
	}
}

// untilDue is the time until something is due.
func (w *worker) untilDue() time.Duration {
	now := w.clock.Now()
	d := max(0, w.claimAt-now)
	if w.steps >= w.cfg.Concurrency {
		return d
	}
	for _, k := range w.keys {
		if !k.inStep {
			d = min(d, max(0, k.ready-now, w.startAt-now))
		}
	}
	return d
}

// releaseIdle releases the keys that are not in a step.
func (w *worker) releaseIdle(calls context.Context, session string) {
	var back []Claim
	for _, k := range w.keys {
		if !k.inStep {
			back = append(back, k.Claim)
		}
	}
	w.release(calls, session, back)
}

// awaitSteps waits for steps that have been cancelled, or will be. What has ended meanwhile is recorded at once: there may
// be a thousand, and little time.
func (w *worker) awaitSteps(ctx, calls context.Context, session string) {
	lost := 0
	for w.steps > 0 {
		ended := []stepOutcome{<-w.done}
		for len(w.done) > 0 && len(ended) < MaxKeys {
			ended = append(ended, <-w.done)
		}
		if calls.Err() == nil {
			w.finishSteps(ctx, calls, session, ended)
			continue
		}
		w.steps -= len(ended)
		lost += len(ended)
	}
	if lost > 0 {
		w.log.Warn("stopped without recording the last steps: the store does not answer; their keys are free when the session ends", "steps", lost)
	}
}
