package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/understudy-ha/understudy/dispatch"
)

const (
	anyDue = "SELECT EXISTS (SELECT 1 FROM understudy_scheduled WHERE queue = ?1 AND not_before_us <= understudy_wall_us())"

	listDue = `
SELECT n, size FROM understudy_scheduled WHERE queue = ?1 AND not_before_us <= understudy_wall_us() ORDER BY not_before_us, n LIMIT ?2`

	takeScheduled = `
DELETE FROM understudy_scheduled WHERE n = ?1 RETURNING queue, key, id, payload, content_type, min(not_before_us, understudy_wall_us()), headers`

	// givesWaySQL leaves out a scheduled message s that gives way to another of the same ID.
	givesWaySQL = " AND NOT EXISTS (SELECT 1 FROM understudy_batch b WHERE b.id = s.id AND b.queue = s.queue)"

	findScheduled = "SELECT n FROM understudy_scheduled s WHERE id = ?1 AND queue = ?2" + givesWaySQL

	scheduledColumns = "SELECT queue, key, n, id, size, content_type, enqueued_us, not_before_us"

	oneScheduled = scheduledColumns + ", payload, headers FROM understudy_scheduled s WHERE id = ?1 AND (queue = ?2 OR ?2 = '')" + givesWaySQL

	// scheduledPage goes by the index of the keys, of which it is given the first.
	scheduledPage = scheduledColumns + `
FROM understudy_scheduled s WHERE queue = ?1 AND (key, n) > (?2, ?3) AND (?4 = '' OR key = ?4)
` + givesWaySQL + " ORDER BY key, n LIMIT ?5"

	countScheduled = `
SELECT (SELECT count(*) FROM (SELECT 1 FROM understudy_scheduled WHERE queue = ?1 LIMIT ?2)),
  coalesce(understudy_wall_us() - (SELECT min(not_before_us) FROM understudy_scheduled WHERE queue = ?1), 0)`

	dropScheduled = "DELETE FROM understudy_scheduled WHERE n IN (SELECT n FROM understudy_scheduled WHERE queue = ?1 LIMIT ?2)"
)

// EnqueueDue implements [dispatch.Queue]. It writes only when something is due.
func (s queue) EnqueueDue(ctx context.Context, name string, limit int) (enqueued int, err error) {
	due := false
	err = s.read(ctx, "looking for due messages", func(c call) error {
		if err := c.requireQueue(name); err != nil {
			return err
		}
		return c.one(anyDue, []any{name}, &due)
	})
	if err != nil || !due {
		return 0, err
	}
	err = s.write(ctx, "enqueueing due messages", func(t *txn) error {
		enqueued = 0
		type row struct{ n, size int64 }
		rows, err := list(t.call, listDue, []any{name, limit}, func(scan scanner) (r row, err error) {
			err = scan(&r.n, &r.size)
			return r, err
		})
		bytes := int64(0)
		for _, r := range rows {
			// Everyone's renewals wait for this transaction.
			if bytes += r.size; err != nil || enqueued > 0 && bytes > dispatch.MaxPayload {
				break
			}
			err = t.join(r.n)
			enqueued++
		}
		return err
	})
	if err != nil {
		return 0, err
	}
	return enqueued, nil
}

// join puts a scheduled message at the end of its key.
func (t *txn) join(n int64) error {
	var queue, key, id, contentType, headers string
	var payload []byte
	var enqueued int64
	if err := t.one(takeScheduled, []any{n}, &queue, &key, &id, &payload, &contentType, &enqueued, &headers); err != nil {
		return err
	}
	if payload == nil {
		payload = []byte{}
	}
	_, err := t.exec(enqueueOne, queue, key, id, payload, contentType, enqueued, headers, nil)
	return err
}

// joinToCancel puts a scheduled message into its key, where it is cancelled as any other, and reports whether it did.
func (t *txn) joinToCancel(queue, id string, action dispatch.Action) (bool, error) {
	var n int64
	err := t.one(findScheduled, []any{id, queue}, &n)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return false, nil
	case err == nil && action != dispatch.Cancel:
		return false, fmt.Errorf("%s of message %q, which is %s: %w", action, id, dispatch.Scheduled, dispatch.ErrState)
	case err != nil:
		return false, err
	}
	return true, t.join(n)
}

// scanScheduled reads scheduledColumns; more are columns that follow.
func scanScheduled(scan scanner, more ...any) (r dispatch.Record, err error) {
	var enqueued, due int64
	err = scan(append([]any{&r.Queue, &r.Key, &r.Seq, &r.ID, &r.Size, &r.ContentType, &enqueued, &due}, more...)...)
	r.State, r.Enqueued, r.NotBefore = dispatch.Scheduled, time.UnixMicro(enqueued), time.UnixMicro(due).UTC()
	return r, err
}

func scanWholeScheduled(scan scanner) (dispatch.Record, error) {
	var payload []byte
	var headers string
	r, err := scanScheduled(scan, &payload, &headers)
	r.Payload, r.Headers = payload, dispatch.DecodeHeaders(headers)
	r.Trail = []dispatch.TrailEntry{{At: r.Enqueued, State: dispatch.Scheduled}}
	return r, err
}

// listScheduledID finds the message of an id if it is scheduled, and the query asks for such.
func (c call) listScheduledID(q dispatch.MessageQuery, id string) ([]dispatch.Record, error) {
	if q.State != "" && q.State != dispatch.Scheduled {
		return nil, nil
	}
	out, err := list(c, oneScheduled, []any{id, q.Queue}, scanWholeScheduled)
	for i := range out {
		out[i].Payload, out[i].Headers, out[i].Trail = nil, nil, nil
	}
	return slices.DeleteFunc(out, func(r dispatch.Record) bool {
		return q.Key != "" && q.Key != r.Key || r.Key < q.AfterKey || r.Key == q.AfterKey && r.Seq <= q.AfterSeq
	}), err
}

func (c call) listScheduled(q dispatch.MessageQuery) ([]dispatch.Record, error) {
	return list(c, scheduledPage, []any{q.Queue, max(q.AfterKey, q.Key), q.AfterSeq, q.Key, dispatch.PageSize(q.Limit)},
		func(scan scanner) (dispatch.Record, error) { return scanScheduled(scan) })
}
