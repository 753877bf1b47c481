package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/understudy-ha/understudy/job"
	"github.com/understudy-ha/understudy/store"
)

var _ store.Jobs = (*Store)(nil)

// Jobs is what the store keeps for package job.
func (s *Store) Jobs() job.Store { return jobs{s} }

// jobs is the [job.Store] of a Store.
type jobs struct{ db *Store }

const (
	// Whoever changes a job has this lock; a row that is not there yet cannot be locked.
	lockJob = "SELECT {{rules}}.configure_statement($1), pg_advisory_xact_lock(hashtext({{channel}} || ' job'), hashtext($2))"

	jobRow = "SELECT name, version, doc FROM {{schema}}.job WHERE name = $1"
	putJob = `INSERT INTO {{schema}}.job (name, version, due_ms, doc) VALUES ($1, $2, $3, $4)
		ON CONFLICT (name) DO UPDATE SET version = excluded.version, due_ms = excluded.due_ms, doc = excluded.doc`
	putRun = `INSERT INTO {{schema}}.job_run (job, scheduled_ms, state, term, doc) VALUES ($1, $2, $3, $4, $5)
		ON CONFLICT (job, scheduled_ms) DO UPDATE SET state = excluded.state, term = excluded.term, doc = excluded.doc`
	dropJob  = "DELETE FROM {{schema}}.job WHERE name = $1"
	dropRuns = "DELETE FROM {{schema}}.job_run WHERE job = $1"

	pruneRuns = `DELETE FROM {{schema}}.job_run WHERE job = $1 AND scheduled_ms <=
		(SELECT scheduled_ms FROM {{schema}}.job_run WHERE job = $1 ORDER BY scheduled_ms DESC LIMIT 1 OFFSET $2)`
	pruneOutput = `UPDATE {{schema}}.job_run SET output = '' WHERE job = $1 AND output <> '' AND scheduled_ms <=
		(SELECT scheduled_ms FROM {{schema}}.job_run WHERE job = $1 ORDER BY scheduled_ms DESC LIMIT 1 OFFSET $2)`

	listJobs = "SELECT name, version, doc FROM {{schema}}.job WHERE name > $1 ORDER BY name LIMIT $2"
	// The time is a parameter, so that the planner knows how few are due.
	dueJobs = "SELECT name, version, doc FROM {{schema}}.job WHERE due_ms <= $3 AND name > $1 ORDER BY name LIMIT $2"
	jobRuns = `SELECT doc FROM {{schema}}.job_run
		WHERE job = $1 AND scheduled_ms < $2 AND ($3 = '' OR state = $3) ORDER BY scheduled_ms DESC LIMIT $4`
	putOutput = "UPDATE {{schema}}.job_run SET total = $4, output = $5 WHERE job = $1 AND scheduled_ms = $2 AND term = $3"
	runOutput = "SELECT total, output FROM {{schema}}.job_run WHERE job = $1 AND scheduled_ms = $2"
	readClock = "SELECT {{schema}}.clock()"
)

// Change implements [job.Store].
func (j jobs) Change(ctx context.Context, name string, decide job.Decision) (out job.Job, err error) {
	name = clean(name)
	var refused error
	err = j.db.pool.withConnection(ctx, ordinary, func(ctx context.Context, conn *pgx.Conn) error {
		err := pgx.BeginTxFunc(ctx, conn, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, j.db.sql(lockJob), withPatience(ctx, []any{lockPatience{}, name})...); err != nil {
				return err
			}
			was, err := scanJob(tx.QueryRow(ctx, j.db.sql(jobRow), name))
			if err != nil && !errors.Is(err, pgx.ErrNoRows) {
				return err
			}
			was.Name = name
			now, err := j.clock(ctx, tx)
			if err != nil {
				return err
			}
			var c job.Change
			if c, refused = decide(was, now); refused != nil {
				return errRefused
			}
			if out = was; c.Unchanged {
				return errRefused
			}
			out, err = j.apply(ctx, tx, was, c)
			return err
		})
		if errors.Is(err, errRefused) && !conn.IsClosed() {
			return nil
		}
		return err
	})
	switch {
	case refused != nil:
		return job.Job{}, refused
	case err != nil:
		return job.Job{}, fmt.Errorf("changing job %q: %w", name, err)
	}
	return out, nil
}

