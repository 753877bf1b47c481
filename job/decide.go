package job

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/understudy-ha/understudy/history"
	"github.com/understudy-ha/understudy/lease"
)

// Errors.
var (
	// ErrNotFound: there is no such job or run.
	ErrNotFound = errors.New("job: not found")
	// ErrStale: a later term has claimed a run of the job, or another has ended the run.
	ErrStale = errors.New("job: a later term has taken over")
	// ErrBusy: the job cannot be forgotten while a run is on, or has as many runs queued as it can.
	ErrBusy = errors.New("job: busy")
)

// Holder is the instance that holds a job's lease, and under which term.
type Holder struct {
	Term     int64
	Instance lease.Instance
}

// Change is what a [Decision] makes of a job.
type Change struct {
	// Job as it is to be.
	Job Job
	// Runs that are new or changed.
	Runs []Run
	// Event for the history; none if its Part is "".
	Event history.Event
	// Forget: the job goes, with all its runs.
	Forget bool
	// Unchanged: nothing is to be done.
	Unchanged bool
}

// After is the job after the change, which was made of the job was: without a version if it is forgotten.
func (c Change) After(was Job) Job {
	if c.Forget {
		return Job{Name: was.Name}
	}
	after := c.Job
	after.Version = was.Version + 1
	return after
}

// Decision decides about a job as it is, at a time by the store's clock. It is pure: a store may ask more than once, and
// does what the last answer says, or nothing if that is an error.
type Decision func(j Job, now time.Time) (Change, error)

// pendingChange is what a decision has decided so far.
type pendingChange struct {
	Change
	now time.Time
}

func pendingChangeOf(j Job, now time.Time) *pendingChange {
	j.Open, j.Ended = slices.Clone(j.Open), maps.Clone(j.Ended)
	if j.Ended == nil {
		j.Ended = map[State]int64{}
	}
	return &pendingChange{Change: Change{Job: j}, now: now.UTC()}
}

// put stores a run, and keeps it with the job for as long as it is open.
func (d *pendingChange) put(r Run) {
	d.Runs = append(d.Runs, r)
	open := slices.DeleteFunc(d.Job.Open, func(o Run) bool { return o.Scheduled.Equal(r.Scheduled) })
	if !r.State.Ended() {
		open = append(open, r)
		slices.SortFunc(open, func(a, b Run) int { return a.Scheduled.Compare(b.Scheduled) })
	}
	d.Job.Open = open
}

// end records how a run ended, or that it never started: in its row, in what is shown of the job, in its alarm and counters, and
// in the history if nothing ran to its end.
func (d *pendingChange) end(r Run, s State, why string) {
	r.State, r.Why, r.Ended, r.NotBefore = s, lease.TruncateReason(why), d.now, time.Time{}
	d.put(r)
	d.Job.Last = r
	d.Job.Recent = string(s.Letter()) + d.Job.Recent[:min(len(d.Job.Recent), MaxRecent-1)]
	d.judge(r)
	d.Job.Ended[s]++
	if s == Lost || s == MissedRun || s == Skipped {
		d.note(fmt.Sprintf("run of %s %s: %s", r.Scheduled.Format(time.RFC3339), s, why), r.Term)
	}
}

// note sets the event of the change: a change has one, the last that was noted.
func (d *pendingChange) note(text string, term int64) {
	d.Event = history.Event{Part: Space, Subject: d.Job.Name, Reason: lease.TruncateReason(text), Term: term}
}

func (d *pendingChange) queue(scheduled time.Time, trigger string) {
	if d.Job.queued() >= MaxQueued {
		d.end(Run{Scheduled: scheduled, Trigger: trigger}, Skipped, fmt.Sprintf("%d runs are queued already", MaxQueued))
		return
	}
	d.put(Run{Scheduled: scheduled, Trigger: trigger, State: Queued, Attempt: 1, NotBefore: d.now})
}

// moveOn decides that the next time to decide about is the first after one.
func (d *pendingChange) moveOn(after time.Time) {
	d.Job.Decided = after
	d.seekNext(after)
}

// seekNext makes the first time after one the next to decide about.
func (d *pendingChange) seekNext(after time.Time) {
	d.Job.Next = d.Job.times().Next(after)
	if !d.Job.Next.IsZero() {
		d.Job.Next = d.Job.Next.UTC()
	}
	if d.Job.Next.After(d.Job.Behind) {
		d.Job.Behind = time.Time{}
	}
}

