package job

import (
	"fmt"
	"slices"
	"time"
)

// Result is how a run ended.
type Result struct {
	State    State
	ExitCode int
	Why      string
	Replaced bool // by the next run, so that it is not tried again
}

// Finish records how the run ended that was started under the term. A result that comes too late changes nothing, but
// for an event.
func Finish(scheduled time.Time, term int64, got Result) Decision {
	return finish(scheduled, term, got, func(*pendingChange, Run) {})
}

// FinishUnwatched is Finish for a run beside which nobody decided about the times that came: as [Overlapping] does, it
// decides about them first. No other run can be claimed under the term then, as by [Close]: the release that follows may be
// repeated, and would end it.
func FinishUnwatched(scheduled time.Time, term int64, got Result) Decision {
	ends := finish(scheduled, term, got, (*pendingChange).overlap)
	return func(j Job, now time.Time) (Change, error) {
		if r, on := j.RunningUnder(term); on && r.Scheduled.Equal(scheduled) {
			return closing(term, ends)(j, now)
		}
		return ends(j, now)
	}
}

func finish(scheduled time.Time, term int64, got Result, first func(*pendingChange, Run)) Decision {
	return func(j Job, now time.Time) (Change, error) {
		d := pendingChangeOf(j, now)
		r, on := j.Running()
		switch {
		case j.Version == 0:
			return Change{}, fmt.Errorf("%w: job %q", ErrNotFound, j.Name)
		case !on || r.Term != term || !r.Scheduled.Equal(scheduled):
			if j.knows(scheduled, term, got.State) {
				return Change{Job: j, Unchanged: true}, nil // the answer to the result was lost
			}
			d.note(fmt.Sprintf("run of %s under term %d ended late: %s %s", scheduled.Format(time.RFC3339), term, got.State, got.Why), term)
			return d.Change, nil
		}
		first(d, r)
		r.ExitCode = got.ExitCode
		again := got.State != Succeeded && !got.Replaced && d.retry(r, got.State, got.Why)
		if !again {
			d.end(r, got.State, got.Why)
		}
		return d.Change, nil
	}
}

// giveBack queues a run again that was claimed and not started; without a time, whichever is on under the term.
func giveBack(claimed Run) Decision {
	return func(j Job, now time.Time) (Change, error) {
		r, on := j.RunningUnder(claimed.Term)
		if !on || !claimed.Scheduled.IsZero() && !r.Scheduled.Equal(claimed.Scheduled) {
			return Change{Job: j, Unchanged: true}, nil
		}
		d := pendingChangeOf(j, now)
		d.put(Run{Scheduled: r.Scheduled, Trigger: r.Trigger, State: Queued, Attempt: r.Attempt, Before: r.Before, TermBefore: r.TermBefore, NotBefore: d.now, Why: r.Why})
		return d.Change, nil
	}
}

// Close has claims under the term refused from now on, unless a run is on under it. It is for the holder of the job's lease, before the
// release.
func Close(term int64) Decision {
	unchanged := func(j Job, _ time.Time) (Change, error) { return Change{Job: j, Unchanged: true}, nil }
	return func(j Job, now time.Time) (Change, error) {
		if _, on := j.RunningUnder(term); on {
			return unchanged(j, now)
		}
		return closing(term, unchanged)(j, now)
	}
}

// closing is a decision after which no claim under the term is accepted: one without an answer may reach the store when its lease has been
// released, and would have a run on that nobody starts.
func closing(term int64, decide Decision) Decision {
	return func(j Job, now time.Time) (Change, error) {
		c, err := decide(j, now)
		if err == nil && c.Job.Version > 0 && c.Job.Term <= term {
			c.Job.Term, c.Unchanged = term+1, false
		}
		return c, err
	}
}

// knows reports whether the result of a run is stored with the job already.
func (j Job) knows(scheduled time.Time, term int64, s State) bool {
	same := func(r Run) bool { return r.Scheduled.Equal(scheduled) && r.EndedAs(term, s) }
	return same(j.Last) || slices.ContainsFunc(j.Open, same)
}

// EndedAs reports whether the run, or the attempt before its last, ended in the state under the term.
func (r Run) EndedAs(term int64, s State) bool {
	return r.State.Ended() && r.Term == term && r.State == s || r.TermBefore == term && r.Before == s
}

const whyReplaced = "replaced by the next run"
