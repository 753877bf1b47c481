package sim

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/understudy-ha/understudy/job"
	"github.com/understudy-ha/understudy/schedule"
)

// jobJudge knows every scheduled time and every start. It is the way by which all changes come to the store.
type jobJudge struct {
	job.Store
	world *jobWorld
	quiet atomic.Bool // all faults are over for long

	mu      sync.Mutex
	result  JobResult
	on      map[*jobNode]job.Task
	started map[string]bool // "key/attempt"
	well    map[string]bool // "key/term" of work that returned without an error
	term    int64
	asked   int // runs that were triggered
}

func newJobJudge(w *jobWorld) *jobJudge {
	return &jobJudge{
		Store: w.store.Jobs(), world: w,
		on: map[*jobNode]job.Task{}, started: map[string]bool{}, well: map[string]bool{},
	}
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
		for _, r := range c.Runs {
			j.trace("run of %v: %s, attempt %d, term %d, %s %s", r.Scheduled.Format("15:04:05.000"), r.State, r.Attempt, r.Term, r.Instance.Name, r.Why)
			if r.Trigger != "" && r.State == job.Queued && r.Attempt == 1 {
				j.asked++
			}
			j.decided(r)
		}
		return c, nil
	})
}

// decided checks what is said of a run against what is known of it.
func (j *jobJudge) decided(r job.Run) {
	at := key(r)
	switch r.State {
	case job.Succeeded:
		if !j.well[fmt.Sprint(at, r.Term)] {
			j.breach("the run of %s is said to have succeeded under term %d, and did not", at, r.Term)
		}
	case job.MissedRun, job.Skipped:
		if j.started[at+"/1"] {
			j.breach("the run of %s is said to be %s, and was started", at, r.State)
		}
	}
	switch r.State {
	case job.Lost:
		j.result.Lost++
	case job.MissedRun:
		j.result.Missed++
	case job.Skipped:
		j.result.Skipped++
	}
}

func key(r job.Run) string { return r.Scheduled.UTC().Format(time.RFC3339Nano) }

// starts: the work of a run begins.
func (j *jobJudge) starts(n *jobNode, t job.Task) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.trace("%s starts the run of %s, attempt %d, under term %d", n.name, key(t.Run), t.Attempt, t.Term)
	j.result.Starts++
	s := j.world.setup
	for other, task := range j.on {
		if !s.Freezes { // who is frozen is told to stop, and cannot
			j.breach("%s starts the run of %s while %s is at that of %s", n.name, key(t.Run), other.name, key(task.Run))
		}
	}
	attempt := fmt.Sprintf("%s/%d", key(t.Run), t.Attempt)
	if j.started[attempt] {
		j.breach("attempt %s starts twice", attempt)
	}
	if t.Attempt > 1 {
		j.result.Two++
	}
	if t.Attempt > 1+s.Def.Retries {
		j.breach("attempt %s was not declared safe", attempt)
	}
	if t.Term <= j.term {
		j.breach("term %d starts a run after term %d", t.Term, j.term)
	}
	late := j.world.now().Sub(t.Scheduled)
	if late < 0 && !s.Steps {
		j.breach("the run of %s starts %v before its time", key(t.Run), -late)
	}
	if j.quiet.Load() && t.Attempt == 1 && s.Def.Overlap != job.Queue && s.Def.Missed != job.MissedAll {
		j.result.Late = max(j.result.Late, late.Seconds())
		if most := s.Timing.WorstTakeover() + s.Takes + s.Grace + 2*time.Second; late > most && t.Trigger == "" {
			j.breach("the run of %s starts %v late, long after all faults", key(t.Run), late)
		}
	}
	j.on[n], j.started[attempt], j.term = t, true, t.Term
}

func (j *jobJudge) ends(n *jobNode, t job.Task, well bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	delete(j.on, n)
	if well {
		j.well[fmt.Sprint(key(t.Run), t.Term)] = true
	}
}

// dies: whatever the node was at has ended with it.
func (j *jobJudge) dies(n *jobNode) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.trace("%s dies", n.name)
	delete(j.on, n)
}

// account counts: each scheduled time has its run, and nothing else has one.
func (j *jobJudge) account() {
	at, _, err := j.Get(context.Background(), jobName)
	if err != nil {
		j.says("at the end: %v", err)
		return
	}
	times, err := schedule.Parse(at.Definition.Schedule)
	if err != nil {
		j.says("at the end: %v", err)
		return
	}
	times = times.Anchored(at.Created)
	want, next := int64(0), times.Next(at.Created)
	for ; !next.After(at.Decided); next = times.Next(next) {
		want++
	}
	got := int64(len(at.Open)) - int64(j.asked)
	for _, n := range at.Ended {
		got += n
	}
	if got != want {
		j.says("%d times up to %v have %d runs: %v and %d open, %d asked for", want, at.Decided, got, at.Ended, len(at.Open), j.asked)
	}
	if !next.Equal(at.Next) {
		j.says("after %v comes %v, and the job waits for %v", at.Decided, next, at.Next)
	}
	if behind := j.world.now().Sub(at.Next); behind > 2*j.world.setup.Timing.WorstTakeover() && at.Definition.Missed != job.MissedAll {
		j.says("at the end the job is %v behind", behind)
	}
}
