package job

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/understudy-ha/understudy/elect"
	"github.com/understudy-ha/understudy/lease"
)

// hold claims a run under the job's lease, runs it, and releases the lease. Its error is that
// of the claim.
func (r *runner) hold(ctx context.Context, o Offer, held *lease.HeldLease, through *acquirer) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	e := &execution{runner: r, offer: o, through: through, stop: cancel, log: r.log.With("job", o.Name, "term", held.Term)}
	cfg := elect.Config{Keeper: r.Keeper, Role: o.Name, With: o.With, StopGrace: r.stopGrace(), Overrun: e.overrun}
	err := elect.RunWork(ctx, cfg, held, e.work)
	if err != nil && e.task == nil && ctx.Err() == nil && !errors.Is(err, lease.ErrLost) {
		e.log.Warn("no run was claimed", "err", err)
	}
	if e.task == nil {
		return err
	}
	if !through.stored {
		e.log.Warn("the result could not be stored: the run will show as lost", "scheduled", e.task.Scheduled)
	}
	return nil
}

// execution is one run, if any is due, of a job whose lease this instance holds.
type execution struct {
	*runner
	offer   Offer
	through *acquirer
	stop    context.CancelCauseFunc // of the work
	log     *slog.Logger
	task    *Task // nil: nothing was claimed
}

func (e *execution) overrun() {
	if e.Overrun != nil {
		e.Overrun(e.offer.Name)
		return
	}
	e.log.Error("the work ignored its context until the end of trust", "grace", e.stopGrace())
}

// work claims a run, unless acquiring the lease did, and runs it. The order is the promise: a run is running in the store
// before its work starts, and has ended before the release stores its result.
func (e *execution) work(ctx context.Context, term elect.Term) error {
	h := Holder{Term: term.Number, Instance: term.Instance}
	j, err := e.claim(ctx, h)
	if err != nil {
		return err
	}
	run, on := j.RunningUnder(h.Term)
	if !on {
		return nil // another instance was faster
	}
	out := new(tail)
	stopped := sync.OnceValue(func() bool { return ctx.Err() != nil })
	e.task = &Task{Job: e.offer.Name, Run: run, Session: term.Session, Output: out, stopped: stopped}
	log := e.log.With("scheduled", run.Scheduled, "attempt", run.Attempt)
	log.Info("run started", "late_ms", j.Late(run).Milliseconds())

	aside, endAside := context.WithCancel(ctx)
	var beside sync.WaitGroup
	beside.Go(func() { e.watchOverlaps(aside, h, j) })
	beside.Go(func() { e.keepTail(aside, out) })
	beside.Go(func() {
		if lease.Sleep(aside, e.Keeper.Clock(), deadlineOf(j.Definition)) {
			e.stop(ErrDeadline)
		}
	})
	// What the release stores if the work panics: a run that has started is not given back.
	e.through.finish = Finish(run.Scheduled, run.Term, Result{State: Failed, Why: "the work panicked"})
	err = e.offer.Work(ctx, *e.task)
	wasStopped := stopped()
	endAside()
	beside.Wait()

	result := resultOf(err, wasStopped, context.Cause(ctx))
	e.putLastOutput(ctx, out)
	e.through.finish = Finish(run.Scheduled, run.Term, result) // which the release stores
	log.Log(ctx, levelOf(result.State), "run ended", "state", result.State, "why", result.Why)
	return err
}

func levelOf(s State) slog.Level {
	if s.Bad() {
		return slog.LevelWarn
	}
	return slog.LevelInfo
}

func deadlineOf(d Definition) time.Duration {
	if d.DeadlineMS == 0 {
		return MaxDeadline
	}
	return ms(d.DeadlineMS)
}

// claim tries until the store answers, or trust ends. If acquiring the lease has claimed a run already, it is that.
func (e *execution) claim(ctx context.Context, h Holder) (j Job, err error) {
	if _, on := e.through.claimed.RunningUnder(h.Term); on && ctx.Err() == nil {
		return e.through.claimed, nil
	}
	for retry := e.retry(); ; {
		j, err = e.change(ctx, e.offer.Name, Claim(h))
		if err == nil || !transient(err) {
			break
		}
		e.through.doubt = true
		if !retry.Wait(ctx) {
			return j, context.Cause(ctx)
		}
	}
	if err == nil {
		e.through.claimed = j
		err = context.Cause(ctx) // it is recorded as running, and is not started: the release gives it back
	}
	return j, err
}

