package job

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/understudy-ha/understudy/elect"
	"github.com/understudy-ha/understudy/internal/backoff"
	"github.com/understudy-ha/understudy/lease"
)

// Offer is a job that an instance can run.
type Offer struct {
	// Name of the job. Required; see [ValidateName].
	Name string
	// Definition of the job, which the store gets when Serve starts.
	Definition Definition
	// Work is what the job does. Required.
	Work Work
	// With, when not "", is a role: runs start only where an instance of the same name holds it, and are cancelled with
	// elect.ErrMoved when it moves.
	With string
}

// Config describes what an instance offers.
type Config struct {
	// Keeper of this instance's session; its Run must be running. Required.
	Keeper *lease.Keeper
	// Store of the jobs, which is the keeper's store. Required.
	Store Store
	// Offers are the jobs. At least one.
	Offers []Offer
	// StopGrace is how long the work may take to return once its context is cancelled. Default 1 s. The keeper's timing
	// must be T ≥ 3·I + StopGrace.
	StopGrace time.Duration
	// Overrun is called if the work of a job still runs when trust ends, because it ignored its context for StopGrace. Then
	// another instance may run the job beside it, unless this process ends. Default: log an error.
	Overrun func(job string)
	// SendAlarm sends the alarms of all jobs of the store: see [AlarmConfig]. Default: alarms are only kept.
	SendAlarm func(ctx context.Context, j Job, a Alarm) error
	// Logger; nil is silent.
	Logger *slog.Logger
}

// Validate checks the configuration; errors wrap lease.ErrInvalid or lease.ErrUnsafeTiming.
func (c Config) Validate() error {
	if c.Keeper == nil || c.Store == nil || len(c.Offers) == 0 {
		return fmt.Errorf("%w: jobs need a keeper, a store and an offer", lease.ErrInvalid)
	}
	names := map[string]bool{}
	for _, o := range c.Offers {
		if err := ValidateName(o.Name); err != nil {
			return err
		}
		if err := o.Definition.Validate(); err != nil {
			return fmt.Errorf("job %q: %w", o.Name, err)
		}
		if names[o.Name] || o.Work == nil {
			return fmt.Errorf("%w: job %q is offered twice, or has no work", lease.ErrInvalid, o.Name)
		}
		if o.With != "" {
			if err := elect.ValidateRole(o.With); err != nil {
				return fmt.Errorf("job %q: with: %w", o.Name, err)
			}
		}
		names[o.Name] = true
	}
	return c.Keeper.Timing().Validate(c.stopGrace())
}

func (c Config) stopGrace() time.Duration { return cmp.Or(c.StopGrace, elect.DefaultStopGrace) }

// Task is one run of a job, passed to its work.
type Task struct {
	Job string
	Run
	// Session is the session behind it: Session.Valid says whether it may still be trusted.
	Session *lease.ActiveSession
	// Output keeps the end of what is written to it: see [MaxTail].
	Output io.Writer

	stopped func() bool // whether the work's context had ended when this was first called
}

// MarkEnded says that the work has ended, before it returns: that its context ends later does not count. Work that passes on the rest
// of its output calls it first.
func (t Task) MarkEnded() {
	if t.stopped != nil {
		t.stopped()
	}
}

// Work is what a job does. It returns soon after ctx is cancelled, the cause of which tells why: lease.ErrLost,
// lease.ErrResign, elect.ErrMoved, [ErrDeadline], [ErrReplaced], or the caller's. The run has failed if the work returns an error; if that has a method
// ExitCode() int, that is the run's exit code. Every effect should carry the task's Term.
type Work func(ctx context.Context, t Task) error

// The causes with which the work of a run is cancelled.
var (
	ErrDeadline = errors.New("job: the run took longer than its deadline")
	ErrReplaced = errors.New("job: replaced by the next run")
)

// errIdle ends the wait for the lease of a job that another instance has run.
var errIdle = errors.New("job: nothing is due")

