package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/understudy-ha/understudy/dispatch"
)

// scheduledColumns are those of recordColumns, of a scheduled message s.
const scheduledColumns = `s.queue, s.key, s.id, s.content_type, octet_length(s.payload), s.n,
	'scheduled', 0::bigint, 0, 0, '', '', s.enqueued, NULL::timestamptz, NULL::timestamptz, false, s.not_before`

// scheduledOnly leaves out those that give way to one of the same ID.
const scheduledOnly = `NOT EXISTS (SELECT FROM {{schema}}.batch b WHERE b.id = s.id AND b.queue = s.queue OFFSET 0)`

// EnqueueDue implements [dispatch.Queue].
func (q queue) EnqueueDue(ctx context.Context, name string, limit int) (enqueued int, err error) {
	err = q.rowReadCommitted(ctx, "SELECT {{rules}}.enqueue_due($1, $2, $3)",
		func(r pgx.Row) error { return r.Scan(&enqueued) }, name, int64(limit), lockTimeout{})
	if err != nil {
		return 0, fmt.Errorf("enqueueing due messages of %s: %w", name, err)
	}
	return enqueued, nil
}

// scheduled lists scheduled messages, by their IDs or by their keys.
func (d queueAdmin) scheduled(ctx context.Context, q dispatch.MessageQuery) ([]dispatch.Record, error) {
	which, args := `s.queue = $1`, []any{q.Queue, q.Key, max(q.AfterKey, q.Key), q.AfterSeq, int64(dispatch.PageSize(q.Limit))}
	if len(q.IDs) > 0 {
		which, args = `s.id = ANY ($6) AND s.queue = $1`, append(args, q.IDs)
	}
	return rows(ctx, d.Store, `SELECT `+scheduledColumns+` FROM {{schema}}.scheduled s
		WHERE `+which+` AND ($2 = '' OR s.key = $2) AND (s.key, s.n) > ($3, $4) AND `+scheduledOnly+`
		ORDER BY s.key, s.n LIMIT $5`,
		func(r pgx.CollectableRow) (dispatch.Record, error) { return scanRecord(r) }, args...)
}
