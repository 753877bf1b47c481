package sqlite

import (
	"context"
	"time"

	"github.com/understudy-ha/understudy/lease"
)

// maxTold is how many changes a watcher is told one by one; of more at once it
// is told only that there were some.
const maxTold = 1000

const (
	dataVersion = "PRAGMA data_version"
	lastEvent   = "SELECT " + changesSQL
	newEvents   = "SELECT id, part, subject, term, change, successor FROM understudy_event WHERE id > ?1 ORDER BY id LIMIT ?2"
)

// watcher follows the events on a connection of its own. SQLite counts there
// what other connections have committed; only when that moved are events read,
// and only those that are new.
type watcher struct {
	*statements
	version int64 // of the data, when last looked at
	last    int64 // id of the newest event that was told
}

// Watch implements [lease.Store].
func (s *Store) Watch(ctx context.Context, wake func(lease.Change)) error {
	inner, cancel := s.untilClosed(ctx)
	defer cancel()
	err := s.watch(inner, wake)
	if ctx.Err() != nil {
		return nil
	}
	return failed("watching", err)
}

func (s *Store) watch(ctx context.Context, wake func(lease.Change)) error {
	conn, err := s.wide.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	w := &watcher{statements: newStatements(conn)}
	defer w.close()
	err = retry(ctx, func() error {
		if err := w.one(ctx, dataVersion, nil, &w.version); err != nil {
			return err
		}
		return w.one(ctx, lastEvent, nil, &w.last)
	})
	if err != nil {
		return err
	}
	wake(lease.Change{})
	tick := time.NewTicker(s.poll)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
		if err := w.look(ctx, wake); err != nil && !busy(err) {
			return err
		}
	}
}

// look tells what is new. When it fails the next look finds it all again.
func (w *watcher) look(ctx context.Context, wake func(lease.Change)) error {
	var version int64
	if err := w.one(ctx, dataVersion, nil, &version); err != nil || version == w.version {
		return err
	}
	var changes []lease.Change
	last := w.last
	err := w.each(ctx, newEvents, []any{w.last, maxTold}, func(scan func(...any) error) error {
		var c lease.Change
		var change int
		if err := scan(&last, &c.Lease.Space, &c.Lease.Key, &c.Term, &change, &c.Successor); err != nil {
			return err
		}
		if change == changeAny {
			c = lease.Change{}
		}
		c.Free = change == changeFreed
		changes = append(changes, c)
		return nil
	})
	if err != nil {
		return err
	}
	if len(changes) == maxTold {
		changes = []lease.Change{{}}
		if err := w.one(ctx, lastEvent, nil, &last); err != nil {
			return err
		}
	}
	w.version, w.last = version, last
	for _, c := range changes {
		wake(c)
	}
	return nil
}