func transient(err error) bool {
	return errors.Is(err, lease.ErrUnavailable) || errors.Is(err, lease.ErrUnknown) || errors.Is(err, context.DeadlineExceeded)
}

// watchOverlaps decides about times that come while the run is on.
func (e *execution) watchOverlaps(ctx context.Context, h Holder, j Job) {
	const often = 10 * time.Second         // in case that the job's definition, or the store's clock, has changed
	now, err := e.task.Started, error(nil) // most runs end before the next time
	for ; ; now, err = e.reread(ctx, &j) {
		wait := often
		if err == nil && !j.Next.IsZero() && !j.isBehind() {
			wait = max(j.startsAt(j.Next).Sub(now), time.Millisecond)
		}
		if !lease.Sleep(ctx, e.Keeper.Clock(), min(wait, often)) {
			return
		}
		if wait > often {
			continue
		}
		changed, err := e.change(ctx, e.offer.Name, Overlapping(h))
		if errors.Is(err, ErrStale) {
			return
		}
		if err != nil {
			continue // at the next look
		}
		j = changed
		if j.hasNewQueued() && j.Definition.Overlap == Replace {
			e.stop(ErrReplaced)
			return
		}
	}
}

// reread brings the job up to date, unless the store does not answer, and returns the time by the store's clock.
func (e *execution) reread(ctx context.Context, j *Job) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, e.Keeper.Timing().CallTimeout())
	defer cancel()
	got, now, err := e.Store.Get(ctx, e.offer.Name)
	if err == nil {
		*j = got
	}
	return now, err
}

// hasNewQueued reports whether a run waits, scheduled or triggered, that is not the retry of another.
func (j Job) hasNewQueued() bool {
	return slices.ContainsFunc(j.Open, func(r Run) bool { return r.State == Queued && r.Attempt == 1 })
}

// resultOf is how a run ended whose work returned err; stopped: its context had ended, with a cause.
func resultOf(err error, stopped bool, cause error) Result {
	var exit interface{ ExitCode() int }
	result := Result{State: Succeeded}
	if errors.As(err, &exit) {
		result.ExitCode = exit.ExitCode()
	}
	switch {
	case !stopped && err == nil:
	case errors.Is(err, lease.ErrLost) || stopped && errors.Is(cause, lease.ErrLost):
		result.State, result.Why = Lost, "its instance lost the store: it was stopped"
	case !stopped:
		result.State, result.Why = Failed, err.Error()
	case errors.Is(cause, ErrDeadline):
		result.State, result.Why = TimedOut, "it took longer than its deadline"
	case errors.Is(cause, ErrReplaced):
		result.State, result.Why, result.Replaced = Cancelled, whyReplaced, true
	case errors.Is(cause, elect.ErrMoved):
		result.State, result.Why = Cancelled, "the role that it runs with moved to another instance"
	case errors.Is(cause, lease.ErrResign):
		result.State, result.Why = Cancelled, "its instance was asked to resign"
	default:
		result.State, result.Why = Cancelled, "its instance was stopped"
	}
	return result
}

// keepTail stores the end of the output once a second while it changes.
func (e *execution) keepTail(ctx context.Context, out *tail) {
	for lease.Sleep(ctx, e.Keeper.Clock(), time.Second) {
		e.putOutput(ctx, out)
	}
}

// putLastOutput keeps the output although ctx may have ended, for no longer than half of the trust that is left: until it returns, the
// work counts as running.
func (e *execution) putLastOutput(ctx context.Context, out *tail) {
	if left := e.task.Session.Remaining() / 2; left > 0 {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), left)
		defer cancel()
		e.putOutput(ctx, out)
	}
}

func (e *execution) putOutput(ctx context.Context, out *tail) {
	o, changed := out.unsaved()
	if !changed {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, e.Keeper.Timing().CallTimeout())
	defer cancel()
	if err := e.Store.PutOutput(ctx, RunKey{e.offer.Name, e.task.Scheduled}, e.task.Term, o); err != nil {
		e.log.Debug("output not kept", "err", err)
		return
	}
	out.save(o)
}
