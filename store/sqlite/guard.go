package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/understudy-ha/understudy/lease"
)

// guardRefusal is how the trigger of the view understudy_guard starts to speak.
const guardRefusal = "understudy: the lease is not held under this term"

// Guard makes a transaction depend on a lease: it continues only while the lease is
// held under the term, and from here to its commit nobody can take the lease
// over. Otherwise the transaction is rolled back, and Guard returns
// [lease.ErrNotHeld].
//
// The transaction is one on the store's file, or on a file of the user's to
// which the store's is attached. In a process that has the Store open, open that
// file with modernc.org/sqlite: another SQLite library would drop this one's
// locks. Elsewhere any driver will do. Guard takes the store's write lock: call it
// last, and commit at once.
func Guard(ctx context.Context, tx *sql.Tx, id lease.ID, term int64) error {
	_, err := tx.ExecContext(ctx, "INSERT INTO understudy_guard (space, key, term) VALUES (?, ?, ?)", id.Space, id.Key, term)
	if err != nil && strings.Contains(err.Error(), guardRefusal) {
		return fmt.Errorf("%s under term %d: %w; the transaction was rolled back", id, term, lease.ErrNotHeld)
	}
	return err
}

// Guarded runs fn in a transaction on the store's file and commits it only if
// the lease is still held under the term: see [Guard]. The transaction has one
// interval of the holder's session, from start to commit; then it is rolled back
// with [lease.ErrUnavailable], because what it holds up are the renewals of
// everybody. Its write lock is taken by fn's first write, so that what fn reads
// and computes before that holds up nobody.
//
// When someone else wrote to the file between fn's first read and its first
// write, SQLite refuses the write, and fn is called again in a new transaction:
// fn must have no other effects than those on its transaction.
func (s *Store) Guarded(ctx context.Context, id lease.ID, term int64, fn func(*sql.Tx) error) error {
	l, err := s.Get(ctx, id)
	if err != nil {
		return err
	}
	if l.Free() || l.Term != term || l.Timing.Interval <= 0 {
		return fmt.Errorf("%s under term %d: %w", id, term, lease.ErrNotHeld)
	}
	if err := s.sameFile(); err != nil {
		return failed("guarded transaction", err)
	}
	ctx, stop := s.untilClosed(ctx)
	defer stop()
	ctx, cancel := context.WithTimeoutCause(ctx, l.Timing.Interval,
		fmt.Errorf("a guarded transaction took longer than its session's interval of %v and was rolled back", l.Timing.Interval))
	defer cancel()
	err = retry(ctx, func() error { return s.guardedOnce(ctx, id, term, fn) })
	if err != nil && ctx.Err() != nil && !errors.Is(err, lease.ErrUnknown) && !errors.Is(err, lease.ErrNotHeld) {
		return failed("guarded transaction", fmt.Errorf("%w: %w", context.Cause(ctx), err))
	}
	return err
}

func (s *Store) guardedOnce(ctx context.Context, id lease.ID, term int64, fn func(*sql.Tx) error) error {
	tx, err := s.wide.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() // after a commit it does nothing
	if err := fn(tx); err != nil {
		return err
	}
	if err := Guard(ctx, tx, id, term); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return commitFailed("guarded transaction", err)
	}
	return nil
}
