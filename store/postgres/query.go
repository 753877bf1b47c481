package postgres

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/jackc/pgx/v5"
)

// querier is what reads one row: a connection or a transaction.
type querier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// runner is what also reads many: a connection or a transaction.
type runner interface {
	querier
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// queryRow runs a statement that returns one row.
func (s *Store) queryRow(ctx context.Context, l lane, sql string, scan func(pgx.Row) error, args ...any) error {
	sql = s.sql(sql)
	return s.pool.withConnection(ctx, l, func(ctx context.Context, conn *pgx.Conn) error {
		return scan(conn.QueryRow(ctx, sql, withLockTimeout(ctx, args)...))
	})
}

// rows runs a statement that returns any number of rows.
func rows[T any](ctx context.Context, s *Store, sql string, scan pgx.RowToFunc[T], args ...any) (out []T, err error) {
	sql = s.sql(sql)
	err = s.pool.withConnection(ctx, ordinary, func(ctx context.Context, conn *pgx.Conn) error {
		found, err := conn.Query(ctx, sql, withLockTimeout(ctx, args)...)
		if err != nil {
			return err
		}
		out, err = pgx.CollectRows(found, scan)
		return err
	})
	return out, err
}

// exec runs a statement that returns no rows, and returns how many it changed. It takes no lockTimeout: who waits for a lock in it
// waits until the caller's deadline.
func (s *Store) exec(ctx context.Context, sql string, args ...any) (changed int64, err error) {
	sql = s.sql(sql)
	err = s.pool.withConnection(ctx, ordinary, func(ctx context.Context, conn *pgx.Conn) error {
		tag, err := conn.Exec(ctx, sql, args...)
		changed = tag.RowsAffected()
		return err
	})
	return changed, err
}

// lockTimeout stands, among the arguments of a statement, for how long it may wait for
// locks, in milliseconds: a little less than its caller does, who so gets an answer, and no more than the server allows.
type lockTimeout struct{}

func withLockTimeout(ctx context.Context, args []any) []any {
	out := make([]any, len(args))
	copy(out, args)
	for i, a := range out {
		if _, ok := a.(lockTimeout); ok {
			deadline, _ := ctx.Deadline()
			out[i] = min(max(1, time.Until(deadline).Milliseconds()*9/10), math.MaxInt32)
		}
	}
	return out
}

// statement is one that returns a row, perhaps a refusal. The zero statement is none.
type statement struct {
	sql  string
	args []any
	scan func(pgx.Row) error
	// refusal, if not nil, is called after scan: it says why the answer is a refusal, or returns nil.
	refusal func() error
}

// addToBatch adds a statement to a batch; refused is set to what it refuses.
func (s *Store) addToBatch(ctx context.Context, all *pgx.Batch, x statement, refused *error) {
	if x.sql == "" {
		return
	}
	all.Queue(s.sql(x.sql), withLockTimeout(ctx, x.args)...).QueryRow(func(r pgx.Row) error {
		err := x.scan(r)
		if err == nil && x.refusal != nil {
			*refused = x.refusal()
		}
		return err
	})
}

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
		defer endTransaction(ctx, conn) // that a BEGIN has left whose second statement failed
		// The statement's locks are kept until COMMIT, by a process that stops before it, too: the server ends that.
		begin := fmt.Sprintf("BEGIN ISOLATION LEVEL READ COMMITTED; SELECT {{rules}}.bound_transaction(%d)", withLockTimeout(ctx, []any{lockTimeout{}})...)
		return pgx.BeginTxFunc(ctx, conn, pgx.TxOptions{BeginQuery: s.sql(begin)}, func(tx pgx.Tx) error { return f(ctx, tx) })
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
