package job

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
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

// stagger is the time over which the instances that offer a job try to claim a run.
const stagger = 20 * time.Millisecond

// Serve offers jobs until ctx ends, and returns its cause when all work has returned. It returns early only for an
// error that no retry can fix.
func Serve(ctx context.Context, cfg Config) error {
	if err := cfg.Validate(); err != nil {
		return err
	}
	r := &runner{
		Config: cfg, log: cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler)), offers: map[string]Offer{},
		attended: map[string]bool{}, again: make(chan struct{}, 1),
	}
	for _, o := range cfg.Offers {
		r.offers[o.Name] = o
		if err := r.define(ctx, o); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer r.attending.Wait()
	defer cancel(nil)
	r.fail = cancel
	if cfg.SendAlarm != nil {
		alarms := AlarmConfig{Store: cfg.Store, Send: cfg.SendAlarm, Clock: cfg.Keeper.Clock(), CallTimeout: cfg.Keeper.Timing().CallTimeout(), Logger: r.log}
		r.attending.Go(func() { _ = WatchAlarms(ctx, alarms) })
	}
	return r.poll(ctx)
}

type runner struct {
	Config
	log       *slog.Logger
	offers    map[string]Offer
	attending sync.WaitGroup
	fail      context.CancelCauseFunc
	again     chan struct{} // filled when a look is due before the interval has passed

	mu       sync.Mutex
	attended map[string]bool
}

// define stores a definition, trying until the store answers.
func (r *runner) define(ctx context.Context, o Offer) error {
	for retry := r.retry(); ; {
		j, err := r.change(ctx, o.Name, Define(o.Name, o.Definition))
		switch {
		case err == nil:
			r.log.Info("job offered", "job", o.Name, "schedule", j.Definition.Schedule, "next", j.Next)
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, lease.ErrInvalid):
			return err
		}
		r.log.Warn("the job cannot be stored; trying again", "job", o.Name, "err", err)
		if !retry.Wait(ctx) {
			return context.Cause(ctx)
		}
	}
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
		err := r.attendDue(ctx, interval)
		if err != nil && ctx.Err() == nil && !failing {
			r.log.Warn("what is due cannot be read; trying again", "err", err) // once per outage
		}
		failing = err != nil
		timer, stop := r.Keeper.Clock().Timer(interval)
		select {
		case <-ctx.Done():
		case <-timer:
		case <-r.again:
		}
		stop()
	}
	return context.Cause(ctx)
}

// maxGets is up to how many offers are read one by one, and not in the list of all that is due.
const maxGets = 3

// attendDue starts to attend to what is due within the interval.
func (r *runner) attendDue(ctx context.Context, within time.Duration) error {
	ctx2, cancel := context.WithTimeout(ctx, r.Keeper.Timing().CallTimeout())
	defer cancel()
	if len(r.offers) <= maxGets {
		for name, o := range r.offers {
			sent := r.Keeper.Clock().Now()
			j, now, err := r.Store.Get(ctx2, name)
			if errors.Is(err, ErrNotFound) || j.ForgottenBy != "" {
				err = r.define(ctx, o) // it was forgotten, and is offered still
			}
			if err != nil {
				return err
			}
			if err := r.attend(ctx, j, now, sent, within); err != nil {
				return err
			}
		}
		return nil
	}
	for after, full := "", true; full; {
		sent := r.Keeper.Clock().Now()
		page, now, err := r.Store.List(ctx2, Query{After: after, DueWithin: within, Limit: 1000})
		if err != nil {
			return err
		}
		for _, j := range page {
			after = j.Name
			if err := r.attend(ctx, j, now, sent, within); err != nil {
				return err
			}
		}
		full = len(page) == 1000
	}
	return nil
}

// attend starts to attend to a job that is due soon, unless somebody does already, or its role is held elsewhere.
func (r *runner) attend(ctx context.Context, j Job, now time.Time, at, within time.Duration) error {
	o, offered := r.offers[j.Name]
	due := j.DueAt()
	if !offered || due.IsZero() || due.Sub(now) > within {
		return nil
	}
	if here, err := r.isRoleHere(ctx, o); err != nil || !here {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.attended[j.Name] {
		return nil
	}
	r.attended[j.Name] = true
	wait := due.Sub(now)
	if wait > 0 { // what is late already waits for nobody
		wait += spread(stagger, j.Name, due.String(), r.Keeper.Instance().ID)
	}
	r.attending.Go(func() {
		defer r.endAttending(j.Name)
		if lease.Sleep(ctx, r.Keeper.Clock(), at+wait-r.Keeper.Clock().Now()) {
			r.contend(ctx, o)
		}
	})
	return nil
}

// isRoleHere reports whether the role that a job runs with is held by an instance of this name, or there is none.
func (r *runner) isRoleHere(ctx context.Context, o Offer) (bool, error) {
	if o.With == "" {
		return true, nil
	}
	ctx, cancel := context.WithTimeout(ctx, r.Keeper.Timing().CallTimeout())
	defer cancel()
	return elect.HeldBeside(ctx, r.Keeper, o.With)
}

func (r *runner) endAttending(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.attended, name)
	select {
	case r.again <- struct{}{}: // its next run may be due before the next look
	default:
	}
}

// contend waits for the job's lease while a run of it is due, or on elsewhere, and runs it.
func (r *runner) contend(ctx context.Context, o Offer) {
	held, err := r.Keeper.Acquire(ctx, lease.AcquireRequest{
		Leases: []lease.ID{LeaseID(o.Name)}, Margin: r.stopGrace(),
		Unless: func(ctx context.Context) error { return r.unlessIdle(ctx, o) },
	})
	switch {
	case err == nil:
		r.hold(ctx, o, held)
	case errors.Is(err, errIdle) || ctx.Err() != nil:
	default:
		r.fail(fmt.Errorf("job %q: %w", o.Name, err))
	}
}

// unlessIdle returns errIdle if another instance has run what was due, or is the one to run it.
func (r *runner) unlessIdle(ctx context.Context, o Offer) error {
	if here, err := r.isRoleHere(ctx, o); err == nil && !here {
		return errIdle
	}
	ctx, cancel := context.WithTimeout(ctx, r.Keeper.Timing().CallTimeout())
	defer cancel()
	j, now, err := r.Store.Get(ctx, o.Name)
	if errors.Is(err, ErrNotFound) || err == nil && (j.DueAt().IsZero() || j.DueAt().After(now)) {
		return errIdle
	}
	return nil // what the store does not say now, the claim will
}