// Serve offers jobs until ctx ends, and returns its cause when all work has returned. It returns early only for an
// error that no retry can fix. A job with a date that has passed, which the store does not know, is logged and left out.
func Serve(ctx context.Context, cfg Config) error {
	if err := cfg.Validate(); err != nil {
		return err
	}
	r := &runner{
		Config: cfg, log: cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler)), offers: map[string]Offer{}, past: map[string]bool{},
		attended: map[string]bool{}, held: map[string]bool{}, claiming: make(chan struct{}, maxClaims),
		shared: dueList{turn: make(chan struct{}, 1)},
	}
	for _, o := range cfg.Offers {
		r.offers[o.Name] = o
	}
	if err := r.defineAll(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer r.attending.Wait()
	defer cancel(nil)
	r.fail = cancel
	if cfg.SendAlarm != nil {
		k := cfg.Keeper
		alarms := AlarmConfig{Store: cfg.Store, Leases: k.Store(), Send: cfg.SendAlarm, Clock: k.Clock(), CallTimeout: k.Timing().CallTimeout(), Takeover: k.Timing().WorstTakeover(), Logger: r.log}
		r.attending.Go(func() { _ = WatchAlarms(ctx, alarms) })
	}
	return r.poll(ctx)
}

type runner struct {
	Config
	log       *slog.Logger
	offers    map[string]Offer
	past      map[string]bool // offers that are left out: their date has passed
	compared  time.Duration   // when the offers were last compared with the store
	attending sync.WaitGroup
	claiming  chan struct{} // holds one for each claim under way
	fail      context.CancelCauseFunc

	mu       sync.Mutex
	attended map[string]bool
	held     map[string]bool // another instance had the job's lease when this one tried

	shared dueList
}

func (r *runner) retry() backoff.Backoff {
	return backoff.Backoff{First: r.Keeper.Timing().Interval / 8, Most: r.Keeper.Timing().Interval}
}

// change is one call of the store.
func (r *runner) change(ctx context.Context, name string, decide Decision) (Job, error) {
	ctx, cancel := context.WithTimeout(ctx, r.Keeper.Timing().CallTimeout())
	defer cancel()
	return r.Store.Change(ctx, name, decide)
}

// poll looks once an interval for jobs that are due before the next look.
func (r *runner) poll(ctx context.Context) error {
	interval, failing := r.Keeper.Timing().Interval, false
	for ctx.Err() == nil {
		err := r.attendDue(ctx)
		if err != nil && ctx.Err() == nil && !failing {
			r.log.Warn("what is due cannot be read; trying again", "err", err) // once per outage
		}
		failing = err != nil
		if err := r.Keeper.Err(); err != nil && ctx.Err() == nil {
			return err
		}
		lease.Sleep(ctx, r.Keeper.Clock(), interval)
	}
	return context.Cause(ctx)
}

// maxGets is up to how many offers are read one by one, and not in the list of all that is due.
const maxGets = 3

// attendDue starts to attend to what is due within the interval.
func (r *runner) attendDue(ctx context.Context) error {
	if len(r.offers) <= maxGets {
		call, cancel := context.WithTimeout(ctx, r.Keeper.Timing().CallTimeout())
		defer cancel()
		var failed []error
		for name, o := range r.offers {
			sent := r.Keeper.Clock().Now()
			j, now, err := r.Store.Get(call, name)
			if errors.Is(err, ErrNotFound) || j.ForgottenBy != "" {
				err = r.define(ctx, o) // it was forgotten, and is offered still
			}
			if err != nil {
				failed = append(failed, err)
				continue
			}
			r.attend(ctx, []Job{j}, now, sent)
		}
		return errors.Join(failed...)
	}
	timing, sent := r.Keeper.Timing(), r.Keeper.Clock().Now()
	err := readPages(ctx, r.Store, timing.CallTimeout(), Query{DueWithin: timing.Interval}, func(due []Job, now time.Time) {
		r.attend(ctx, due, now, sent)
		sent = r.Keeper.Clock().Now() // the next page is asked for now
	})
	if err != nil {
		return err
	}
	return r.addMissing(ctx)
}

// attend starts to attend to those of the jobs that are offered and due soon, unless somebody does already. They were read at a
// time by the store's clock, no earlier than another by this process's.
func (r *runner) attend(ctx context.Context, jobs []Job, now time.Time, at time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	jobs = slices.DeleteFunc(jobs, func(j Job) bool {
		_, offered := r.offers[j.Name]
		_, soon := r.startIn(j, now, 0)
		return !offered || !soon || r.attended[j.Name]
	})
	for _, j := range jobs {
		r.attended[j.Name] = true
		startIn, _ := r.startIn(j, now, len(jobs))
		wait := r.held[j.Name]
		due := j.DueAt()
		r.attending.Go(func() {
			held := r.attendOne(ctx, r.offers[j.Name], at+startIn, due, wait)
			r.mu.Lock()
			defer r.mu.Unlock()
			delete(r.attended, j.Name)
			if delete(r.held, j.Name); held {
				r.held[j.Name] = true
			}
		})
	}
}

