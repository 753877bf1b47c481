package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/understudy-ha/understudy/api/apitype"
	"github.com/understudy-ha/understudy/job"
	"github.com/understudy-ha/understudy/lease"
)

// Programs in any language run jobs through these routes: they define a job, wait for its next run, and say how it ended. Their
// session is what the job's lease is held by, as with job.Serve.

const (
	// jobLook is how often a job is read again while a caller waits: it may be triggered, or get another schedule.
	jobLook = time.Second
	// staleRetry is the pause after a lease that was held under a term that has ended.
	staleRetry = 50 * time.Millisecond
	// maxJobs bounds the jobs that callers may add.
	maxJobs = 10_000
)

func (s *Server) defineJob(r *http.Request) (out apitype.Job, err error) {
	in, err := bodyOf[apitype.JobDefinition](r)
	if err != nil {
		return out, err
	}
	if in.Overlap == string(job.Replace) {
		return out, fmt.Errorf("%w: overlap replace: a run that another program runs cannot be stopped from here; use forbid or queue", lease.ErrInvalid)
	}
	def := job.Definition{
		Schedule: in.Schedule, Anchor: in.Anchor, JitterMS: in.JitterMS, DeadlineMS: in.DeadlineMS,
		Overlap: job.Overlap(in.Overlap), Missed: job.Missed(in.Missed), Retries: in.Retries,
	}
	name := r.PathValue("job")
	_, _, unknown := s.jobs.Get(r.Context(), name)
	adds := errors.Is(unknown, job.ErrNotFound)
	if adds {
		if err := s.jobQuota.check(r.Context(), ""); err != nil {
			return out, err
		}
	}
	out, err = s.changeJob(r, "", func(string) job.Decision { return job.Define(name, def) })
	if adds && err == nil {
		s.jobQuota.add("")
	}
	return out, err
}

// countJobs counts the jobs, as if of one space, until there are as many as callers may add.
func countJobs(store job.Store) func(context.Context) (map[string]int, error) {
	return func(ctx context.Context) (map[string]int, error) {
		n := 0
		for q := (job.Query{Limit: maxJobs / 10}); n < maxJobs; {
			page, _, err := store.List(ctx, q)
			if n += len(page); err != nil || len(page) < q.Limit {
				return map[string]int{"": n}, err
			}
			q.After = page[len(page)-1].Name
		}
		return map[string]int{"": n}, nil
	}
}

// nextRun waits for a run that is due, and claims it under the job's lease for the caller's session. Who asks again, because the
// answer was lost, gets the same run.
func (s *Server) nextRun(w http.ResponseWriter, r *http.Request) error {
	wait, err := waitParameter(r)
	if err != nil {
		return err
	}
	body, err := bodyOf[apitype.NextRun](r)
	if err != nil {
		return err
	}
	if wait > 0 {
		extendWriteDeadline(w, wait+2*s.cfg.Timeout)
		leave, err := s.waits.take(r, 0)
		if err != nil {
			return err
		}
		defer leave()
	}
	ctx, cancel := context.WithTimeout(r.Context(), s.cfg.Timeout)
	_, err = s.session(ctx, body.Session)
	cancel()
	if err != nil {
		return err
	}
	for end := time.Now().Add(wait); ; {
		j, run, now, err := s.claimRun(r.Context(), r.PathValue("job"), body.Session, time.Until(end))
		switch {
		case err != nil:
			return err
		case run.Term != 0:
			return writeJSON(w, http.StatusOK, viewRun(j, run, now))
		case time.Until(end) <= 0:
			w.WriteHeader(http.StatusNoContent)
			return nil
		}
	}
}

// claimRun claims a run if one is due within a moment, and it can; otherwise that has no term.
func (s *Server) claimRun(ctx context.Context, name, session string, wait time.Duration) (j job.Job, run job.Run, now time.Time, err error) {
	j, now, err = s.readJob(ctx, name)
	if err != nil {
		return j, run, now, err
	}
	if due := j.DueAt(); due.IsZero() || due.After(now) {
		pause := min(wait, jobLook)
		if !due.IsZero() {
			pause = min(pause, due.Sub(now))
		}
		return j, run, now, s.pause(ctx, pause)
	}
	l, err := s.tryAcquire(ctx, job.LeaseID(name), session)
	if errors.Is(err, lease.ErrHeld) && wait > 0 { // its holder may die, or have a run that waits for another
		l, err = s.waitForLease(ctx, job.LeaseID(name), session, wait)
	}
	if errors.Is(err, lease.ErrHeld) { // another has the run
		return j, run, now, nil
	}
	if err != nil {
		return j, run, now, err
	}
	if err = context.Cause(ctx); err == nil { // a caller that has gone gets no run
		j, now, err = s.claimUnder(ctx, name, job.Holder{Term: l.Term, Instance: l.Holder})
	}
	if run, on := j.RunningUnder(l.Term); err == nil && on {
		return j, run, now, nil
	}
	// The term is closed: it had its run, or another request of this session is giving it back, or could not. Under the next one a
	// run can be claimed.
	if errors.Is(err, job.ErrStale) {
		if err = s.release(ctx, name, session, l.Term, "its term has ended"); err == nil {
			err = s.pause(ctx, min(wait, staleRetry))
		}
		return j, job.Run{}, now, err
	}
	return j, job.Run{}, now, errors.Join(err, s.releaseIdle(ctx, name, session, l))
}

