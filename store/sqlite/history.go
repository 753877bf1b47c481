package sqlite

import (
	"context"
	"slices"
	"time"

	"github.com/understudy-ha/understudy/history"
)

// What a watcher is told of an event.
const (
	changeNoLease = 0 // something happened, and no lease changed hands
	changeTaken   = 1 // the lease was taken, or its holder was asked for it
	changeFreed   = 2 // the lease can be had
)

const insertEvent = `
INSERT INTO understudy_event (at_us, part, subject, from_label, to_label, term, reason, duration_ns, change, successor)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)`

func (t *txn) record(e history.Event, change int, successor string) error {
	_, err := t.exec(insertEvent, t.wall, e.Part, e.Subject, e.From, e.To, e.Term, e.Reason,
		max(0, e.Duration).Nanoseconds(), change, successor)
	return err
}

// Append implements [history.Log].
func (s *Store) Append(ctx context.Context, e history.Event) error {
	return s.write(ctx, "recording an event", func(t *txn) error { return t.record(e, changeNoLease, "") })
}

// Read implements [history.Log].
func (s *Store) Read(ctx context.Context, q history.Query) ([]history.Event, error) {
	text, args := selectEvents(q)
	out, err := readAll(ctx, s, "reading the history", text, args, func(scan scanner) (e history.Event, err error) {
		var at int64
		err = scan(&e.ID, &at, &e.Part, &e.Subject, &e.From, &e.To, &e.Term, &e.Reason, &e.Duration)
		e.At = time.UnixMicro(at)
		return e, err
	})
	if err != nil {
		return nil, err
	}
	if q.Newest {
		slices.Reverse(out)
	}
	return out, nil
}

// selectEvents names only the conditions that are asked for, so that SQLite
// picks the index that fits. There are few such texts.
func selectEvents(q history.Query) (text string, args []any) {
	text = "SELECT id, at_us, part, subject, from_label, to_label, term, reason, duration_ns FROM understudy_event WHERE id > ?"
	args = []any{q.After}
	if q.Before != 0 {
		text, args = text+" AND id < ?", append(args, q.Before)
	}
	if q.Part != "" {
		text, args = text+" AND part = ?", append(args, q.Part)
	}
	if q.Subject != "" {
		text, args = text+" AND subject = ?", append(args, q.Subject)
	}
	if q.Newest {
		text += " ORDER BY id DESC LIMIT ?"
	} else {
		text += " ORDER BY id LIMIT ?"
	}
	return text, append(args, q.PageSize())
}

const (
	newestToGo = "SELECT id FROM understudy_event ORDER BY id DESC LIMIT 1 OFFSET ?1"
	trimSome   = "DELETE FROM understudy_event WHERE id IN (SELECT id FROM understudy_event WHERE id <= ?1 ORDER BY id LIMIT 2000)"
)

// Trim implements [history.Log]. It deletes in portions, so that no renewal
// waits for all of it.
func (s *Store) Trim(ctx context.Context, keep int) (int64, error) {
	var last, deleted int64
	err := s.read(ctx, "trimming the history", func(c call) error {
		last = 0
		return notThere(c.one(newestToGo, []any{max(0, keep)}, &last))
	})
	for err == nil && last > 0 {
		var n int64
		err = s.write(ctx, "trimming the history", func(t *txn) (err error) {
			n, err = t.exec(trimSome, last)
			return err
		})
		if err != nil || n == 0 {
			break
		}
		deleted += n
	}
	return deleted, err
}
