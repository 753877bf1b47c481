package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"
)

// statements keeps prepared statements by their text. All texts are constants of
// this package, so that there are few.
type statements struct {
	on    preparer
	mu    sync.Mutex
	known map[string]*sql.Stmt
}

// preparer is a pool or one connection.
type preparer interface {
	PrepareContext(ctx context.Context, query string) (*sql.Stmt, error)
}

func newStatements(on preparer) *statements {
	return &statements{on: on, known: map[string]*sql.Stmt{}}
}

func (s *statements) prepare(ctx context.Context, text string) (*sql.Stmt, error) {
	s.mu.Lock()
	st := s.known[text]
	s.mu.Unlock()
	if st != nil {
		return st, nil
	}
	// Without the mutex: it may wait for a connection, and nobody else should.
	st, err := s.on.PrepareContext(ctx, text)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	first := s.known[text]
	if first == nil {
		s.known[text] = st
	}
	s.mu.Unlock()
	if first != nil {
		_ = st.Close() // another call was faster
		return first, nil
	}
	return st, nil
}

// scanner reads the columns of a row.
type scanner = func(dest ...any) error

// call is statements as one call runs them, within tx if there is one.
type call struct {
	*statements
	ctx context.Context
	tx  *sql.Tx
}

func (c call) statement(text string) (*sql.Stmt, error) {
	st, err := c.prepare(c.ctx, text)
	if err == nil && c.tx != nil {
		st = c.tx.StmtContext(c.ctx, st)
	}
	return st, err
}

// exec runs a statement and returns how many rows it changed.
func (c call) exec(text string, args ...any) (int64, error) {
	st, err := c.statement(text)
	if err != nil {
		return 0, err
	}
	r, err := st.ExecContext(c.ctx, args...)
	if err != nil {
		return 0, err
	}
	return r.RowsAffected()
}

// one reads the first row; [sql.ErrNoRows] when there is none.
func (c call) one(text string, args []any, dest ...any) error {
	st, err := c.statement(text)
	if err != nil {
		return err
	}
	return st.QueryRowContext(c.ctx, args...).Scan(dest...)
}

// each calls f for every row.
func (c call) each(text string, args []any, f func(scan scanner) error) error {
	st, err := c.statement(text)
	if err != nil {
		return err
	}
	rows, err := st.QueryContext(c.ctx, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := f(rows.Scan); err != nil {
			return err
		}
	}
	return rows.Err()
}

// list reads all rows.
func list[T any](c call, text string, args []any, scan func(scanner) (T, error)) (all []T, err error) {
	err = c.each(text, args, func(columns scanner) error {
		one, err := scan(columns)
		all = append(all, one)
		return err
	})
	return all, err
}

// list1 is a row of one column.
func list1[T any](scan scanner) (v T, err error) {
	err = scan(&v)
	return v, err
}

func (s *statements) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for _, st := range s.known {
		errs = append(errs, st.Close())
	}
	clear(s.known)
	return errors.Join(errs...)
}

// writer is the one connection that writes. Whoever fills turn owns the rest. Those who wait for it get it in
// the order in which they came.
type writer struct {
	db   *sql.DB
	turn chan struct{} // of capacity 1
	// next is filled by the one who may wait for turn, of all who renew nothing. So a renewal waits for two transactions at
	// most, and for other renewals, however many write; and no number of renewals keeps the others out.
	next  chan struct{} // of capacity 1
	conn  *sql.Conn     // nil when there is none yet, or the last one was given up
	stmts *statements
	log   os.FileInfo // the write-ahead log of conn, once it has committed something; nil before
}

func newWriter(db *sql.DB) writer {
	db.SetMaxOpenConns(1)
	return writer{db: db, turn: make(chan struct{}, 1), next: make(chan struct{}, 1)}
}

