package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
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

// jobs is the [job.Store] of a Store. Its clock is the wall clock, which is the same for all processes of the host.
type jobs struct{ s *Store }

const (
	jobRow = "SELECT name, version, doc FROM understudy_job WHERE name = ?1"
	putJob = `
INSERT INTO understudy_job (name, version, due_ms, doc) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (name) DO UPDATE SET version = ?2, due_ms = ?3, doc = ?4`
	putRun = `
INSERT INTO understudy_job_run (job, scheduled_ms, state, term, doc) VALUES (?1, ?2, ?3, ?4, ?5)
ON CONFLICT (job, scheduled_ms) DO UPDATE SET state = ?3, term = ?4, doc = ?5`
	dropJob  = "DELETE FROM understudy_job WHERE name = ?1"
	dropRuns = "DELETE FROM understudy_job_run WHERE job = ?1"

	pruneRuns = `
DELETE FROM understudy_job_run WHERE job = ?1 AND scheduled_ms <=
  (SELECT scheduled_ms FROM understudy_job_run WHERE job = ?1 ORDER BY scheduled_ms DESC LIMIT 1 OFFSET ?2)`
	pruneOutput = `
UPDATE understudy_job_run SET output = x'' WHERE job = ?1 AND output <> x'' AND scheduled_ms <=
  (SELECT scheduled_ms FROM understudy_job_run WHERE job = ?1 ORDER BY scheduled_ms DESC LIMIT 1 OFFSET ?2)`

	allJobs = "SELECT name, version, doc FROM understudy_job WHERE name > ?1 ORDER BY name LIMIT ?2"
	// The key would do for the order, and read every job.
	dueJobs = "SELECT name, version, doc FROM understudy_job INDEXED BY understudy_job_due WHERE due_ms <= ?3 AND name > ?1 ORDER BY name LIMIT ?2"

	jobRuns = `
SELECT doc FROM understudy_job_run WHERE job = ?1 AND scheduled_ms < ?2 AND (?3 = '' OR state = ?3)
ORDER BY scheduled_ms DESC LIMIT ?4`
	putOutput = "UPDATE understudy_job_run SET total = ?4, output = ?5 WHERE job = ?1 AND scheduled_ms = ?2 AND term = ?3"
	runOutput = "SELECT total, output FROM understudy_job_run WHERE job = ?1 AND scheduled_ms = ?2"
)

// Change implements [job.Store].
func (j jobs) Change(ctx context.Context, name string, decide job.Decision) (out job.Job, err error) {
	err = j.change(ctx, func(t *txn) (refused, err error) {
		out, refused, err = t.change(name, decide)
		return refused, err
	})
	if err != nil {
		return job.Job{}, err
	}
	return out, nil
}

// AcquireAndChange implements [job.CombinedStore].
func (j jobs) AcquireAndChange(ctx context.Context, e lease.Expectation, name string, decide func(lease.Lease) job.Decision) (l lease.Lease, out job.Job, err error) {
	err = j.change(ctx, func(t *txn) (refused, err error) {
		if l, err = t.acquire(e); err == nil {
			out, refused, err = t.change(name, decide(l))
		}
		return refused, err
	})
	switch {
	case err == nil:
		return l, out, nil
	case errors.Is(err, lease.ErrHeld):
		return l, job.Job{}, err
	}
	return lease.Lease{}, job.Job{}, err
}

// ChangeAndRelease implements [job.CombinedStore].
func (j jobs) ChangeAndRelease(ctx context.Context, name string, decide job.Decision, r lease.ReleaseRequest) error {
	var free error
	err := j.change(ctx, func(t *txn) (refused, err error) {
		if _, refused, err = t.change(name, decide); refused != nil || err != nil {
			return refused, err
		}
		if free = t.releaseLease(r); errors.Is(free, lease.ErrNotHeld) {
			return nil, nil
		}
		return nil, free
	})
	if err == nil {
		err = free
	}
	return err
}

// change runs fn in a transaction, and returns as it is what a decision refused.
func (j jobs) change(ctx context.Context, fn func(*txn) (refused, err error)) error {
	var refused error
	err := j.s.write(ctx, "changing a job", func(t *txn) (err error) {
		if refused, err = fn(t); err == nil {
			err = refused
		}
		return err
	})
	if refused != nil {
		return refused
	}
	return err
}

