package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

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
type jobs struct{ db *Store }

const (
	// Whoever changes a job has this lock; a row that is not there yet cannot be locked.
	lockJob = "SELECT {{rules}}.configure_statement($1), pg_advisory_xact_lock(hashtext({{channel}} || ' job'), hashtext($2))"

	jobRow = "SELECT name, version, doc FROM {{schema}}.job WHERE name = $1"
	// The clock is read after the row, so that nothing in that is later.
	jobAndClock = "SELECT name, version, doc, {{schema}}.clock() FROM {{schema}}.job WHERE name = $1"
	putJob      = `INSERT INTO {{schema}}.job (name, version, due_ms, doc) VALUES ($1, $2, $3, $4)
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
	// While Go decides, rows are locked, that of the session $2 among them if it acquires the job's lease. The server ends the
	// transaction of a process that does not come back: when its call would have ended, or its session ends. So others, who
	// wait for the rows, take over from it no later than if it had died before.
	clockAndBound = `SELECT c.at, {{rules}}.bound_transaction(least($1,
		(SELECT (extract(epoch FROM s.deadline - c.at) * 1000)::bigint FROM {{schema}}.session s WHERE s.id = $2)))
		FROM (SELECT {{schema}}.clock() AS at OFFSET 0) c`
)

// Change implements [job.Store].
func (j jobs) Change(ctx context.Context, name string, decide job.Decision) (job.Job, error) {
	return j.change(ctx, name, "", statement{}, func() job.Decision { return decide }, statement{})
}

// AcquireAndChange implements [job.CombinedStore].
func (j jobs) AcquireAndChange(ctx context.Context, e lease.Expectation, name string, decide func(lease.Lease) job.Decision) (l lease.Lease, out job.Job, err error) {
	acquire := acquireStatement(e, &l)
	out, err = j.change(ctx, name, e.Session, acquire, func() job.Decision { return decide(l) }, statement{})
	if err != nil && !errors.Is(err, lease.ErrHeld) {
		l = lease.Lease{}
	}
	return l, out, err
}

// ChangeAndRelease implements [job.CombinedStore].
func (j jobs) ChangeAndRelease(ctx context.Context, name string, decide job.Decision, r lease.ReleaseRequest) error {
	var released bool
	_, err := j.change(ctx, name, "", statement{}, func() job.Decision { return decide }, releaseStatement(r, &released))
	if err == nil && !released {
		err = notHeld(r)
	}
	return err
}

// change does what decide makes of the job and the store's clock, with a statement before, which may refuse and is for this session,
// and one after. It is a transaction of two round trips, in which the job is locked, and what the statement before locks; after a
// refusal a third ends it.
func (j jobs) change(ctx context.Context, name, session string, before statement, decide func() job.Decision, after statement) (out job.Job, err error) {
	name = clean(name)
	var refused error
	err = j.db.pool.withConnection(ctx, ordinary, func(ctx context.Context, conn *pgx.Conn) error {
		defer endTransaction(ctx, conn)
		refused = nil
		was, now := job.Job{}, time.Time{}
		var first pgx.Batch
		first.Queue("BEGIN ISOLATION LEVEL READ COMMITTED")
		first.Queue(j.db.sql(lockJob), withLockTimeout(ctx, []any{lockTimeout{}, name})...)
		j.db.addToBatch(ctx, &first, before, &refused)
		first.Queue(j.db.sql(jobRow), name).QueryRow(func(r pgx.Row) (err error) {
			if was, err = scanJob(r); errors.Is(err, pgx.ErrNoRows) {
				was, err = job.Job{Name: name}, nil
			}
			return err
		})
		first.Queue(j.db.sql(clockAndBound), withLockTimeout(ctx, []any{lockTimeout{}, session})...).QueryRow(func(r pgx.Row) error { return r.Scan(&now, nil) })
		if err := conn.SendBatch(ctx, &first).Close(); err != nil || refused != nil {
			return err
		}
		c, err := decide()(was, now.UTC())
		if refused = err; err != nil {
			return nil
		}
		if out = was; c.Unchanged && after.sql == "" && before.sql == "" {
			return nil
		}
		var second pgx.Batch
		if !c.Unchanged {
			if out, err = j.addChange(&second, was, c); err != nil {
				return err
			}
		}
		if after.sql != "" {
			j.db.addToBatch(ctx, &second, after, &refused)
			second.Queue("SET LOCAL synchronous_commit TO DEFAULT") // a release turns it off; a result must not be forgotten
		}
		second.Queue("COMMIT")
		return conn.SendBatch(ctx, &second).Close()
	})
	switch {
	case refused != nil:
		return job.Job{}, refused
	case err != nil:
		return job.Job{}, fmt.Errorf("changing job %q: %w", name, err)
	}
	return out, nil
}

// endTransaction leaves the connection without one.
func endTransaction(ctx context.Context, conn *pgx.Conn) {
	if conn.IsClosed() || conn.PgConn().TxStatus() == 'I' {
		return
	}
	if _, err := conn.Exec(ctx, "ROLLBACK"); err != nil {
		_ = conn.Close(ctx)
	}
}

func (j jobs) addChange(all *pgx.Batch, was job.Job, c job.Change) (job.Job, error) {
	add := func(sql string, args ...any) { all.Queue(j.db.sql(sql), args...) }
	if e := c.Event; e.Part != "" {
		add(insertEvent, clean(e.Part), clean(e.Subject), "", "", e.Term, clean(e.Reason), e.Duration.Nanoseconds())
	}
	out := c.After(was)
	if c.Forget {
		add(dropJob, was.Name)
		add(dropRuns, was.Name)
		return out, nil
	}
	doc, err := job.Encode(out)
	if err != nil {
		return out, err
	}
	add(putJob, out.Name, out.Version, out.DueMillis(), doc)
	for _, r := range c.Runs {
		if doc, err = job.Encode(r); err != nil {
			return out, err
		}
		add(putRun, out.Name, r.Scheduled.UnixMilli(), string(r.State), r.Term, doc)
	}
	if job.PrunesAt(out.Version) {
		add(pruneRuns, out.Name, job.KeepRuns)
		add(pruneOutput, out.Name, job.KeepTails)
	}
	return out, nil
}

// clock is read after what it is compared with, so that nothing in that is later.
func (j jobs) clock(ctx context.Context, on runner) (now time.Time, err error) {
	err = on.QueryRow(ctx, j.db.sql(readClock)).Scan(&now)
	return now.UTC(), err
}

func scanJob(r pgx.Row, after ...any) (job.Job, error) {
	var name, doc string
	var version int64
	if err := r.Scan(append([]any{&name, &version, &doc}, after...)...); err != nil {
		return job.Job{}, err
	}
	out, err := job.Decode[job.Job](doc)
	out.Name, out.Version = name, version
	return out, err
}

// Get implements [job.Store].
func (j jobs) Get(ctx context.Context, name string) (out job.Job, now time.Time, err error) {
	err = j.db.queryRow(ctx, ordinary, jobAndClock, func(r pgx.Row) error {
		out, err = scanJob(r, &now)
		return err
	}, clean(name))
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return job.Job{}, now, fmt.Errorf("%w: job %q", job.ErrNotFound, name)
	case err != nil:
		return job.Job{}, now, fmt.Errorf("reading job %q: %w", name, err)
	}
	return out, now.UTC(), nil
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
	n, err := j.db.exec(ctx, putOutput, clean(key.Job), key.Scheduled.UnixMilli(), term, o.Total, append([]byte{}, o.Tail...))
	if err == nil && n == 0 {
		err = fmt.Errorf("%w: %s under term %d", job.ErrNotFound, key, term)
	}
	return during(err, "keeping output")
}

// Output implements [job.Store].
func (j jobs) Output(ctx context.Context, key job.RunKey) (o job.Output, err error) {
	err = j.db.queryRow(ctx, ordinary, runOutput, func(r pgx.Row) error { return r.Scan(&o.Total, &o.Tail) }, clean(key.Job), key.Scheduled.UnixMilli())
	if errors.Is(err, pgx.ErrNoRows) {
		err = fmt.Errorf("%w: %s", job.ErrNotFound, key)
	}
	return o, during(err, "reading output")
}
