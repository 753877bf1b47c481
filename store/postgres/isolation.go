package postgres

import (
	"cmp"
	"context"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/understudy-ha/understudy/claim"
)

// runner is a connection or a transaction.
type runner interface {
	querier
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
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
		return pgx.BeginTxFunc(ctx, conn, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error { return f(ctx, tx) })
	})
}

// rowReadCommitted runs a statement that returns one row, at READ COMMITTED.
func (s *Store) rowReadCommitted(ctx context.Context, sql string, scan func(pgx.Row) error, args ...any) error {
	sql = s.sql(sql)
	return s.atReadCommitted(ctx, func(ctx context.Context, q runner) error {
		return scan(q.QueryRow(ctx, sql, withPatience(ctx, args)...))
	})
}

// rowsReadCommitted runs a statement that returns any number of rows, at READ COMMITTED.
func rowsReadCommitted[T any](ctx context.Context, s *Store, sql string, scan pgx.RowToFunc[T], args ...any) (out []T, err error) {
	sql = s.sql(sql)
	err = s.atReadCommitted(ctx, func(ctx context.Context, q runner) error {
		found, err := q.Query(ctx, sql, withPatience(ctx, args)...)
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

// texts is a list in the order of its bytes, in which rows are locked, and never null.
func texts(list []string) []string { return slices.Sorted(slices.Values(list)) }

// columns are the keys and terms of claims, in the order in which rows are locked.
func columns(claims []claim.Claim) (keys []string, terms []int64) {
	keys, terms = make([]string, len(claims)), make([]int64, len(claims))
	sorted(claims, func(c claim.Claim) string { return c.Key }, func(i int, c claim.Claim) { keys[i], terms[i] = c.Key, c.Term })
	return keys, terms
}

// sorted visits a list in the order of its keys.
func sorted[T any](list []T, key func(T) string, visit func(int, T)) {
	byKey := func(a, b T) int { return cmp.Compare(key(a), key(b)) }
	if !slices.IsSortedFunc(list, byKey) {
		list = slices.SortedFunc(slices.Values(list), byKey)
	}
	for i, x := range list {
		visit(i, x)
	}
}
