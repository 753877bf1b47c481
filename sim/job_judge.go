package sim

import (
	"context"
	"fmt"
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
	// caughtUp is since when, in quiet, no run is left from before, behind which later ones would wait.
	caughtUp time.Time
}

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
	if !j.caughtUp.IsZero() && t.Scheduled.After(j.caughtUp) && t.Attempt == 1 && s.Def.Overlap != job.Queue && s.Def.Missed != job.MissedAll {
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
	delete(j.on, n)
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
	if behind := now.Sub(at.Next); behind > 2*j.world.setup.Timing.WorstTakeover() && at.Definition.Missed != job.MissedAll {
		j.says("at the end the job is %v behind", behind)
	}
	v := jobtest.Judge(jobtest.Evidence{Starts: j.starts, Job: at, Runs: runs, Stepped: j.world.setup.Steps})
	for _, violation := range v.Violations {
		j.says("%v", violation)
	}
	j.result.Starts, j.result.Again = v.Starts, v.Again
}
