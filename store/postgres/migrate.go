package postgres

import (
	"context"
	"embed"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/understudy-ha/understudy/internal/backoff"
	"github.com/understudy-ha/understudy/store"
)

//go:embed migrations/*.sql
var migrations embed.FS

// steps returns the migrations in order.
func steps() ([]store.Step, error) { return store.Steps(migrations, "migrations/*.sql") }

// schemaState is what a program needs to know about the schema before it uses it.
type schemaState struct {
	version int // 0: there is none
	readers int // the oldest program version that can use the store
	// installed: the program's rule set is there. idle: its use was last recorded more than an
	// hour ago. entryUsed: the entry points use a set that is in use. unused: there are sets that
	// may not be in use any more.
	installed, idle, entryUsed, unused bool
}

// isCurrent reports whether a program that knows this many versions has nothing to create.
func (f schemaState) isCurrent(known int) bool {
	return f.version >= known && f.installed && f.entryUsed
}

// Migrate implements [store.Admin]: it applies the steps that are missing, and creates the
// program's functions. If nothing is missing it creates nothing, so that a role without
// the right to create can call it too.
func (s *Store) Migrate(ctx context.Context) (from, to int, err error) {
	return s.bringUpToDate(ctx, true)
}

// bringUpToDate is Migrate, but without create it is an error if nothing of the store is there.
func (s *Store) bringUpToDate(ctx context.Context, create bool) (from, to int, err error) {
	known, err := steps()
	if err != nil {
		return 0, 0, err
	}
	var found schemaState
	err = s.pool.withConnection(ctx, ordinary, func(ctx context.Context, conn *pgx.Conn) error {
		if found, err = s.readState(ctx, conn); err != nil || found.readers > len(known) {
			return err
		}
		if !found.isCurrent(len(known)) {
			if found, err = s.migrateBesideOthers(ctx, conn, known, create); err != nil {
				return fmt.Errorf("migrating the schema: %w", err)
			}
		}
		s.recordUseAndDropUnused(ctx, conn, found)
		return nil
	})
	switch {
	case err != nil:
		return 0, 0, err
	case found.readers > len(known):
		return found.version, found.version, fmt.Errorf("%w %q needs a program that knows version %d and this program knows versions up to %d: use the newer program",
			store.ErrSchema, s.schema, found.readers, len(known))
	case found.version < len(known):
		s.log.Info("schema migrated", "schema", s.schema, "from", found.version, "to", len(known))
	}
	return found.version, max(found.version, len(known)), nil
}

const (
	// setTableWait sets how long a migration waits for a table or view that an open transaction uses. All who come after it wait as
	// long: PostgreSQL queues them behind it. But it ends an autovacuum that stands in the way only for who has waited for
	// deadlock_timeout (by default a second).
	setTableWait = `SELECT set_config('lock_timeout',
		(extract(epoch FROM least(current_setting('deadlock_timeout')::interval, '3s')) * 1000 + 200)::bigint::text, true)`
	// tableRetry is for how long it then lets the others go first.
	tableRetry = time.Second
)

// migrateBesideOthers migrates in a transaction, and again, until ctx ends, while open transactions use what it must change.
func (s *Store) migrateBesideOthers(ctx context.Context, conn *pgx.Conn, known []store.Step, create bool) (found schemaState, err error) {
	started := time.Now()
	var locked error
	for {
		err = pgx.BeginTxFunc(ctx, conn, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
			found, err = s.migrate(ctx, tx, known, create)
			return err
		})
		switch {
		case pgCode(err) == codeLockTimeout:
			if locked == nil {
				s.log.Warn("the migration waits for an open transaction; end it (pg_stat_activity, xact_start)", "schema", s.schema)
			}
			locked = err
		case locked == nil || err == nil || ctx.Err() == nil:
			return found, err
		}
		if !backoff.Sleep(ctx, backoff.Pause(1, tableRetry, tableRetry)) {
			return found, fmt.Errorf("given up after %v: %w", time.Since(started).Round(100*time.Millisecond), locked)
		}
	}
}

// lockSchema lets one program at a time change the schema, of whatever version it is.
func (s *Store) lockSchema(ctx context.Context, tx pgx.Tx) error {
	_, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock(hashtext($1))", "understudy:"+s.schema)
	return err
}