// enter waits for the turn, which the caller gives back by emptying turn.
func (w *writer) enter(ctx context.Context, renews bool) error {
	if !renews {
		select {
		case w.next <- struct{}{}:
			defer func() { <-w.next }()
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	select {
	case w.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (w *writer) connect(ctx context.Context) error {
	if w.conn != nil {
		return nil
	}
	conn, err := w.db.Conn(ctx)
	if err != nil {
		return err
	}
	w.conn, w.stmts = conn, newStatements(conn)
	return nil
}

// rememberLog notes the write-ahead log, in which conn has just committed: before that, another process may still remove it.
func (w *writer) rememberLog(path string) {
	if w.log == nil {
		w.log, _ = os.Stat(path + "-wal")
	}
}

// sameLog refuses to continue when the write-ahead log was removed: what is committed now, other processes would never see.
func (w *writer) sameLog(path string) error {
	if w.log == nil {
		return nil
	}
	if now, err := os.Stat(path + "-wal"); err != nil || !os.SameFile(w.log, now) {
		return fmt.Errorf("%s-wal was removed or replaced while in use: stop all programs that use the store, then start them again; never remove this file", path)
	}
	return nil
}

// discard gives up a connection whose state is not certain; the next call opens
// another. Closing it rolls back whatever it had started.
func (w *writer) discard() {
	if w.conn == nil {
		return
	}
	_ = w.conn.Raw(func(any) error { return driver.ErrBadConn })
	w.conn, w.stmts, w.log = nil, nil, nil
}

func (w *writer) close() error {
	if w.conn == nil {
		return w.db.Close()
	}
	err := errors.Join(w.stmts.close(), w.conn.Close(), w.db.Close())
	w.conn, w.stmts, w.log = nil, nil, nil
	return err
}

// instant is when a transaction was: by the boot-time clock of a run of the kernel, and by the wall clock.
type instant struct {
	boot      string
	now, wall int64 // µs
}

func (c clocks) instant() instant { return instant{c.boot, c.bootMicros(), c.wallMicros()} }

func (i instant) wallTime() time.Time { return time.UnixMicro(i.wall) }

// txn is a transaction. One that writes holds the file's write lock; its clocks were read under that lock, and its context
// never ends.
type txn struct {
	call
	instant
}

// writing gives the caller its turn on the connection that writes, when it is
// connected to the right file. With a nil error, done must be called.
func (s *Store) writing(ctx context.Context, renews bool) (_ context.Context, done func(), err error) {
	ctx, cancel := s.bound(ctx)
	if err := s.writer.enter(ctx, renews); err != nil {
		cancel()
		return nil, nil, err
	}
	done = func() { <-s.writer.turn; cancel() }
	if err = context.Cause(ctx); err == nil {
		err = s.sameFile()
	}
	if err == nil {
		err = retry(ctx, func() error { return s.writer.connect(ctx) })
	}
	if err == nil {
		err = s.writer.sameLog(s.path)
	}
	if err != nil {
		done()
		return nil, nil, err
	}
	return ctx, done, nil
}

// write runs fn in a transaction, which is committed when fn returns nil and
// rolled back otherwise. Refusals come back as they are; other errors as
// lease.ErrUnavailable, or lease.ErrUnknown when the commit may have been done.
//
// ctx bounds the wait for the lock. Who has it is not interrupted, because that
// would leave it unknown what was done; no transaction here is long.
func (s *Store) write(ctx context.Context, op string, fn func(*txn) error) error {
	ctx, done, err := s.writing(ctx, false)
	if err != nil {
		return failed(op, err)
	}
	defer done()
	calm := context.WithoutCancel(ctx)
	t := &txn{call: call{statements: s.writer.stmts, ctx: calm}}
	err = retry(ctx, func() error {
		_, err := t.exec("BEGIN IMMEDIATE")
		return err
	})
	if err != nil {
		return failed(op, err)
	}
	t.instant = s.clocks.instant()
	if err := fn(t); err != nil {
		s.rollback(t)
		return failed(op, err)
	}
	if _, err := t.exec("COMMIT"); err != nil {
		s.rollback(t)
		return commitFailed(op, err)
	}
	s.writer.rememberLog(s.path)
	return nil
}

func (s *Store) rollback(t *txn) {
	_, err := t.exec("ROLLBACK")
	// After some errors, a full disk for one, SQLite has rolled back by itself.
	if err != nil && !strings.Contains(err.Error(), "no transaction is active") {
		s.log.Warn("the store's connection could not roll back; connecting again", "err", err)
		s.writer.discard()
	}
}

// read runs fn, again while the file is locked. fn starts from nothing each time.
func (s *Store) read(ctx context.Context, op string, fn func(call) error) error {
	ctx, cancel := s.bound(ctx)
	defer cancel()
	err := retry(ctx, func() error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return fn(call{statements: s.reading, ctx: ctx})
	})
	if err != nil {
		return failed(op, err)
	}
	return nil
}

// readOne reads the first row of a statement.
func (s *Store) readOne(ctx context.Context, op, text string, args []any, dest ...any) error {
	return s.read(ctx, op, func(c call) error { return c.one(text, args, dest...) })
}

// readAll lists all rows of a statement.
func readAll[T any](ctx context.Context, s *Store, op, text string, args []any, scan func(scanner) (T, error)) (all []T, err error) {
	err = s.read(ctx, op, func(c call) (err error) {
		all, err = list(c, text, args, scan)
		return err
	})
	return all, err
}

// snapshot runs fn, which only reads, on one state of the file. first, which fixes the state, is a statement of one row that goes to dest. The
// clocks are read after it: nothing in the state is later.
func (s *Store) snapshot(ctx context.Context, op, first string, dest []any, fn func(*txn) error) error {
	return s.read(ctx, op, func(c call) error {
		select {
		case s.snapshots <- struct{}{}:
			defer func() { <-s.snapshots }()
		case <-c.ctx.Done():
			return context.Cause(c.ctx)
		}
		tx, err := s.wide.BeginTx(c.ctx, &sql.TxOptions{ReadOnly: true})
		if err != nil {
			return err
		}
		defer tx.Rollback()
		v := &txn{call: call{s.frozen, c.ctx, tx}}
		if err := v.one(first, nil, dest...); err != nil {
			return err
		}
		v.instant = s.clocks.instant()
		return fn(v)
	})
}

// rememberFile notes which file the path names, once.
func (s *Store) rememberFile() (err error) {
	if s.file == nil {
		s.file, err = os.Stat(s.path)
	}
	if err != nil {
		return fmt.Errorf("sqlite: opening %s: %w", s.path, err)
	}
	return nil
}

// sameFile refuses to continue when the path no longer names the file that was
// opened: others would open another one, and both would have their own holders.
func (s *Store) sameFile() error {
	if s.file == nil {
		return nil // still opening
	}
	now, err := os.Stat(s.path)
	if err != nil {
		return fmt.Errorf("the file is gone while in use (%w): restart this program", err)
	}
	if !os.SameFile(s.file, now) {
		return fmt.Errorf("%s was replaced by another file while in use: restart this program", s.path)
	}
	return nil
}
