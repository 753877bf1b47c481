package claim

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime/debug"
	"slices"
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
		c.Most = 10_000
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
	switch {
	case c.Keeper == nil || c.Table == nil:
		return fmt.Errorf("%w: a keeper and a table are needed", lease.ErrInvalid)
	case c.Concurrency < 1 || c.Concurrency > MaxKeys || c.Most < 1 || c.Step <= 0 || c.StopGrace < 0:
		return fmt.Errorf("%w: use 1 to %d steps at once, at least one key, and positive durations", lease.ErrInvalid, MaxKeys)
	case c.Keeper.Timing() != c.Windows.Timing():
		return fmt.Errorf("%w: the keeper's session has timing %v, and the windows need %v", lease.ErrInvalid, c.Keeper.Timing(), c.Windows.Timing())
	}
	if err := lease.ValidateSpace(c.Space); err != nil {
		return err
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
	w := &worker{cfg: cfg, clock: cfg.Keeper.Clock(), work: work, keys: map[string]*owned{},
		done: make(chan outcome, cfg.Concurrency),
		log:  cfg.Logger.With("space", cfg.Space, "instance", cfg.Keeper.Instance().Label())}
	for ctx.Err() == nil {
		live, err := cfg.Keeper.Session(ctx)
		if err != nil {
			break
		}
		w.underSession(ctx, live)
	}
	return nil
}

// owned is a key that this instance claims, as far as it knows.
type owned struct {
	Claim
	ready  time.Duration // when, on this host's clock
	inStep bool
	tries  int // failed steps in a row
}

// outcome of a step.
type outcome struct {
	*owned
	next Next
	err  error
}

// worker is Run's state; one goroutine owns it.
type worker struct {
	cfg   Config
	clock lease.Clock
	work  Work
	log   *slog.Logger
	keys  map[string]*owned
	steps int // under way
	done  chan outcome
	shed  int // keys that others lack: given back when they are ready, so that they are taken at once

	lookAt time.Duration // when to look for keys that nobody told us of
	more   int           // times in a row that the store counted more keys than are known
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
			w.look(ctx, live.ID())
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

// look renews the membership, strikes fair shares, and takes keys.
func (w *worker) look(ctx context.Context, session string) {
	w.lookAt = w.clock.Now() + LookEvery
	share, err := request(ctx, func(ctx context.Context) (Share, error) {
		return w.cfg.Table.Join(ctx, Member{Space: w.cfg.Space, Session: session, Asleep: w.steps == 0})
	})
	if err != nil {
		w.trouble("joining", err)
		return
	}
	w.strays(ctx, session, share)
	w.shed = share.Surplus()
	room := min(MaxKeys, w.cfg.Most-len(w.keys))
	if room <= 0 {
		return
	}
	claims, err := request(ctx, func(ctx context.Context) ([]Claim, error) {
		return w.cfg.Table.Take(ctx, Want{Space: w.cfg.Space, Session: session, Most: room, Fresh: share.Fresh(room), Linger: Linger})
	})
	if err != nil {
		w.trouble("taking keys", err)
	}
	for _, c := range claims {
		w.keys[c.Key] = &owned{Claim: c, ready: w.clock.Now()}
	}
}

// strays gives back keys that the store has given to this session in an answer
// that never came: nobody else may take them while the session lives. They are
// looked for only the second time, because a request that was given up may still
// be carried out.
func (w *worker) strays(ctx context.Context, session string, s Share) {
	if w.more++; s.Mine <= len(w.keys) {
		w.more = 0
	}
	if w.more < 2 {
		return
	}
	rows, err := request(ctx, func(ctx context.Context) ([]Row, error) {
		return w.cfg.Table.List(ctx, Query{Space: w.cfg.Space, Session: session})
	})
	if err != nil {
		w.trouble("listing own keys", err)
		return
	}
	var back []Claim
	for _, r := range rows {
		if k := w.keys[r.Key]; k == nil || k.Term != r.Term {
			back = append(back, Claim{Key: r.Key, Term: r.Term})
		}
	}
	w.release(ctx, session, back)
}

func (w *worker) release(ctx context.Context, session string, back []Claim) {
	for part := range slices.Chunk(back, MaxKeys) {
		_, err := request(ctx, func(ctx context.Context) (struct{}, error) {
			return struct{}{}, w.cfg.Table.Release(ctx, w.cfg.Space, session, part)
		})
		if err != nil {
			w.trouble("giving keys back", err)
			return // still ours: the next round tries again
		}
		for _, c := range part {
			if k := w.keys[c.Key]; k != nil && k.Term == c.Term {
				delete(w.keys, c.Key)
			}
		}
	}
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

func (w *worker) trouble(doing string, err error) {
	if errors.Is(err, lease.ErrLapsed) {
		w.log.Debug("the session does not live", "doing", doing)
		return
	}
	w.log.Warn("the store did not do it; trying again", "doing", doing, "err", err)
}

// request bounds one request to the store. It is made also while stopping.
func request[T any](ctx context.Context, f func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	return f(ctx)
}
