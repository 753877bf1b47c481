package memory

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/understudy-ha/understudy/job"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/store"
)

var (
	_ store.Jobs        = (*Store)(nil)
	_ job.CombinedStore = jobs{}
)

// Jobs is what the store keeps for package job.
func (s *Store) Jobs() job.Store { return jobs{s} }

// jobs is the [job.Store] of a Store.
type jobs struct{ s *Store }

// jobRow is a job with its runs, by their keys in milliseconds.
type jobRow struct {
	job.Job
	runs map[int64]*runRow
}

type runRow struct {
	job.Run
	output job.Output
}

// Change implements [job.Store].
func (j jobs) Change(ctx context.Context, name string, decide job.Decision) (job.Job, error) {
	if err := j.s.begin(ctx, "changing a job"); err != nil {
		return job.Job{}, err
	}
	defer j.s.mu.Unlock()
	return j.change(name, decide)
}

// AcquireAndChange implements [job.CombinedStore].
func (j jobs) AcquireAndChange(ctx context.Context, e lease.Expectation, name string, decide func(lease.Lease) job.Decision) (l lease.Lease, out job.Job, err error) {
	if err := j.s.begin(ctx, "changing a job"); err != nil {
		return l, out, err
	}
	defer j.s.mu.Unlock()
	l, err = j.s.acquire(e, func(l lease.Lease) (err error) {
		out, err = j.change(name, decide(l))
		return err
	})
	return l, out, err
}

// ChangeAndRelease implements [job.CombinedStore].
func (j jobs) ChangeAndRelease(ctx context.Context, name string, decide job.Decision, r lease.ReleaseRequest) error {
	if err := j.s.begin(ctx, "changing a job"); err != nil {
		return err
	}
	defer j.s.mu.Unlock()
	if _, err := j.change(name, decide); err != nil {
		return err
	}
	return j.s.release(r)
}

func (j jobs) change(name string, decide job.Decision) (job.Job, error) {
	now := j.s.now()
	kept := j.s.jobs[name]
	was := job.Job{Name: name}
	if kept != nil {
		was = kept.shown()
	}
	c, err := decide(was, now)
	if err != nil {
		return job.Job{}, err
	}
	if c.Unchanged {
		return was, nil
	}
	if c.Event.Part != "" {
		j.s.record(now, c.Event, lease.Change{})
	}
	if c.Forget {
		delete(j.s.jobs, name)
		return c.After(was), nil
	}
	if kept == nil {
		kept = &jobRow{runs: map[int64]*runRow{}}
		j.s.jobs[name] = kept
	}
	kept.Job = c.After(was)
	for _, r := range c.Runs {
		at := r.Scheduled.UnixMilli()
		if kept.runs[at] == nil {
			kept.runs[at] = &runRow{}
		}
		kept.runs[at].Run = r
	}
	if job.PrunesAt(kept.Version) {
		kept.prune()
	}
	return kept.shown(), nil
}

// shown is a copy.
func (r *jobRow) shown() job.Job {
	out := r.Job
	out.Open, out.Ended = slices.Clone(out.Open), maps.Clone(out.Ended)
	return out
}

// keys are those of the runs, the latest first.
func (r *jobRow) keys() []int64 {
	all := slices.Sorted(maps.Keys(r.runs))
	slices.Reverse(all)
	return all
}

func (r *jobRow) prune() {
	for n, at := range r.keys() {
		switch {
		case n >= job.KeepRuns:
			delete(r.runs, at)
		case n >= job.KeepTails:
			r.runs[at].output.Tail = nil
		}
	}
}

// Get implements [job.Store].
func (j jobs) Get(ctx context.Context, name string) (job.Job, time.Time, error) {
	if err := j.s.begin(ctx, "reading a job"); err != nil {
		return job.Job{}, time.Time{}, err
	}
	defer j.s.mu.Unlock()
	r := j.s.jobs[name]
	if r == nil {
		return job.Job{}, time.Time{}, fmt.Errorf("%w: job %q", job.ErrNotFound, name)
	}
	return r.shown(), j.s.now(), nil
}

// List implements [job.Store].
func (j jobs) List(ctx context.Context, q job.Query) (out []job.Job, now time.Time, err error) {
	if err := j.s.begin(ctx, "listing jobs"); err != nil {
		return nil, now, err
	}
	defer j.s.mu.Unlock()
	now = j.s.now()
	for _, name := range slices.Sorted(maps.Keys(j.s.jobs)) {
		r := j.s.jobs[name]
		if strings.Compare(name, q.After) <= 0 || q.DueWithin != 0 && r.DueMillis() > now.Add(q.DueWithin).UnixMilli() {
			continue
		}
		if out = append(out, r.shown()); len(out) == q.Limit {
			break
		}
	}
	return out, now, nil
}

// Runs implements [job.Store].
func (j jobs) Runs(ctx context.Context, q job.RunQuery) (out []job.Run, err error) {
	if err := j.s.begin(ctx, "listing runs"); err != nil {
		return nil, err
	}
	defer j.s.mu.Unlock()
	r := j.s.jobs[q.Job]
	if r == nil {
		return nil, nil
	}
	for _, at := range r.keys() {
		run := r.runs[at].Run
		if at >= q.BeforeMillis() || q.State != "" && q.State != run.State {
			continue
		}
		if out = append(out, run); len(out) == q.Limit {
			break
		}
	}
	return out, nil
}

// run finds a run.
func (j jobs) run(key job.RunKey) (*runRow, error) {
	if r := j.s.jobs[key.Job]; r != nil && r.runs[key.Scheduled.UnixMilli()] != nil {
		return r.runs[key.Scheduled.UnixMilli()], nil
	}
	return nil, fmt.Errorf("%w: %s", job.ErrNotFound, key)
}

// PutOutput implements [job.Store].
func (j jobs) PutOutput(ctx context.Context, key job.RunKey, term int64, o job.Output) error {
	if err := j.s.begin(ctx, "keeping output"); err != nil {
		return err
	}
	defer j.s.mu.Unlock()
	r, err := j.run(key)
	if err == nil && r.Term != term {
		err = fmt.Errorf("%w: %s under term %d", job.ErrNotFound, key, term)
	}
	if err == nil {
		r.output = job.Output{Total: o.Total, Tail: slices.Clone(o.Tail)}
	}
	return err
}

// Output implements [job.Store].
func (j jobs) Output(ctx context.Context, key job.RunKey) (job.Output, error) {
	if err := j.s.begin(ctx, "reading output"); err != nil {
		return job.Output{}, err
	}
	defer j.s.mu.Unlock()
	r, err := j.run(key)
	if err != nil {
		return job.Output{}, err
	}
	return job.Output{Total: r.output.Total, Tail: slices.Clone(r.output.Tail)}, nil
}