const (
	stagger = 20 * time.Millisecond // over which the instances that offer a job try to claim a run that comes due
	pace    = 2 * time.Millisecond  // from one late job to the next, in an order of each instance's own
	// maxClaims is how many jobs an instance tries to claim at once: what one store serves well. When more are late, all instances trying
	// for all of them would leave it no time for those that succeed.
	maxClaims = 4
)

// startIn is in how long this instance tries to claim the job's run; false if that is not soon. What is late waits for nothing
// but, if many are, for its turn.
func (r *runner) startIn(j Job, now time.Time, many int) (time.Duration, bool) {
	due := j.DueAt()
	wait := due.Sub(now)
	over := stagger
	if wait <= 0 {
		wait, over = 0, time.Duration(many)*pace
	}
	return wait + spread(over, j.Name, due.String(), r.Keeper.Instance().ID), !due.IsZero() && due.Sub(now) <= r.Keeper.Timing().Interval
}

// attendOne runs the job's runs from then on, for as long as the next one is due soon: the first at due. With wait, it waits for an instance that has one
// to end or die; otherwise it leaves that to a later look, because most runs are short, and reports it.
func (r *runner) attendOne(ctx context.Context, o Offer, from time.Duration, due time.Time, wait bool) (held bool) {
	for lease.Sleep(ctx, r.Keeper.Clock(), from-r.Keeper.Clock().Now()) {
		if !due.IsZero() { // before its turn, for which those that will claim nothing need not wait
			if runs, ended := r.isDone(ctx, o.Name, due); ended || runs && !wait {
				return runs
			}
			due = time.Time{} // the next run has another time
		}
		done, err := r.enterClaims(ctx)
		if err != nil {
			return false
		}
		sent := r.Keeper.Clock().Now()
		j, now, here, err := r.read(ctx, o)
		startIn, soon := r.startIn(j, now, 1)
		_, running := j.Running()
		switch late := !j.DueAt().After(now); {
		case err != nil || !here || !soon:
			done()
			return false
		case !late:
			done()
			from = sent + startIn
			continue
		case running && !wait:
			done()
			return true
		case wait:
			done() // it may be long
		}
		if err := r.contend(ctx, o, wait, done); err != nil {
			return errors.Is(err, lease.ErrHeld)
		}
		wait = false
	}
	return false
}

// read reads a job, and whether this instance may run it now.
func (r *runner) read(ctx context.Context, o Offer) (j Job, now time.Time, here bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, r.Keeper.Timing().CallTimeout())
	defer cancel()
	if here = o.With == ""; !here {
		here, err = elect.HeldBeside(ctx, r.Keeper, o.With)
	}
	if err == nil {
		j, now, err = r.Store.Get(ctx, o.Name)
	}
	return j, now, here, err
}

// enterClaims waits for its turn to claim; done, which may be called more than once, ends that.
func (r *runner) enterClaims(ctx context.Context) (done func(), err error) {
	select {
	case r.claiming <- struct{}{}:
		return sync.OnceFunc(func() { <-r.claiming }), nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// contend acquires the job's lease, calls acquired, and runs what is due: at once or, with wait, when it is free while a run is due.
func (r *runner) contend(ctx context.Context, o Offer, wait bool, acquired func()) error {
	through := &acquirer{Acquirer: r.Keeper.Store(), store: r.Store, name: o.Name, holder: r.Keeper.Instance()}
	held, err := r.Keeper.Acquire(ctx, lease.AcquireRequest{
		Leases: []lease.ID{LeaseID(o.Name)}, Margin: r.stopGrace(), Once: !wait, Through: through,
		Unless: func(ctx context.Context) error { return r.unlessIdle(ctx, o) },
	})
	acquired()
	switch {
	case err == nil:
		return r.hold(ctx, o, held, through)
	case errors.Is(err, errIdle):
		return nil
	case ctx.Err() == nil && !errors.Is(err, lease.ErrHeld) && !transient(err):
		r.fail(fmt.Errorf("job %q: %w", o.Name, err))
	}
	return err
}

// unlessIdle returns errIdle if another instance has run what was due, or is the one to run it.
func (r *runner) unlessIdle(ctx context.Context, o Offer) error {
	j, now, here, err := r.read(ctx, o)
	if errors.Is(err, ErrNotFound) || err == nil && (!here || j.DueAt().IsZero() || j.DueAt().After(now)) {
		return errIdle
	}
	return nil // what the store does not say now, the claim will
}
