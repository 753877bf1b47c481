package redis

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/understudy-ha/understudy/internal/backoff"
	"github.com/understudy-ha/understudy/job"
	"github.com/understudy-ha/understudy/store"
)

var _ store.Jobs = (*Store)(nil)

// Jobs is what the store keeps for package job.
func (s *Store) Jobs() job.Store { return jobs{s} }

// jobs is the [job.Store] of a Store. A change is decided here from what was read, and is applied if the job's version is
// still the same.
type jobs struct{ s *Store }

func (j jobs) keys() []string { return []string{j.s.root + "jobs"} }

// Change implements [job.Store].
func (j jobs) Change(ctx context.Context, name string, decide job.Decision) (job.Job, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	for retry := (backoff.Backoff{First: time.Millisecond, Most: 32 * time.Millisecond}); retry.Failures() < maxAttempts; {
		was, now, err := j.read(ctx, name)
		if err != nil {
			return job.Job{}, fmt.Errorf("changing job %q: %w", name, err)
		}
		c, err := decide(was, now)
		if err != nil || c.Unchanged {
			return was, err
		}
		out := c.After(was)
		args, err := j.changeArgs(was, out, c)
		if err != nil {
			return job.Job{}, err
		}
		answer, err := j.s.run(ctx, j.s.rest, writes, "job_change", j.keys(), args...)
		if err != nil {
			return job.Job{}, fmt.Errorf("changing job %q: %w", name, err)
		}
		if answer.text() == "ok" {
			return out, nil
		}
		if err := answer.err(); err != nil {
			return job.Job{}, err
		}
		if !retry.Wait(ctx) {
			break
		}
	}
	return job.Job{}, failure(fmt.Errorf("changing job %q: others came in between each time", name), false)
}

func (j jobs) changeArgs(was, out job.Job, c job.Change) ([]any, error) {
	doc := ""
	if !c.Forget {
		var err error
		if doc, err = job.Encode(out); err != nil {
			return nil, err
		}
	}
	prune := out.Version > 0 && job.PrunesAt(out.Version)
	e := c.Event
	args := []any{
		was.Name, was.Version, out.Version, out.DueMillis(), doc, prune, job.KeepRuns, job.KeepTails,
		e.Part, e.Reason, e.Term, j.s.keep, j.s.channel,
	}
	for _, r := range c.Runs {
		doc, err := job.Encode(r)
		if err != nil {
			return nil, err
		}
		args = append(args, r.Scheduled.UnixMilli(), r.Term, doc)
	}
	return args, nil
}

// read reads a job, which has no version if it is not there.
func (j jobs) read(ctx context.Context, name string) (out job.Job, now time.Time, err error) {
	answer, err := j.s.run(ctx, j.s.rest, reads, "job_get", j.keys(), name)
	if err != nil {
		return out, now, err
	}
	now = answer.time().UTC()
	out, err = jobOf(name, answer)
	return out, now, err
}

// jobOf reads a version and a document.
func jobOf(name string, r *row) (out job.Job, err error) {
	version, doc := r.number(), r.text()
	if err := r.err(); err != nil || version == 0 {
		return job.Job{Name: name}, err
	}
	out, err = job.Decode[job.Job](doc)
	if err != nil {
		return out, foreign("jobs", err)
	}
	out.Name, out.Version = name, version
	return out, nil
}

// Get implements [job.Store].
func (j jobs) Get(ctx context.Context, name string) (job.Job, time.Time, error) {
	out, now, err := j.read(ctx, name)
	switch {
	case err != nil:
		return job.Job{}, now, fmt.Errorf("reading job %q: %w", name, err)
	case out.Version == 0:
		return job.Job{}, now, fmt.Errorf("%w: job %q", job.ErrNotFound, name)
	}
	return out, now, nil
}

// List implements [job.Store].
func (j jobs) List(ctx context.Context, q job.Query) (out []job.Job, now time.Time, err error) {
	if q.DueWithin == 0 {
		return j.rows(ctx, "job_list", q.After, q.Limit)
	}
	names, now, err := j.due(ctx, q)
	// One that was forgotten meanwhile makes room for another: a short page would say that nothing comes after it.
	for err == nil && len(out) < q.Limit && len(names) > 0 {
		n := min(len(names), q.Limit-len(out))
		var some []job.Job
		some, _, err = j.rows(ctx, "job_read", names[:n]...)
		out, names = append(out, some...), names[n:]
	}
	if err != nil {
		return nil, now, err
	}
	return out, now, nil
}

// due returns the names of the jobs that q selects, in order, without regard to its limit.
func (j jobs) due(ctx context.Context, q job.Query) (names []any, now time.Time, err error) {
	answer, err := j.s.run(ctx, j.s.rest, reads, "job_due", j.keys(), q.DueWithin.Milliseconds())
	if err != nil {
		return nil, now, fmt.Errorf("listing jobs: %w", err)
	}
	now = answer.time().UTC()
	var all []string
	for answer.more() {
		if name := answer.text(); name > q.After {
			all = append(all, name)
		}
	}
	slices.Sort(all)
	for _, name := range all {
		names = append(names, name)
	}
	return names, now, answer.err()
}

// rows reads jobs with one script.
func (j jobs) rows(ctx context.Context, script string, args ...any) (out []job.Job, now time.Time, err error) {
	answer, err := j.s.run(ctx, j.s.rest, reads, script, j.keys(), args...)
	if err != nil {
		return nil, now, fmt.Errorf("listing jobs: %w", err)
	}
	now = answer.time().UTC()
	for answer.more() {
		one, err := jobOf(answer.text(), answer)
		if err != nil {
			return nil, now, err
		}
		out = append(out, one)
	}
	return out, now, answer.err()
}

// Runs implements [job.Store].
func (j jobs) Runs(ctx context.Context, q job.RunQuery) (out []job.Run, err error) {
	answer, err := j.s.run(ctx, j.s.rest, reads, "job_runs", j.keys(), q.Job, q.BeforeMillis(), string(q.State), q.Limit)
	if err != nil {
		return nil, fmt.Errorf("listing runs: %w", err)
	}
	for answer.more() {
		one, err := job.Decode[job.Run](answer.text())
		if err != nil {
			return nil, foreign("jobs", err)
		}
		out = append(out, one)
	}
	return out, answer.err()
}

// PutOutput implements [job.Store].
func (j jobs) PutOutput(ctx context.Context, key job.RunKey, term int64, o job.Output) error {
	answer, err := j.s.run(ctx, j.s.rest, writes, "job_output", j.keys(), key.Job, key.Scheduled.UnixMilli(), "put", term, o.Total, o.Tail)
	if err != nil {
		return fmt.Errorf("keeping output: %w", err)
	}
	if answer.text() != "ok" {
		return fmt.Errorf("%w: %s under term %d", job.ErrNotFound, key, term)
	}
	return answer.err()
}

// Output implements [job.Store].
func (j jobs) Output(ctx context.Context, key job.RunKey) (o job.Output, err error) {
	answer, err := j.s.run(ctx, j.s.rest, reads, "job_output", j.keys(), key.Job, key.Scheduled.UnixMilli(), "get")
	if err != nil {
		return o, fmt.Errorf("reading output: %w", err)
	}
	if answer.text() != "ok" {
		return o, fmt.Errorf("%w: %s", job.ErrNotFound, key)
	}
	o = job.Output{Total: answer.number(), Tail: []byte(answer.text())}
	return o, answer.err()
}
