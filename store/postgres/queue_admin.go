package postgres

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/understudy-ha/understudy/claim"
	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/lease"
)

// QueueAdmin is what operators do with messages.
func (s *Store) QueueAdmin() dispatch.Admin { return queueAdmin{s} }

type queueAdmin struct{ *Store }

// CreateQueue implements [dispatch.Admin].
func (d queueAdmin) CreateQueue(ctx context.Context, name string) error {
	if err := dispatch.ValidateQueue(name); err != nil {
		return err
	}
	err := d.purge(ctx, name) // a removal may have been interrupted
	if err == nil {
		_, err = d.exec(ctx, "INSERT INTO {{schema}}.queue (name, made) VALUES ($1, {{schema}}.clock()) ON CONFLICT DO NOTHING", name)
	}
	return during(err, "creating the queue %s", name)
}

// purgedPerCall is how many rows one transaction of a removal deletes.
const purgedPerCall = 2000

// purge deletes what was in a queue that is gone; in one that is there it touches nothing.
func (d queueAdmin) purge(ctx context.Context, name string) error {
	for clean := false; !clean; {
		err := d.rowReadCommitted(ctx, "SELECT {{rules}}.purge_queue($1, $2, $3)", func(r pgx.Row) error { return r.Scan(&clean) }, name, int64(purgedPerCall), lockTimeout{})
		if err != nil {
			return err
		}
	}
	return nil
}

// RemoveQueue implements [dispatch.Admin]. First the queue goes, so that nothing is added or delivered any more, and then in
// portions what was in it.
func (d queueAdmin) RemoveQueue(ctx context.Context, name string, messages int64, who string) error {
	var verdict string
	var has, joined *int64
	err := d.rowReadCommitted(ctx, "SELECT * FROM {{rules}}.remove_queue($1, $2, $3, $4)", func(r pgx.Row) error { return r.Scan(&verdict, &has, &joined) },
		name, messages, dispatch.RemovalReason(messages, who), lockTimeout{})
	switch {
	case err != nil:
	case verdict == "sink":
		err = dispatch.SinkQueueError(name)
	case verdict == "refused":
		err = dispatch.CheckRemoval(name, messages, *has, *joined)
	default:
		if err = d.purge(ctx, name); err == nil && verdict == "no queue" {
			err = fmt.Errorf("%q: %w", name, dispatch.ErrNoQueue)
		}
	}
	return during(err, "removing the queue %s", name)
}

// Add implements [dispatch.Admin].
func (d queueAdmin) Add(ctx context.Context, messages []dispatch.Message) (added []bool, err error) {
	if len(messages) > claim.MaxKeys {
		return nil, fmt.Errorf("%w: %d messages at once; at most %d are allowed", lease.ErrInvalid, len(messages), claim.MaxKeys)
	}
	sql, args, err := enqueueCall(messages)
	if err == nil && len(messages) > 0 {
		err = d.rowReadCommitted(ctx, sql, func(r pgx.Row) error { return r.Scan(&added) }, args...)
	}
	if err != nil {
		return nil, fmt.Errorf("enqueueing: %w", err)
	}
	return added, nil
}

// Act implements [dispatch.Admin].
func (d queueAdmin) Act(ctx context.Context, queue, id string, a dispatch.Action, who string) error {
	var said string
	err := d.rowReadCommitted(ctx, "SELECT {{rules}}.apply_action($1, $2, $3, $4, $5)", func(r pgx.Row) error { return r.Scan(&said) },
		queue, id, string(a), who, lockTimeout{})
	switch {
	case err != nil:
		return fmt.Errorf("%s of %s in %s: %w", a, id, queue, err)
	case said == "no queue":
		return fmt.Errorf("%q: %w", queue, dispatch.ErrNoQueue)
	case said == "no batch":
		return fmt.Errorf("%q in %s: %w", id, queue, dispatch.ErrNoMessage)
	case said == "uncertain":
		return dispatch.ErrUncertain
	case said != "done":
		return fmt.Errorf("%s of a message that is %s: %w", a, said, dispatch.ErrState)
	}
	return nil
}

