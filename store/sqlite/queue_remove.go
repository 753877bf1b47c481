package sqlite

import (
	"context"
	"errors"

	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/history"
)

const (
	makeQueue = "INSERT INTO understudy_queue (name, made_us) VALUES (?1, ?2) ON CONFLICT DO NOTHING"
	dropQueue = "DELETE FROM understudy_queue WHERE name = ?1"
	sinkOf    = "SELECT count(*) FROM understudy_monitor_sink WHERE 'alarms.' || name = ?1"

	countJoined = "SELECT count(*) FROM understudy_member m JOIN understudy_session x ON x.id = m.session WHERE m.space = ?2 AND " + claimAliveSQL

	countLosses = `
SELECT (SELECT coalesce(sum(waiting), 0) FROM understudy_claim WHERE space = ?1)
  + (SELECT count(*) FROM understudy_scheduled WHERE queue = ?2)
  + (SELECT count(*) FROM understudy_batch INDEXED BY understudy_batch_state
     WHERE queue = ?2 AND state NOT IN ('queued', 'committed') AND state IN ('invalid', 'failed') AND blocks = 0)`

	anyBatch  = "SELECT key, seq, body, size, 0, id FROM understudy_batch WHERE queue = ?1 LIMIT ?2"
	dropSome  = "DELETE FROM understudy_claim WHERE (space, key) IN (SELECT space, key FROM understudy_claim WHERE space = ?1 LIMIT ?2)"
	dropSpace = "DELETE FROM understudy_member WHERE space = ?1"
)

// CreateQueue implements [dispatch.Admin].
func (s queueAdmin) CreateQueue(ctx context.Context, name string) error {
	if err := dispatch.ValidateQueue(name); err != nil {
		return err
	}
	for clean := false; ; {
		err := s.write(ctx, "making a queue", func(t *txn) (err error) {
			// A removal may have been interrupted.
			if clean, err = t.purge(name); err == nil && clean {
				_, err = t.exec(makeQueue, name, t.wall)
			}
			return err
		})
		if err != nil || clean {
			return err
		}
	}
}

// RemoveQueue implements [dispatch.Admin]. First the queue goes, so that nothing is added or delivered any more, and then in
// portions what was in it: everyone's renewals wait for a transaction.
func (s queueAdmin) RemoveQueue(ctx context.Context, name string, messages int64, who string) error {
	removed := s.write(ctx, "removing a queue", func(t *txn) error {
		if err := t.requireQueue(name); err != nil {
			return err
		}
		space := dispatch.Space(name)
		var sinks, joined, has int64
		err := t.one(sinkOf, []any{name}, &sinks)
		if err == nil && sinks > 0 {
			err = dispatch.SinkQueueError(name)
		}
		if err == nil {
			err = t.one(countJoined, []any{t.boot, space}, &joined)
		}
		if err == nil {
			err = t.one(countLosses, []any{space, name}, &has)
		}
		if err == nil {
			err = dispatch.CheckRemoval(name, messages, has, joined)
		}
		if err == nil {
			_, err = t.exec(dropQueue, name)
		}
		if err != nil {
			return err
		}
		return t.record(history.Event{Part: "batch", Subject: name, Reason: dispatch.RemovalReason(has, who)}, changeNoLease, "")
	})
	if removed != nil && !errors.Is(removed, dispatch.ErrNoQueue) {
		return removed
	}
	for clean := false; !clean; {
		err := s.write(ctx, "removing a queue", func(t *txn) (err error) {
			clean, err = t.purge(name)
			return err
		})
		if err != nil {
			return err
		}
	}
	return removed
}

// purge deletes some of what was in a queue that is gone, and reports whether nothing is left. A queue that somebody has made
// again meanwhile keeps what is in it.
func (t *txn) purge(name string) (clean bool, err error) {
	if err := t.requireQueue(name); !errors.Is(err, dispatch.ErrNoQueue) {
		return err == nil, err
	}
	deleted, through, err := t.drop(name, anyBatch, name, pruneAtOnce)
	if err != nil || !through || deleted > 0 {
		return false, err
	}
	space := dispatch.Space(name)
	keys, err := t.exec(dropSome, space, 4*pruneAtOnce)
	left := keys
	if err == nil && keys == 0 {
		left, err = t.exec(dropScheduled, name, pruneAtOnce)
	}
	if err == nil && left == 0 {
		_, err = t.exec(dropSpace, space)
	}
	return left == 0, err
}
