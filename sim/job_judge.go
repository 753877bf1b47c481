package sim

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/understudy-ha/understudy/job"
	"github.com/understudy-ha/understudy/job/jobtest"
)

// jobJudge knows every start, and what overlaps or comes late; [jobtest.Judge] judges the rest in the end. It is the way by which
// all changes come to the store.
type jobJudge struct {
	job.Store
	world *jobWorld
	quiet atomic.Bool // all faults are over for long

	mu     sync.Mutex
	result JobResult
	on     map[*jobNode]job.Task
	starts []jobtest.Start
	// busy is when runs were on, and idle when the last work ended.
	busy []span
	idle time.Time
	// caughtUp is since when, in quiet, no run is left from before, behind which later ones would wait.
	caughtUp time.Time
}

// span is the time of a run, by the store's clock.
type span struct{ from, to time.Time }

func newJobJudge(w *jobWorld) *jobJudge {
	return &jobJudge{Store: w.store.Jobs(), world: w, on: map[*jobNode]job.Task{}}
}

func (j *jobJudge) trace(format string, args ...any) {
	if j.world.setup.Trace != nil {
		j.world.setup.Trace("%v "+format, append([]any{j.world.now().UTC().Format("15:04:05.000")}, args...)...)
	}
}

func (j *jobJudge) says(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.breach(format, args...)
}

func (j *jobJudge) breach(format string, args ...any) {
	j.trace(format, args...)
	j.result.Broken = append(j.result.Broken, fmt.Sprintf(format, args...))
}

// Change notes what every decision does.
func (j *jobJudge) Change(ctx context.Context, name string, decide job.Decision) (job.Job, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.Store.Change(ctx, name, func(was job.Job, now time.Time) (job.Change, error) {
		c, err := decide(was, now)
		if err != nil || c.Unchanged {
			return c, err
		}
		if j.quiet.Load() && j.caughtUp.IsZero() && len(c.Job.Open) == 0 {
			j.caughtUp = now
		}
		j.notesBusy(was, c, now)
		j.judgesSkipped(was, c)
		for _, r := range c.Runs {
			j.trace("run of %v: %s, attempt %d, term %d, %s %s", r.Scheduled.Format("15:04:05.000"), r.State, r.Attempt, r.Term, r.Instance.Name, r.Why)
			switch r.State {
			case job.Lost:
				j.result.Lost++
			case job.MissedRun:
				j.result.Missed++
			case job.Skipped:
				j.result.Skipped++
			}
		}
		return c, nil
	})
}

// notesBusy: a run is on from its claim to its result. One that is lost was on until its work ended.
func (j *jobJudge) notesBusy(was job.Job, c job.Change, now time.Time) {
	ran, on := was.Running()
	_, still := c.Job.RunningUnder(ran.Term)
	if !on || still && !slices.ContainsFunc(c.Runs, isSkipped) { // its holder alone skips what overlaps with it
		return
	}
	to := now
	for _, r := range c.Runs {
		if r.Scheduled.Equal(ran.Scheduled) && (r.State == job.Lost || r.State == job.Queued && r.Before == job.Lost) {
			to = j.idle
		}
	}
	j.busy = append(j.busy, span{ran.Started, to})
}

// judgesSkipped: what came when nothing ran is not skipped with [job.MissedAll], unless the job was paused.
func (j *jobJudge) judgesSkipped(was job.Job, c job.Change) {
	s := j.world.setup
	if s.Def.Missed != job.MissedAll || s.Def.JitterMS > 0 || s.Steps || was.PausedBy != "" {
		return
	}
	first := slices.IndexFunc(c.Runs, isSkipped)
	if first < 0 {
		return
	}
	// One row may stand for all times from its own to the last that was decided about.
	for at := []time.Time{c.Runs[first].Scheduled}; len(at) > 0 && !at[0].After(c.Job.Decided); at = c.Job.Upcoming(at[0], 1) {
		if !slices.ContainsFunc(j.busy, func(b span) bool { return !at[0].Before(b.from) && !at[0].After(b.to) }) {
			j.breach("the run of %v was due when nothing ran, and is skipped: %s", at[0], c.Runs[first].Why)
			return
		}
	}
}

func isSkipped(r job.Run) bool { return r.State == job.Skipped && r.Trigger == "" }

func key(r job.Run) string { return r.Scheduled.UTC().Format(time.RFC3339Nano) }

// begins: the work of a run begins.
func (j *jobJudge) begins(n *jobNode, t job.Task) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.trace("%s starts the run of %s, attempt %d, under term %d", n.name, key(t.Run), t.Attempt, t.Term)
	s, now := j.world.setup, j.world.now()
	for other, task := range j.on {
		if !s.Freezes { // who is frozen is told to stop, and cannot
			j.breach("%s starts the run of %s while %s is at that of %s", n.name, key(t.Run), other.name, key(task.Run))
		}
	}
	if !j.caughtUp.IsZero() && t.Scheduled.After(j.caughtUp) && t.Attempt == 1 && s.Def.Overlap != job.Queue {
		late := now.Sub(t.Scheduled)
		j.result.Late = max(j.result.Late, late.Seconds())
		if most := s.Timing.WorstTakeover() + s.Takes + s.Grace + 2*time.Second; late > most && t.Trigger == "" {
			j.breach("the run of %s starts %v late, long after all faults", key(t.Run), late)
		}
	}
	j.on[n] = t
	j.starts = append(j.starts, jobtest.Start{Scheduled: t.Scheduled, Attempt: t.Attempt, Term: t.Term, Holder: t.Instance.Label(), At: now})
}

func (j *jobJudge) ends(n *jobNode, t job.Task, well bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	delete(j.on, n)
	j.idle = j.world.now()
	for i, s := range j.starts {
		if s.Term == t.Term && s.Scheduled.Equal(t.Scheduled) {
			j.starts[i].Well = well
		}
	}
}

// dies: whatever the node was at has ended with it.
func (j *jobJudge) dies(n *jobNode) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.trace("%s dies", n.name)
	if _, on := j.on[n]; on {
		delete(j.on, n)
		j.idle = j.world.now()
	}
}

// account judges all that was done.
func (j *jobJudge) account() {
	at, now, err := j.Get(context.Background(), jobName)
	var runs, page []job.Run
	for q := (job.RunQuery{Job: jobName, Limit: 1000}); err == nil; q.Before = page[len(page)-1].Scheduled {
		page, err = j.Runs(context.Background(), q)
		if runs = append(runs, page...); len(page) < q.Limit {
			break
		}
	}
	if err != nil {
		j.says("at the end: %v", err)
		return
	}
	waits := at.Definition.Missed == job.MissedAll && j.world.setup.CatchUp == 0 // of long runs there may be too many for the time that was left
	if behind := now.Sub(at.Next); behind > 2*j.world.setup.Timing.WorstTakeover() && !waits {
		j.says("at the end the job is %v behind", behind)
	}
	v := jobtest.Judge(jobtest.Evidence{Starts: j.starts, Job: at, Runs: runs, Stepped: j.world.setup.Steps})
	for _, violation := range v.Violations {
		j.says("%v", violation)
	}
	j.result.Starts, j.result.Again = v.Starts, v.Again
}
