package sqlite

import (
	"context"
	"errors"
	"time"

	"github.com/understudy-ha/understudy/claim"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/shard"
)

// maxTold is how many changes a watcher is told one by one; of more at once it
// is told only that there were some.
const maxTold = 1000

// eventSpace is the space of an event by which no lease changed hands, such as that of a job or of a token. No lease has this
// space: the event wakes only those who follow all changes, as readers of the history do.
const eventSpace = "history:event"

const (
	dataVersion = "PRAGMA data_version"
	lastEvent   = "SELECT " + changesSQL
	newEvents   = "SELECT id, part, subject, term, change, successor FROM understudy_event WHERE id > ?1 ORDER BY id LIMIT ?2"
	lastWake    = "SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'understudy_wake'), 0)"
	newWakes    = "SELECT n, space, session FROM understudy_wake WHERE n > ?1 ORDER BY n LIMIT ?2"
)

// watcher follows the events on a connection of its own. SQLite counts there
// what other connections have committed; only when that moved are events read,
// and only those that are new.
type watcher struct {
	call
	version int64 // of the data, when last looked at
	last    int64 // id of the newest event that was told
	woke    int64 // … and of the newest waking
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

// Watch implements [shard.Registry].
func (r registry) Watch(ctx context.Context, name string, wake func(string)) error {
	return r.s.Watch(ctx, shard.WakeByChanges(name, wake))
}

// watch reads what is new on a connection of its own whenever the file was written to, and at each tick, until ctx ends.
func (s *Store) watch(ctx context.Context, wake func(lease.Change)) error {
	conn, err := s.wide.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	w := watcher{call: call{statements: newStatements(conn), ctx: ctx}}
	defer w.close()
	err = retry(ctx, func() error {
		return errors.Join(w.one(dataVersion, nil, &w.version), w.one(lastEvent, nil, &w.last), w.one(lastWake, nil, &w.woke))
	})
	if err != nil {
		return err
	}
	wake(lease.Change{}) // from here on nothing is missed
	var written <-chan struct{}
	if !s.polls {
		var stop func()
		written, stop = writesTo(s.path + "-wal")
		defer stop()
	}
	tick := time.NewTicker(s.poll)
	defer tick.Stop()
	pause := firstPause // until the next look at what was written; 0: that is done
	again := time.NewTimer(pause)
	defer again.Stop()
	for {
		news := written
		if pause > 0 && pause <= mostPause {
			news = nil // in a busy file a look a millisecond is enough
		}
		settling := false
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		case <-news:
			pause = firstPause
			again.Reset(pause)
		case <-again.C:
			settling = true
		}
		known := w.version
		if err := w.look(wake); err != nil && !busy(err) {
			return err
		}
		if !settling {
			continue
		}
		if pause *= 2; w.version != known || pause > s.poll {
			pause = 0
			continue
		}
		again.Reset(pause)
	}
}

// A commit is written to the log, then synced, and then it shows: what was written is looked for until it shows, after
// pauses that grow from firstPause until the next poll, since a busy disk may take long to sync. Up to mostPause nothing
// else is waited for.
const firstPause, mostPause = time.Millisecond, 8 * time.Millisecond

// look tells what is new. When it fails the next look finds it all again.
func (w *watcher) look(wake func(lease.Change)) error {
	var version int64
	if err := w.one(dataVersion, nil, &version); err != nil || version == w.version {
		return err
	}
	events, last, err := w.events()
	if err != nil {
		return err
	}
	wakes, woke, err := w.wakes()
	if err != nil {
		return err
	}
	changes := append(wakes, events...)
	if len(events) == maxTold || len(wakes) == maxTold {
		changes = []lease.Change{{}}
	}
	w.version, w.last, w.woke = version, last, woke
	for _, c := range changes {
		wake(c)
	}
	return nil
}

// events are the changes that events tell of, and the id of the newest event.
func (w *watcher) events() (changes []lease.Change, last int64, err error) {
	last = w.last
	err = w.each(newEvents, []any{w.last, maxTold}, func(scan scanner) error {
		var c lease.Change
		var change int
		if err := scan(&last, &c.Lease.Space, &c.Lease.Key, &c.Term, &change, &c.Successor); err != nil {
			return err
		}
		if change == changeNoLease {
			c = lease.Change{Lease: lease.ID{Space: eventSpace}}
		}
		c.Free = change == changeFreed
		changes = append(changes, c)
		return nil
	})
	if err == nil && len(changes) == maxTold {
		err = w.one(lastEvent, nil, &last)
	}
	return changes, last, err
}

// wakes are the members and shards that were woken, and the id of the newest waking.
func (w *watcher) wakes() (changes []lease.Change, last int64, err error) {
	last = w.woke
	err = w.each(newWakes, []any{w.woke, maxTold}, func(scan scanner) error {
		space, woken := "", ""
		if err := scan(&last, &space, &woken); err != nil {
			return err
		}
		if space == shard.RowSpace { // a trigger makes them of the rows of understudy_shard_wake, which the version before follows
			changes = append(changes, lease.Change{Lease: lease.ID{Space: space, Key: woken}})
		} else {
			changes = append(changes, lease.Change{Lease: claim.WakeID(space), Free: true, Successor: woken})
		}
		return nil
	})
	if err == nil && len(changes) == maxTold {
		err = w.one(lastWake, nil, &last)
	}
	return changes, last, err
}