// retry queues an attempt that did not end well once more, if that is declared safe.
func (d *pendingChange) retry(r Run, s State, why string) bool {
	if r.Attempt > d.Job.Definition.Retries {
		return false
	}
	wait := time.Duration(0)
	if s == Failed || s == TimedOut {
		wait = min(time.Second<<min(r.Attempt-1, 9), 5*time.Minute)
		wait += spread(wait, d.Job.Name, r.Scheduled.String())
	}
	r.Before, r.TermBefore, r.Why = s, r.Term, lease.TruncateReason(fmt.Sprintf("attempt %d %s: %s", r.Attempt, s, why))
	d.note(fmt.Sprintf("run of %s is tried again: %s", r.Scheduled.Format(time.RFC3339), r.Why), r.Term)
	r.State, r.NotBefore, r.Started, r.ExitCode = Queued, d.now.Add(wait), time.Time{}, 0
	r.Attempt++
	d.put(r)
	return true
}

// passOver records that no run starts at the next time, and at all others up to the last one: each in a run of its own, or, if
// they are very many, in one.
func (d *pendingChange) passOver(last time.Time, s State, why string) {
	var gap []time.Time
	times, n := d.Job.times(), 0
	for at := d.Job.Next; n < maxWalk && !at.IsZero() && !at.After(last); at = times.Next(at) {
		if n++; n <= MaxQueued {
			gap = append(gap, at.UTC())
		}
	}
	if n > len(gap) {
		least := ""
		if n == maxWalk {
			least = "at least "
		}
		d.Job.Ended[s] += int64(n - 1)
		gap, why = gap[:1], fmt.Sprintf("%s (%s%d times up to %s)", why, least, n, last.UTC().Format(time.RFC3339))
	}
	for _, at := range gap {
		d.end(Run{Scheduled: at}, s, why)
	}
	if len(gap) > 1 {
		d.note(fmt.Sprintf("%d runs from %s on were %s: %s", len(gap), gap[0].Format(time.RFC3339), s, why), 0)
	}
	d.moveOn(last.UTC())
}

// Claim decides for the holder of the job's lease which run it starts now: that run is the one that is running
// afterwards, and there is none if nothing is due. What an earlier holder left running is lost.
func Claim(h Holder) Decision {
	return func(j Job, now time.Time) (Change, error) {
		if j.Version == 0 {
			return Change{}, fmt.Errorf("%w: job %q", ErrNotFound, j.Name)
		}
		if j.Term > h.Term {
			return Change{}, fmt.Errorf("%w: term %d, and this is %d", ErrStale, j.Term, h.Term)
		}
		d := pendingChangeOf(j, now)
		if r, on := j.Running(); on {
			if r.Term == h.Term {
				return Change{Job: j, Unchanged: true}, nil // the answer to the claim was lost
			}
			d.lose(r)
		}
		d.decideOverdue()
		d.dropReplaced()
		d.start(h)
		if len(d.Runs) == 0 {
			return Change{Job: j, Unchanged: true}, nil
		}
		return d.Change, nil
	}
}

// Abandon records that the run of a term is lost, if it is still on: the term has ended, and no instance is left to claim the job.
func Abandon(term int64) Decision {
	return func(j Job, now time.Time) (Change, error) {
		r, on := j.RunningUnder(term)
		if !on {
			return Change{Job: j, Unchanged: true}, nil
		}
		d := pendingChangeOf(j, now)
		d.lose(r)
		return d.Change, nil
	}
}

func (d *pendingChange) lose(r Run) {
	if why := "its instance " + r.Instance.Label() + " is gone"; !d.retry(r, Lost, why) {
		d.end(r, Lost, why)
	}
}

// dropReplaced leaves of the scheduled runs that wait only the latest one, if a run is replaced by the next: otherwise one that
// is always replaced would run later and later.
func (d *pendingChange) dropReplaced() {
	if d.Job.Definition.Overlap != Replace {
		return
	}
	var latest Run
	for _, r := range slices.Clone(d.Job.Open) { // which drop changes in place
		if r.State != Queued || r.Trigger != "" {
			continue
		}
		if latest.Attempt > 0 {
			d.drop(latest, whyReplaced)
		}
		latest = r
	}
}

// drop ends a queued run that is not to start, or not again.
func (d *pendingChange) drop(r Run, why string) {
	s := Skipped
	if r.Attempt > 1 {
		s = Cancelled
	}
	d.end(r, s, why)
}

// start makes the first queued run that may start the running one.
func (d *pendingChange) start(h Holder) {
	for _, r := range d.Job.Open {
		if r.State != Queued || r.NotBefore.After(d.now) {
			continue
		}
		r.State, r.Term, r.Instance, r.Started, r.NotBefore = Running, h.Term, h.Instance, d.now, time.Time{}
		d.Job.Term = h.Term
		d.put(r)
		return
	}
}