// change does what decide makes of a job; refused is its error.
func (t *txn) change(name string, decide job.Decision) (out job.Job, refused, err error) {
	was, err := readJob(t.call, name)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return was, nil, err
	}
	c, refused := decide(was, t.wallTime())
	if refused != nil || c.Unchanged {
		return was, refused, nil
	}
	out, err = t.changeJob(was, c)
	return out, nil, err
}

func readJob(c call, name string) (job.Job, error) {
	return scanJob(func(dest ...any) error { return c.one(jobRow, []any{name}, dest...) }, name)
}

// scanJob reads a row.
func scanJob(scan scanner, name string) (job.Job, error) {
	var version int64
	var doc string
	if err := scan(&name, &version, &doc); err != nil {
		return job.Job{Name: name}, err
	}
	out, err := job.Decode[job.Job](doc)
	out.Name, out.Version = name, version
	return out, err
}

func (t *txn) changeJob(was job.Job, c job.Change) (job.Job, error) {
	if c.Event.Part != "" {
		if err := t.record(c.Event, changeNoLease, ""); err != nil {
			return was, err
		}
	}
	name, out := was.Name, c.After(was)
	if c.Forget {
		_, err := t.exec(dropJob, name)
		if err == nil {
			_, err = t.exec(dropRuns, name)
		}
		return out, err
	}
	doc, err := job.Encode(out)
	if err == nil {
		_, err = t.exec(putJob, name, out.Version, out.DueMillis(), doc)
	}
	for _, r := range c.Runs {
		if err == nil {
			doc, err = job.Encode(r)
		}
		if err == nil {
			_, err = t.exec(putRun, name, r.Scheduled.UnixMilli(), string(r.State), r.Term, doc)
		}
	}
	if err == nil && job.PrunesAt(out.Version) {
		if _, err = t.exec(pruneRuns, name, job.KeepRuns); err == nil {
			_, err = t.exec(pruneOutput, name, job.KeepTails)
		}
	}
	return out, err
}

// Get implements [job.Store].
func (j jobs) Get(ctx context.Context, name string) (out job.Job, now time.Time, err error) {
	err = j.s.read(ctx, "reading a job", func(c call) (err error) {
		if out, err = readJob(c, name); errors.Is(err, sql.ErrNoRows) {
			return fmt.Errorf("%w: job %q", job.ErrNotFound, name)
		}
		return err
	})
	if err != nil {
		return job.Job{}, now, err
	}
	return out, j.now(), nil
}

// now is read after a job that it is compared with, so that nothing in that is later, and before a list: what is not in that was not due.
func (j jobs) now() time.Time { return time.UnixMicro(j.s.clocks.wallMicros()).UTC() }

// List implements [job.Store].
func (j jobs) List(ctx context.Context, q job.Query) (out []job.Job, now time.Time, err error) {
	text, args := allJobs, []any{q.After, q.Limit}
	if now = j.now(); q.DueWithin != 0 {
		text, args = dueJobs, append(args, now.Add(q.DueWithin).UnixMilli())
	}
	out, err = readAll(ctx, j.s, "listing jobs", text, args, func(scan scanner) (job.Job, error) {
		return scanJob(scan, "")
	})
	return out, now, err
}

// Runs implements [job.Store].
func (j jobs) Runs(ctx context.Context, q job.RunQuery) ([]job.Run, error) {
	return readAll(ctx, j.s, "listing runs", jobRuns, []any{q.Job, q.BeforeMillis(), string(q.State), q.Limit}, func(scan scanner) (job.Run, error) {
		doc, err := list1[string](scan)
		if err != nil {
			return job.Run{}, err
		}
		return job.Decode[job.Run](doc)
	})
}

// PutOutput implements [job.Store].
func (j jobs) PutOutput(ctx context.Context, key job.RunKey, term int64, o job.Output) error {
	return j.s.write(ctx, "keeping output", func(t *txn) error {
		n, err := t.exec(putOutput, key.Job, key.Scheduled.UnixMilli(), term, o.Total, append([]byte{}, o.Tail...))
		if err == nil && n == 0 {
			err = fmt.Errorf("%w: %s under term %d", job.ErrNotFound, key, term)
		}
		return err
	})
}

// Output implements [job.Store].
func (j jobs) Output(ctx context.Context, key job.RunKey) (o job.Output, err error) {
	err = j.s.read(ctx, "reading output", func(c call) error {
		err := c.one(runOutput, []any{key.Job, key.Scheduled.UnixMilli()}, &o.Total, &o.Tail)
		if errors.Is(err, sql.ErrNoRows) {
			return fmt.Errorf("%w: %s", job.ErrNotFound, key)
		}
		return err
	})
	return o, err
}
