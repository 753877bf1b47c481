package postgres

import (
	"context"
	"embed"
	"fmt"
	"io/fs"

	"github.com/jackc/pgx/v5"

	"github.com/understudy-ha/understudy/store"
)

// migrations are numbered from 1 without a gap; the number is the version of the
// schema that each leads to. One that was released is never changed.
//
//go:embed migrations/*.sql
var migrations embed.FS

// steps returns the migrations in order.
func steps() ([]string, error) {
	names, err := fs.Glob(migrations, "migrations/*.sql")
	if err != nil {
		return nil, err
	}
	texts := make([]string, len(names))
	for i, name := range names {
		text, err := migrations.ReadFile(name)
		if err != nil {
			return nil, err
		}
		texts[i] = string(text)
	}
	return texts, nil
}

// Migrate implements [store.Admin]. A schema that is up to date is only looked
// at, so that a role without the right to create can do it too.
func (s *Store) Migrate(ctx context.Context) (from, to int, err error) {
	todo, err := steps()
	if err != nil {
		return 0, 0, err
	}
	err = s.pool.do(ctx, anything, func(ctx context.Context, conn *pgx.Conn) error {
		if from, err = s.version(ctx, conn); err != nil || from >= len(todo) {
			return err
		}
		err := pgx.BeginTxFunc(ctx, conn, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
			from, err = s.migrate(ctx, tx, todo)
			return err
		})
		if err != nil {
			return fmt.Errorf("migrating the schema: %w", err)
		}
		return nil
	})
	switch {
	case err != nil:
		return 0, 0, err
	case from > len(todo):
		return from, from, fmt.Errorf("%w %q is at version %d and this program knows versions up to %d: use the newer program",
			store.ErrSchema, s.schema, from, len(todo))
	case from < len(todo):
		s.log.Info("schema migrated", "schema", s.schema, "from", from, "to", len(todo))
	}
	return from, len(todo), nil
}

// migrate applies what is missing. Whoever else does so at the same time waits
// for the lock and then finds nothing to do.
func (s *Store) migrate(ctx context.Context, tx pgx.Tx, todo []string) (from int, err error) {
	if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock(hashtext($1))", "understudy:"+s.schema); err != nil {
		return 0, err
	}
	from, err = s.version(ctx, tx)
	if err != nil || from >= len(todo) {
		return from, err
	}
	if from == 0 {
		if err := s.makeSchema(ctx, tx); err != nil {
			return 0, err
		}
	}
	for i := from; i < len(todo); i++ {
		// Many statements at once need the simple protocol.
		if _, err := tx.Conn().PgConn().Exec(ctx, s.sql(todo[i])).ReadAll(); err != nil {
			return 0, fmt.Errorf("version %d: %w", i+1, err)
		}
		if _, err := tx.Exec(ctx, s.sql("INSERT INTO {{schema}}.migration (version) VALUES ($1)"), int64(i+1)); err != nil {
			return 0, err
		}
	}
	return from, nil
}

func (s *Store) makeSchema(ctx context.Context, tx pgx.Tx) error {
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

// querier is a connection or a transaction.
type querier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// version returns the schema's version, 0 when there is none.
func (s *Store) version(ctx context.Context, q querier) (version int, err error) {
	var there bool
	err = q.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE n.nspname = $1 AND c.relname = 'migration')`, s.schema).Scan(&there)
	if err != nil || !there {
		return 0, err
	}
	err = q.QueryRow(ctx, s.sql("SELECT coalesce(max(version), 0) FROM {{schema}}.migration")).Scan(&version)
	return version, err
}