// Message implements [dispatch.Admin].
func (d queueAdmin) Message(ctx context.Context, name, id string) (dispatch.Record, error) {
	found, err := rows(ctx, d.Store, `SELECT `+recordColumns+`, b.payload, b.trail, b.headers::text
		FROM {{schema}}.batch b LEFT JOIN {{schema}}.claim c ON c.space = 'queue/' || b.queue AND c.key = b.key
		WHERE b.id = $2 AND (b.queue = $1 OR $1 = '') AND b.seq IS NOT NULL
		UNION ALL SELECT `+scheduledColumns+`, s.payload, NULL::jsonb, s.headers::text
		FROM {{schema}}.scheduled s WHERE s.id = $2 AND (s.queue = $1 OR $1 = '') AND `+scheduledOnly+` LIMIT 2`, scanWhole, name, id)
	if err == nil && len(found) == 0 {
		if err = d.requireQueue(ctx, name); err == nil {
			err = fmt.Errorf("%q: %w", id, dispatch.ErrNoMessage)
		}
	}
	if len(found) > 1 {
		err = fmt.Errorf("%w: several queues have a message %q; name the queue", lease.ErrInvalid, id)
	}
	if err != nil {
		return dispatch.Record{}, fmt.Errorf("reading a message: %w", err)
	}
	return found[0], nil
}

// requireQueue returns dispatch.ErrNoQueue unless the queue is there, or none is named.
func (d queueAdmin) requireQueue(ctx context.Context, name string) error {
	if name == "" {
		return nil
	}
	var there bool
	err := d.queryRow(ctx, ordinary, "SELECT EXISTS (SELECT FROM {{schema}}.queue WHERE name = $1)", func(r pgx.Row) error { return r.Scan(&there) }, name)
	if err == nil && !there {
		err = fmt.Errorf("queue %q: %w", name, dispatch.ErrNoQueue)
	}
	return err
}

func scanWhole(r pgx.CollectableRow) (out dispatch.Record, err error) {
	var payload, trail []byte
	var headers *string
	if out, err = scanRecord(r, &payload, &trail, &headers); err != nil {
		return out, err
	}
	out.Payload, out.Headers = payload, decodeHeaders(headers)
	out.Trail = []dispatch.TrailEntry{{At: out.Enqueued, State: dispatch.Queued}}
	if out.State == dispatch.Scheduled {
		out.Trail[0].State = dispatch.Scheduled
	}
	if trail == nil {
		out.Trail = append(out.Trail, plainTrail(out)...)
		return out, nil
	}
	var noted []dispatch.TrailEntry
	if err := json.Unmarshal(trail, &noted); err != nil {
		return out, fmt.Errorf("the trail of %s: %w", out.ID, err)
	}
	for i := range noted {
		noted[i].At = noted[i].At.UTC()
	}
	if len(noted) > 0 && noted[0].State == dispatch.Queued && noted[0].Action == "" {
		out.Trail = nil // it went to the end of its key since, and that is when it was queued first
	}
	out.Trail = append(out.Trail, noted...)
	return out, nil
}

// plainTrail is what happened to a message of which only the columns tell: at most a
// submission, and that it was committed.
func plainTrail(r dispatch.Record) (out []dispatch.TrailEntry) {
	if !r.Begun.IsZero() {
		out = append(out, dispatch.TrailEntry{At: r.Begun, State: dispatch.Submitting, Term: r.Term, Attempt: 1})
	}
	if !r.Ended.IsZero() {
		out = append(out, dispatch.TrailEntry{At: r.Ended, State: r.State, Term: r.Term, Attempt: r.Attempts, Code: r.Code, Detail: r.Detail})
	}
	return out
}