func (j jobs) apply(ctx context.Context, tx pgx.Tx, was job.Job, c job.Change) (job.Job, error) {
	var all pgx.Batch
	queue := func(sql string, args ...any) { all.Queue(j.db.sql(sql), args...) }
	if e := c.Event; e.Part != "" {
		queue(insertEvent, clean(e.Part), clean(e.Subject), "", "", e.Term, clean(e.Reason), e.Duration.Nanoseconds())
	}
	out := c.After(was)
	if c.Forget {
		queue(dropJob, was.Name)
		queue(dropRuns, was.Name)
		return out, tx.SendBatch(ctx, &all).Close()
	}
	doc, err := job.Encode(out)
	if err != nil {
		return out, err
	}
	queue(putJob, out.Name, out.Version, out.DueMillis(), doc)
	for _, r := range c.Runs {
		if doc, err = job.Encode(r); err != nil {
			return out, err
		}
		queue(putRun, out.Name, r.Scheduled.UnixMilli(), string(r.State), r.Term, doc)
	}
	if job.PrunesAt(out.Version) {
		queue(pruneRuns, out.Name, job.KeepRuns)
		queue(pruneOutput, out.Name, job.KeepTails)
	}
	return out, tx.SendBatch(ctx, &all).Close()
}

// clock is read after what it is compared with, so that nothing in that is later.
func (j jobs) clock(ctx context.Context, on runner) (now time.Time, err error) {
	err = on.QueryRow(ctx, j.db.sql(readClock)).Scan(&now)
	return now.UTC(), err
}

func scanJob(r pgx.Row) (job.Job, error) {
	var name, doc string
	var version int64
	if err := r.Scan(&name, &version, &doc); err != nil {
		return job.Job{}, err
	}
	out, err := job.Decode[job.Job](doc)
	out.Name, out.Version = name, version
	return out, err
}

// Get implements [job.Store].
func (j jobs) Get(ctx context.Context, name string) (out job.Job, now time.Time, err error) {
	err = j.db.pool.withConnection(ctx, ordinary, func(ctx context.Context, conn *pgx.Conn) (err error) {
		if out, err = scanJob(conn.QueryRow(ctx, j.db.sql(jobRow), clean(name))); err == nil {
			now, err = j.clock(ctx, conn)
		}
		return err
	})
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return job.Job{}, now, fmt.Errorf("%w: job %q", job.ErrNotFound, name)
	case err != nil:
		return job.Job{}, now, fmt.Errorf("reading job %q: %w", name, err)
	}
	return out, now, nil
}

// List implements [job.Store].
func (j jobs) List(ctx context.Context, q job.Query) (out []job.Job, now time.Time, err error) {
	err = j.db.pool.withConnection(ctx, ordinary, func(ctx context.Context, conn *pgx.Conn) (err error) {
		if now, err = j.clock(ctx, conn); err != nil {
			return err
		}
		query, args := listJobs, []any{clean(q.After), q.Limit}
		if q.DueWithin != 0 {
			query, args = dueJobs, append(args, now.Add(q.DueWithin).UnixMilli())
		}
		found, err := conn.Query(ctx, j.db.sql(query), args...)
		if err == nil {
			out, err = pgx.CollectRows(found, func(r pgx.CollectableRow) (job.Job, error) { return scanJob(r) })
		}
		return err
	})
	return out, now, during(err, "listing jobs")
}

// Runs implements [job.Store].
func (j jobs) Runs(ctx context.Context, q job.RunQuery) ([]job.Run, error) {
	out, err := rows(ctx, j.db, jobRuns, func(r pgx.CollectableRow) (job.Run, error) {
		var doc string
		if err := r.Scan(&doc); err != nil {
			return job.Run{}, err
		}
		return job.Decode[job.Run](doc)
	}, clean(q.Job), q.BeforeMillis(), string(q.State), q.Limit)
	return out, during(err, "listing runs")
}

// PutOutput implements [job.Store].
func (j jobs) PutOutput(ctx context.Context, key job.RunKey, term int64, o job.Output) error {
	n, err := j.db.change(ctx, putOutput, clean(key.Job), key.Scheduled.UnixMilli(), term, o.Total, append([]byte{}, o.Tail...))
	if err == nil && n == 0 {
		err = fmt.Errorf("%w: %s under term %d", job.ErrNotFound, key, term)
	}
	return during(err, "keeping output")
}

// Output implements [job.Store].
func (j jobs) Output(ctx context.Context, key job.RunKey) (o job.Output, err error) {
	err = j.db.row(ctx, ordinary, runOutput, func(r pgx.Row) error { return r.Scan(&o.Total, &o.Tail) }, clean(key.Job), key.Scheduled.UnixMilli())
	if errors.Is(err, pgx.ErrNoRows) {
		err = fmt.Errorf("%w: %s", job.ErrNotFound, key)
	}
	return o, during(err, "reading output")
}
