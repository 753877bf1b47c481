package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/understudy-ha/understudy/lease"
)

// pingAfter is how long Watch hears nothing before it asks whether the server is
// still there, and pingTimeout how long that may take.
const (
	pingAfter   = 10 * time.Second
	pingTimeout = 5 * time.Second
)

// maxListeners is how many connections WatchIfFew keeps on a schema. A notification wakes the server's process of each
// that listens in the database.
const maxListeners = 8

// Watch implements [lease.Store]. It returns errors.ErrUnsupported behind a
// pooler, which would accept LISTEN and deliver nothing.
func (s *Store) Watch(ctx context.Context, wake func(lease.Change)) error {
	return s.watchUntilClosed(ctx, false, wake)
}

// WatchIfFew implements [lease.FewWatcher].
func (s *Store) WatchIfFew(ctx context.Context, wake func(lease.Change)) error {
	return s.watchUntilClosed(ctx, true, wake)
}

func (s *Store) watchUntilClosed(ctx context.Context, ifFew bool, wake func(lease.Change)) error {
	watching, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.pool.closing, cancel)()
	err := s.watch(watching, ifFew, wake)
	if ctx.Err() != nil {
		return nil
	}
	if s.pool.closing.Err() != nil {
		err = errClosed
	}
	return fmt.Errorf("watching %s: %w", s.location, err)
}

func (s *Store) watch(ctx context.Context, ifFew bool, wake func(lease.Change)) error {
	conn, err := s.listen(ctx, ifFew)
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = conn.Close(ctx)
	}()
	wake(lease.Change{})
	for {
		waiting, cancel := context.WithTimeout(ctx, pingAfter)
		n, err := conn.WaitForNotification(waiting)
		quiet := waiting.Err() != nil
		cancel()
		switch {
		case err == nil:
			wake(parseChange(n.Payload))
		case ctx.Err() != nil || !quiet:
			return err
		default:
			if err := ping(ctx, conn); err != nil {
				return err
			}
		}
	}
}

func (s *Store) listen(ctx context.Context, ifFew bool) (*pgx.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	conn, err := s.pool.connect(ctx)
	if err != nil {
		return nil, err
	}
	direct, err := isDirect(ctx, conn)
	if err == nil && !direct {
		err = fmt.Errorf("a pooler stands before the server and passes no notifications on: %w", errors.ErrUnsupported)
	}
	if err == nil && ifFew {
		err = s.takeListenerSlot(ctx, conn)
	}
	if err == nil {
		_, err = conn.Exec(ctx, `LISTEN "`+s.schema+`"`)
	}
	if err != nil {
		_ = conn.Close(ctx)
		return nil, err
	}
	return conn, nil
}

// takeListenerSlot takes one of the places of modest listeners, for as long as the connection lasts.
func (s *Store) takeListenerSlot(ctx context.Context, conn *pgx.Conn) error {
	var slot int
	err := conn.QueryRow(ctx, s.sql("SELECT n FROM generate_series(1, $1) n WHERE pg_try_advisory_lock(hashtext({{channel}} || ' listeners'), n) LIMIT 1"),
		maxListeners).Scan(&slot)
	if errors.Is(err, pgx.ErrNoRows) {
		return lease.ErrCrowded
	}
	return err
}

// isDirect reports whether the connection ends at the server itself: the process
// that was named when it was made is the one that answers.
func isDirect(ctx context.Context, conn *pgx.Conn) (bool, error) {
	var pid uint32
	err := conn.QueryRow(ctx, "SELECT pg_backend_pid()").Scan(&pid)
	return pid == conn.PgConn().PID(), err
}

func ping(ctx context.Context, conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	return conn.Ping(ctx)
}

// parseChange reads a notification. What it does not understand may be anything.
func parseChange(payload string) lease.Change {
	var c struct {
		Space, Key, Successor string
		Term                  int64
		Free                  bool
	}
	if err := json.Unmarshal([]byte(payload), &c); err != nil {
		return lease.Change{}
	}
	return lease.Change{Lease: lease.ID{Space: c.Space, Key: c.Key}, Term: c.Term, Free: c.Free, Successor: c.Successor}
}