// migrate applies what is missing, and returns what it found. Another program that migrates at
// the same time waits for the lock and then finds nothing to do.
func (s *Store) migrate(ctx context.Context, tx pgx.Tx, known []store.Step, create bool) (found schemaState, err error) {
	if err := s.lockSchema(ctx, tx); err != nil {
		return found, err
	}
	// From here on: whoever waits for another migration has no place in the queue of a table.
	if _, err := tx.Exec(ctx, setTableWait); err != nil {
		return found, err
	}
	// Again, under the lock.
	found, err = s.readState(ctx, tx)
	if err != nil || found.readers > len(known) {
		return found, err
	}
	if found.version == 0 {
		if !create {
			return found, fmt.Errorf("%w %q is empty", store.ErrSchema, s.schema)
		}
		if err := s.createSchema(ctx, tx); err != nil {
			return found, err
		}
	}
	for i := found.version; i < len(known); i++ {
		// Many statements at once need the simple protocol.
		if _, err := tx.Conn().PgConn().Exec(ctx, s.sql(known[i].SQL)).ReadAll(); err != nil {
			return found, fmt.Errorf("version %d: %w", i+1, err)
		}
		if err := s.recordStep(ctx, tx, i+1, known[i].Readers); err != nil {
			return found, err
		}
	}
	return found, s.installRules(ctx, tx)
}

// recordStep records that a step was applied. Programs refuse a store whose table "migration"
// has a greater number than they know, also those that were released before there were two
// kinds of steps. So the table has what a program must know, and "schema_step" the others.
func (s *Store) recordStep(ctx context.Context, tx pgx.Tx, version, readers int) error {
	if version > readers {
		if _, err := tx.Exec(ctx, s.sql("INSERT INTO {{schema}}.schema_step (version) VALUES ($1)"), int64(version)); err != nil {
			return err
		}
	}
	_, err := tx.Exec(ctx, s.sql(`INSERT INTO {{schema}}.migration (version)
		SELECT $1 WHERE NOT EXISTS (SELECT FROM {{schema}}.migration WHERE version >= $1)`), int64(readers))
	return err
}

func (s *Store) createSchema(ctx context.Context, tx pgx.Tx) error {
	var exists bool
	if err := tx.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = $1)", s.schema).Scan(&exists); err != nil {
		return err
	}
	if !exists { // else it was made for a role that may not do so itself
		if _, err := tx.Exec(ctx, s.sql("CREATE SCHEMA {{schema}}")); err != nil {
			return err
		}
	}
	_, err := tx.Exec(ctx, s.sql(`CREATE TABLE {{schema}}.migration (
		version bigint PRIMARY KEY, applied timestamptz NOT NULL DEFAULT clock_timestamp())`))
	return err
}

// readState reads which version the schema has, and what of the program's rules is there.
func (s *Store) readState(ctx context.Context, q querier) (f schemaState, err error) {
	var tables int // that tell it: "migration", and from version 12 on "schema_step" and "rule_set"
	err = q.QueryRow(ctx, `SELECT count(*) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE n.nspname = $1 AND c.relname IN ('migration', 'schema_step', 'rule_set')`, s.schema).Scan(&tables)
	if err != nil || tables == 0 {
		return f, err
	}
	if err = q.QueryRow(ctx, s.sql("SELECT coalesce(max(version), 0) FROM {{schema}}.migration")).Scan(&f.readers); err != nil || tables < 3 {
		f.version = f.readers
		return f, err
	}
	err = q.QueryRow(ctx, s.sql(`SELECT greatest((SELECT max(version) FROM {{schema}}.schema_step), $1),
			count(*) FILTER (WHERE r.hash = {{hash}}) > 0,
			count(*) FILTER (WHERE r.hash = {{hash}} AND r.used < clock_timestamp() - interval '1 hour') > 0,
			count(*) FILTER (WHERE r.entry AND (r.hash = {{hash}} OR r.used >= clock_timestamp() - make_interval(secs => $2)
				OR EXISTS (SELECT FROM {{schema}}.session n WHERE n.rules = r.hash AND n.deadline > clock_timestamp()))) > 0,
			count(*) FILTER (WHERE NOT r.entry AND r.hash <> {{hash}} AND r.used < clock_timestamp() - make_interval(secs => $2)) > 0
		FROM {{schema}}.rule_set r`), int64(f.readers), setGrace.Seconds()).Scan(&f.version, &f.installed, &f.idle, &f.entryUsed, &f.unused)
	return f, err
}

// restoreRules brings back what the database has lost while the store was open: a standby that
// took over may not have had it yet, and a process that stood still for longer than setGrace finds
// its set dropped. Of a store that is gone it makes no new one: the leases of that would be free while their holders trust them.
func (s *Store) restoreRules(ctx context.Context) bool {
	if !s.restoring.TryLock() { // one is enough
		return false
	}
	defer s.restoring.Unlock()
	if time.Since(s.restored) < time.Second { // it did not help
		return false
	}
	s.restored = time.Now()
	_, _, err := s.bringUpToDate(ctx, false)
	return err == nil
}
