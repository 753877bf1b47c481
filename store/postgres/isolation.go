package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// atReadCommitted runs one statement at READ COMMITTED. That is what connections ask for;
// only where a pooler keeps that from the server, and the role's default is
// another, it takes a transaction that says so.
func (s *Store) atReadCommitted(ctx context.Context, f func(context.Context, runner) error) error {
	return s.pool.withConnection(ctx, ordinary, func(ctx context.Context, conn *pgx.Conn) error {
		if !s.pool.explicitIsolation.Load() {
			err := f(ctx, conn)
			if pgCode(err) != codeIsolation {
				return err
			}
			s.pool.explicitIsolation.Store(true)
		}
		return pgx.BeginTxFunc(ctx, conn, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error { return f(ctx, tx) })
	})
}

// rowReadCommitted runs a statement that returns one row, at READ COMMITTED.
func (s *Store) rowReadCommitted(ctx context.Context, sql string, scan func(pgx.Row) error, args ...any) error {
	sql = s.sql(sql)
	return s.atReadCommitted(ctx, func(ctx context.Context, q runner) error {
		return scan(q.QueryRow(ctx, sql, withLockTimeout(ctx, args)...))
	})
}

// rowsReadCommitted runs a statement that returns any number of rows, at READ COMMITTED.
func rowsReadCommitted[T any](ctx context.Context, s *Store, sql string, scan pgx.RowToFunc[T], args ...any) (out []T, err error) {
	sql = s.sql(sql)
	err = s.atReadCommitted(ctx, func(ctx context.Context, q runner) error {
		found, err := q.Query(ctx, sql, withLockTimeout(ctx, args)...)
		if err != nil {
			return err
		}
		out, err = pgx.CollectRows(found, scan)
		return err
	})
	return out, err
}

// callReadCommitted calls a function that returns nothing, at READ COMMITTED.
func (s *Store) callReadCommitted(ctx context.Context, sql string, args ...any) error {
	return s.rowReadCommitted(ctx, sql, func(r pgx.Row) error { return r.Scan(nil) }, args...)
}