// releaseIdle releases a job's lease unless a run is on under it: the caller may have asked again meanwhile, of another server too, or the
// claim that had no answer may have been applied. Then the session keeps both, and whoever asks again is told of the run.
func (s *Server) releaseIdle(ctx context.Context, name, session string, l lease.Lease) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.cfg.Timeout)
	defer cancel()
	j, err := s.jobs.Change(ctx, name, job.Close(l.Term))
	if _, on := j.RunningUnder(l.Term); err != nil || on {
		return err
	}
	return s.release(ctx, name, session, l.Term, "nothing was due")
}

// release releases a job's lease, also for a caller who has gone. One that is not held is no error: it was released before, or has
// lapsed.
func (s *Server) release(ctx context.Context, name, session string, term int64, why string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.cfg.Timeout)
	defer cancel()
	err := s.cfg.Store.Release(ctx, lease.ReleaseRequest{Lease: job.LeaseID(name), Session: session, Term: term, Reason: why})
	if errors.Is(err, lease.ErrNotHeld) {
		return nil
	}
	return err
}

// claimUnder claims a run for the holder of the job's lease, and does not stop at that because the caller goes.
func (s *Server) claimUnder(ctx context.Context, name string, h job.Holder) (j job.Job, now time.Time, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.cfg.Timeout)
	defer cancel()
	j, err = s.jobs.Change(ctx, name, func(j job.Job, at time.Time) (job.Change, error) {
		now = at
		return job.Claim(h)(j, at)
	})
	return j, now, err
}

// readJob reads a job that was not forgotten.
func (s *Server) readJob(ctx context.Context, name string) (job.Job, time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	j, now, err := s.jobs.Get(ctx, name)
	if err == nil && j.ForgottenBy != "" {
		err = fmt.Errorf("%w: job %q was forgotten by %s", job.ErrNotFound, name, j.ForgottenBy)
	}
	return j, now, err
}

// pause waits, while the caller and the server are there.
func (s *Server) pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-s.running.Done():
		return errStopping
	case <-timer.C:
		return nil
	}
}

// endRun records how a run ended, with what came due meanwhile, and releases the job's lease.
func (s *Server) endRun(r *http.Request) (out apitype.Job, err error) {
	body, err := bodyOf[apitype.RunEnd](r)
	if err != nil {
		return out, err
	}
	ends := []job.State{job.Succeeded, job.Failed, job.TimedOut, job.Cancelled}
	at, err := time.Parse(time.RFC3339Nano, r.PathValue("run"))
	switch {
	case err != nil:
		return out, fmt.Errorf("%w: run %.50q: use the scheduled time that you were given", lease.ErrInvalid, r.PathValue("run"))
	case !slices.Contains(ends, job.State(body.State)):
		return out, fmt.Errorf("%w: state %.50q: a run ends as %s", lease.ErrInvalid, body.State, namesOf(ends))
	case len(body.Output) > job.MaxTail:
		return out, fmt.Errorf("%w: %d bytes of output; send the last %d", lease.ErrInvalid, len(body.Output), job.MaxTail)
	}
	if err := validateSession(body.Session); err != nil {
		return out, err
	}
	name, ctx := r.PathValue("job"), r.Context()
	result := job.Result{State: job.State(body.State), ExitCode: body.ExitCode, Why: lease.TruncateReason(body.Why)}
	j, now, late, err := s.finishRun(ctx, job.RunKey{Job: name, Scheduled: at}, body.Term, result)
	if err != nil {
		return out, err
	}
	if !late && len(body.Output) > 0 {
		// After the result, which may come too late, and before the release: until then no attempt can follow that has an output.
		kept := job.Output{Total: int64(len(body.Output)), Tail: body.Output}
		err = s.jobs.PutOutput(ctx, job.RunKey{Job: name, Scheduled: at}, body.Term, kept)
	}
	if err == nil {
		err = s.release(ctx, name, body.Session, body.Term, "run "+body.State)
	}
	switch {
	case err != nil: // a caller that repeats this is told that the result is stored
		return out, fmt.Errorf("%w: the result is stored, and not all that follows it: %w", lease.ErrUnknown, err)
	case late:
		return out, fmt.Errorf("%w: the run of %s under term %d was ended by another instance; this result is in the history", job.ErrStale, r.PathValue("run"), body.Term)
	}
	return s.viewJob(ctx, j, now, 5), nil
}

// errRunLate: a result is for a run that is not on.
var errRunLate = errors.New("the run is not on")

// finishRun records how a run ended, and that no other can be claimed under its term. It is late if another has ended that run: that is
// in the history then.
func (s *Server) finishRun(ctx context.Context, key job.RunKey, term int64, result job.Result) (j job.Job, now time.Time, late bool, err error) {
	record := func(alsoLate bool) {
		j, err = s.jobs.Change(ctx, key.Job, func(j job.Job, t time.Time) (job.Change, error) {
			c, err := job.FinishUnwatched(key.Scheduled, term, result)(j, t)
			run, on := j.RunningUnder(term)
			now, late = t, !c.Unchanged && !(on && run.Scheduled.Equal(key.Scheduled))
			if err == nil && late && !alsoLate {
				err = errRunLate
			}
			return c, err
		})
	}
	if record(false); !errors.Is(err, errRunLate) {
		return j, now, late, err
	}
	// This very result may have ended it, and others since then.
	runs, err := s.jobs.Runs(ctx, job.RunQuery{Job: key.Job, Before: key.Scheduled.Add(time.Millisecond), Limit: 1})
	if err != nil {
		return j, now, late, err
	}
	if len(runs) == 1 && runs[0].Scheduled.Equal(key.Scheduled) && runs[0].EndedAs(term, result.State) {
		j, now, err = s.jobs.Get(ctx, key.Job)
		return j, now, false, err
	}
	record(true)
	return j, now, late, err
}