const nobody = "no instance was there"

// decideOverdue decides about each time that has come while no run was on.
func (d *pendingChange) decideOverdue() {
	j := d.Job
	if j.Next.IsZero() || j.startsAt(j.Next).After(d.now) {
		return
	}
	times, latest := j.times(), d.latestDue()
	late := d.now.Sub(j.startsAt(latest))
	switch rule := j.Definition.Missed; {
	// A paused job still says for each time that it did not run.
	case j.PausedBy != "":
		d.passOver(latest, Skipped, "paused by "+j.PausedBy)
	case rule == MissedAll:
		d.queueMissed(latest)
	// A minute is how late an instance that was there may be.
	case rule == MissedSkip && late > onTime:
		d.passOver(latest, MissedRun, nobody)
	// One, and skip in time: the latest runs, and those before it were missed.
	default:
		if before := times.Last(j.Next.Add(-1), latest.Add(-1)); !before.IsZero() {
			d.passOver(before, MissedRun, nobody)
		}
		d.queue(latest, "")
		d.moveOn(latest)
	}
}

// queueMissed queues the times of the last day up to the latest that came while no run was on, and no more than may be queued: the rest
// waits, as [Job.Behind], until these have run. What comes while they run overlaps with them: it is skipped then, unless overlaps queue.
func (d *pendingChange) queueMissed(latest time.Time) {
	last := d.Job.Behind
	// A time that came while no run was on must run, and with it all before it: nothing tells them apart any more.
	if last.IsZero() || d.Job.Definition.Overlap == Queue || d.cameIdle() {
		last = latest
	}
	if old := d.now.Add(-maxGone); d.Job.Next.Before(old) {
		d.passOver(d.Job.times().Last(d.Job.Next.Add(-1), old), MissedRun, "it could not run within a day")
	}
	waits := func(until time.Time) bool { return !d.Job.Next.IsZero() && !d.Job.Next.After(until) }
	for waits(last) && d.Job.queued() < MaxQueued {
		next := d.Job.Next
		d.queue(next, "")
		d.moveOn(next)
	}
	switch {
	case waits(last):
		d.Job.Behind = last
	case waits(latest):
		d.passOver(latest, Skipped, "the runs before it were on")
	}
}

// cameIdle reports whether a time may have come since the last run ended. Nobody knows when one ended that was lost.
func (d *pendingChange) cameIdle() bool {
	last := d.Job.Last
	return last.State == Lost || !d.Job.times().Last(last.Ended.Add(-ms(d.Job.Definition.JitterMS)), d.now).IsZero()
}

// latestDue is the latest time that has come, if the next has.
func (d *pendingChange) latestDue() time.Time {
	j := d.Job
	// With a jitter, the latest times may not be due yet.
	if latest := j.times().Last(j.Next.Add(-1), d.now.Add(-ms(j.Definition.JitterMS))); !latest.IsZero() {
		return latest
	}
	return j.Next
}

// Overlapping decides about the times that have come while the holder runs the job. If it is to stop that run for another, one is
// queued, and the job's overlap is [Replace].
func Overlapping(h Holder) Decision {
	return func(j Job, now time.Time) (Change, error) {
		r, on := j.RunningUnder(h.Term)
		if !on {
			return Change{}, fmt.Errorf("%w: term %d runs no more", ErrStale, h.Term)
		}
		d := pendingChangeOf(j, now)
		if d.overlap(r); len(d.Runs) == 0 {
			return Change{Job: j, Unchanged: true}, nil
		}
		return d.Change, nil
	}
}

// overlap decides about the times that have come while a run is on.
func (d *pendingChange) overlap(r Run) {
	came := func() bool { return !d.Job.Next.IsZero() && !d.Job.startsAt(d.Job.Next).After(d.now) }
	switch {
	case !came():
	case d.Job.PausedBy != "":
		d.passOver(d.latestDue(), Skipped, "paused by "+d.Job.PausedBy)
	// Times are decided about in their order: these follow those that wait to be queued.
	case d.Job.isBehind():
	case d.Job.Definition.Overlap == Forbid:
		d.passOver(d.latestDue(), Skipped, "the run of "+r.Scheduled.Format(time.RFC3339)+" was on")
	default:
		for n := 0; n < MaxQueued && came() && !d.Job.isBehind(); n++ {
			next := d.Job.Next
			d.queue(next, "")
			d.moveOn(next)
		}
	}
}
