package sqlite

import (
	"context"
	"time"

	"github.com/understudy-ha/understudy/dispatch"
)

const (
	endedLong = `
SELECT key, seq, body, size, state IN ('invalid', 'failed'), id FROM understudy_batch
WHERE queue = ?1 AND ended_us IS NOT NULL AND blocks = 0 AND ended_us < ?2 ORDER BY ended_us LIMIT ?3`

	dropBatch   = "DELETE FROM understudy_batch WHERE queue = ?1 AND key = ?2 AND seq = ?3"
	notDone     = "UPDATE understudy_claim SET over = over - 1 WHERE space = ?1 AND key = ?2"
	dropPayload = "DELETE FROM understudy_payload WHERE n = ?1"
	dropSameID  = "DELETE FROM understudy_scheduled WHERE id = ?1 AND queue = ?2"

	// What one transaction deletes: what takes some 20 ms, for which everyone's
	// renewals wait.
	pruneAtOnce = 250
	pruneBytes  = 16 << 20
)

// Prune implements [dispatch.Queue]. It goes by the time at which messages ended,
// so that it meets only what it deletes, and needs no memory of where it was.
func (s queue) Prune(ctx context.Context, name string, keep time.Duration, limit int) (deleted int, through bool, err error) {
	for !through && deleted < limit {
		var n int
		err = s.write(ctx, "pruning", func(t *txn) (err error) {
			n, through, err = t.prune(name, t.wall-keep.Microseconds(), min(limit-deleted, pruneAtOnce))
			return err
		})
		if err != nil {
			return deleted, false, err
		}
		deleted += n
	}
	return deleted, through, nil
}

// prune deletes up to most messages that ended before the given time.
func (t *txn) prune(name string, before int64, most int) (deleted int, through bool, err error) {
	if err := t.requireQueue(name); err != nil {
		return 0, false, err
	}
	return t.drop(name, endedLong, name, before, most)
}

// drop deletes the messages that a query finds; its last argument is how many at most.
func (t *txn) drop(name, query string, args ...any) (deleted int, through bool, err error) {
	type old struct {
		key, id         string
		seq, body, size int64
		dead            bool
	}
	found, err := list(t.call, query, args, func(scan scanner) (b old, err error) {
		err = scan(&b.key, &b.seq, &b.body, &b.size, &b.dead, &b.id)
		return b, err
	})
	bytes := int64(0)
	for _, b := range found {
		if err == nil {
			_, err = t.exec(dropBatch, name, b.key, b.seq)
		}
		if err == nil {
			_, err = t.exec(dropPayload, b.body)
		}
		if err == nil { // a scheduled one gives way to it, and would find nothing to give way to
			_, err = t.exec(dropSameID, b.id, name)
		}
		if err == nil && b.dead {
			_, err = t.exec(notDone, dispatch.Space(name), b.key)
		}
		if err != nil {
			return 0, false, err
		}
		deleted++
		if bytes += b.size; bytes > pruneBytes {
			return deleted, false, nil
		}
	}
	return deleted, len(found) < args[len(args)-1].(int), err
}
