package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/lease"
)

// queueAdmin is the [dispatch.Admin] of a Store.
type queueAdmin struct{ *Store }

// QueueAdmin returns what people do with queues.
func (s *Store) QueueAdmin() dispatch.Admin { return queueAdmin{s} }

const (
	// headSQL finds the head of a key c: nearly always the one after done.
	headSQL = `(
  SELECT seq FROM understudy_batch WHERE queue = substr(c.space, 7) AND key = c.key AND seq > c.done AND state <> 'cancelled' ORDER BY seq LIMIT 1)`

	// shownSQL is the state that people are shown of a message b, whose key is c.
	shownSQL = `
iif(b.state IN ('queued', 'delayed') AND (c.step <> 0 OR c.interrupted <> 0) AND b.seq = ` + headSQL + `, iif(c.step <> 0, 'submitting', 'unknown'), b.state)`

	listQueues = `
SELECT q.name,
  (SELECT coalesce(sum(c.over), 0) FROM understudy_claim c WHERE c.space = 'queue/' || q.name),
  (SELECT count(*) FROM (SELECT 1 FROM understudy_batch b INDEXED BY understudy_batch_state
    WHERE b.queue = q.name AND b.state NOT IN ('queued', 'committed') AND b.state IN ('invalid', 'failed') AND b.blocks = 0 LIMIT ?1))
FROM understudy_queue q ORDER BY q.name`

	listWaiting = `
SELECT count(*), coalesce(sum(c.waiting), 0), coalesce(sum(c.blocked), 0), coalesce(sum(c.blocked = 0 AND c.step <> 0), 0),
  coalesce(sum(c.blocked = 0 AND c.step = 0 AND b.state IN ('pending', 'valid')), 0),
  coalesce(sum(c.blocked = 0 AND c.step = 0 AND b.state IN ('delayed', 'unknown')), 0),
  coalesce(understudy_wall_us() - min(b.enqueued_us), 0)
FROM understudy_claim c JOIN understudy_batch b ON b.queue = ?2 AND b.key = c.key AND b.seq = ` + headSQL + `
WHERE c.space = ?1 AND c.waiting > 0`

	listHolders = `
SELECT x.instance, x.name, x.address, m.asleep,
  (SELECT count(*) FROM understudy_claim c WHERE c.session = x.id AND c.session <> '' AND c.space = ?2)
FROM understudy_member m JOIN understudy_session x ON x.id = m.session
WHERE m.space = ?2 AND ` + claimAliveSQL + " ORDER BY x.name, x.instance"

	keyColumns = `
SELECT c.key, c.waiting, c.term, c.step <> 0, c.blocked, coalesce(x.instance, ''), coalesce(x.name, ''), coalesce(x.address, ''),
  coalesce(b.id, ''), coalesce(` + shownSQL + `, ''), coalesce(b.detail, ''), coalesce(b.enqueued_us, 0), coalesce(c.ready_us, 0), understudy_wall_us()
FROM understudy_claim c %s
LEFT JOIN understudy_session x ON x.id = c.session
LEFT JOIN understudy_batch b ON c.waiting > 0 AND b.queue = ?2 AND b.key = c.key AND b.seq = ` + headSQL + `
WHERE c.space = ?1 AND c.key > ?3`

	batchColumns = `
SELECT b.queue, b.key, b.seq, b.id, b.size, b.content_type, ` + shownSQL + `, b.blocks, b.attempts, b.term, b.code, b.detail, b.link,
  b.enqueued_us, b.begun_us, b.ended_us, b.state, b.trail, c.step, c.interrupted, c.begun_us`

	joinKey = " JOIN understudy_claim c ON c.space = 'queue/' || b.queue AND c.key = b.key"

	oneBatch = batchColumns + ", p.payload, b.headers FROM understudy_batch b" + joinKey + " JOIN understudy_payload p ON p.n = b.body WHERE b.id = ?1"
)

// Queues implements [dispatch.Admin]. It reads the row of every key, and the heads of
// those that have one, but no message that has ended.
func (s queueAdmin) Queues(ctx context.Context) ([]dispatch.Overview, error) {
	var out []dispatch.Overview
	err := s.read(ctx, "looking at the queues", func(c call) (err error) {
		out, err = list(c, listQueues, []any{dispatch.MaxDeadLetters}, func(scan scanner) (o dispatch.Overview, err error) {
			err = scan(&o.Queue, &o.Done, &o.DeadLetters)
			o.Done -= o.DeadLetters
			return o, err
		})
		for i := range out {
			if err == nil {
				err = c.overview(&out[i], s.clocks.boot)
			}
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

func (c call) overview(o *dispatch.Overview, boot string) error {
	space := dispatch.Space(o.Queue)
	var oldest int64
	err := c.one(listWaiting, []any{space, o.Queue}, &o.Keys, &o.Depth, &o.Blocked, &o.InStep, &o.Pending, &o.Delayed, &oldest)
	if err != nil {
		return err
	}
	o.Oldest = max(0, micros(oldest))
	if err := c.one(countScheduled, []any{o.Queue, dispatch.MaxScheduled}, &o.Scheduled, &oldest); err != nil {
		return err
	}
	o.Oldest = max(o.Oldest, micros(oldest))
	o.Holders, err = list(c, listHolders, []any{boot, space}, func(scan scanner) (h dispatch.HolderCount, err error) {
		err = scan(&h.Instance.ID, &h.Instance.Name, &h.Instance.Address, &h.Asleep, &h.Keys)
		return h, err
	})
	return err
}

// Keys implements [dispatch.Admin].
func (s queueAdmin) Keys(ctx context.Context, q dispatch.KeyQuery) ([]dispatch.KeyRecord, error) {
	text := selectKeys(q)
	var out []dispatch.KeyRecord
	err := s.read(ctx, "listing keys", func(c call) (err error) {
		if err := c.requireQueue(q.Queue); err != nil {
			return err
		}
		out, err = list(c, text, []any{dispatch.Space(q.Queue), q.Queue, q.After, dispatch.PageSize(q.Limit)}, scanKey)
		return err
	})
	return out, err
}

func selectKeys(q dispatch.KeyQuery) string {
	index, more := "", ""
	if q.Blocked {
		index, more = "INDEXED BY understudy_claim_blocked", " AND c.blocked = 1"
	}
	if !q.Idle {
		more += " AND c.waiting > 0"
	}
	return fmt.Sprintf(keyColumns, index) + more + " ORDER BY c.key LIMIT ?4"
}

func scanKey(scan scanner) (k dispatch.KeyRecord, err error) {
	var enqueued, ready, wall int64
	err = scan(&k.Key, &k.Depth, &k.Term, &k.InStep, &k.Blocked, &k.Holder.ID, &k.Holder.Name, &k.Holder.Address,
		&k.Head, &k.State, &k.Reason, &enqueued, &ready, &wall)
	if k.State == dispatch.Queued || k.State == dispatch.Submitting {
		k.Reason = ""
	}
	if k.Head != "" {
		k.Waiting = max(0, micros(wall-enqueued))
		if !k.Blocked && ready != 0 {
			k.Next = max(0, micros(ready-wall))
		}
	}
	return k, err
}

// Messages implements [dispatch.Admin].
func (s queueAdmin) Messages(ctx context.Context, q dispatch.MessageQuery) ([]dispatch.Record, error) {
	if len(q.IDs) > dispatch.MaxPage {
		return nil, fmt.Errorf("sqlite: %w: %d ids; at most %d are allowed", lease.ErrInvalid, len(q.IDs), dispatch.MaxPage)
	}
	text, args := selectBatches(q)
	var out []dispatch.Record
	err := s.read(ctx, "listing messages", func(c call) (err error) {
		out = nil
		if err := c.requireQueue(q.Queue); err != nil {
			return err
		}
		if q.State == dispatch.Scheduled && len(q.IDs) == 0 {
			out, err = c.listScheduled(q)
			return err
		}
		add := func(scan scanner) error {
			r, err := scanRecord(scan)
			r.Trail = nil
			out = append(out, r)
			return err
		}
		if len(q.IDs) == 0 {
			return c.each(text, args, add)
		}
		for _, id := range q.IDs {
			later, err := c.listScheduledID(q, id) // first: it may join its key meanwhile
			n := len(out)
			if err == nil {
				err = c.each(text, append([]any{id}, args...), add)
			}
			if err != nil {
				return err
			}
			if len(out) == n {
				out = append(out, later...)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return out[:min(len(out), dispatch.PageSize(q.Limit))], nil
}

// selectBatches names only the conditions that are asked for, so that SQLite
// picks the index that fits: no page may cost more the more messages have ended. There
// are few such texts. With ids it is asked once for each, as its first argument.
func selectBatches(q dispatch.MessageQuery) (text string, args []any) {
	const (
		all = " FROM understudy_batch b" + joinKey + " WHERE b.queue = ?"
		// By way of the keys that have something waiting.
		waiting = " FROM understudy_claim c CROSS JOIN understudy_batch b ON b.queue = ? AND b.key = c.key AND %s WHERE c.space = ? AND c.key >= ? AND c.waiting > 0"
		listed  = " FROM understudy_batch b INDEXED BY understudy_batch_state CROSS" + joinKey +
			" WHERE b.queue = ? AND b.state NOT IN ('queued', 'committed') AND b.state = ?"
	)
	space := dispatch.Space(q.Queue)
	byKey := []any{q.Queue, space, q.AfterKey}
	order := "c.key"
	from := ""
	switch {
	case len(q.IDs) > 0:
		from, args, order = " FROM understudy_batch b"+joinKey+" WHERE b.id = ? AND b.queue = ?", []any{q.Queue}, "b.key"
	case q.State == dispatch.Queued:
		from, args = fmt.Sprintf(waiting, "b.seq > c.done"), byKey
	case q.State == dispatch.Submitting:
		from, args = fmt.Sprintf(waiting, "b.seq = c.done + 1")+" AND c.step <> 0", byKey
	case q.State == dispatch.Unknown: // of some only the key tells
		from, args = fmt.Sprintf(waiting, "b.seq = "+headSQL), byKey
	case q.State == "" || q.State == dispatch.Committed:
		from, args, order = all, []any{q.Queue}, "b.key"
	default:
		from, args, order = listed, []any{q.Queue, q.State}, "b.key"
	}
	text = batchColumns + from
	if q.Key != "" {
		text, args = text+" AND b.key = ?", append(args, q.Key)
	}
	if q.AfterKey != "" || q.AfterSeq != 0 {
		text, args = text+" AND (b.key, b.seq) > (?, ?)", append(args, q.AfterKey, q.AfterSeq)
	}
	if q.State != "" {
		text, args = text+" AND "+shownSQL+" = ?", append(args, q.State)
	}
	return text + " ORDER BY " + order + ", b.seq LIMIT ?", append(args, dispatch.PageSize(q.Limit))
}

// scanRecord reads batchColumns; more are columns that follow.
func scanRecord(scan scanner, more ...any) (r dispatch.Record, err error) {
	var p progress
	var step, interrupted, begun int64
	dest := []any{&r.Queue, &r.Key, &r.Seq, &r.ID, &r.Size, &r.ContentType, &r.State, &r.Blocks, &p.attempts, &p.term, &p.code, &p.detail, &p.link,
		&p.enqueued, &p.begun, &p.ended, &p.state, &p.trail, &step, &interrupted, &begun}
	if err := scan(append(dest, more...)...); err != nil {
		return r, err
	}
	r.Trail = p.steps()
	if r.State != p.state { // it was started, and only its key tells
		p.attempts, p.term, p.code, p.detail, p.begun = p.attempts+1, step, 0, "", &begun
		if step == 0 {
			p.term = interrupted
		}
		r.Trail = append(r.Trail, dispatch.TrailEntry{At: time.UnixMicro(begun), State: dispatch.Submitting, Term: p.term, Attempt: p.attempts})
	}
	r.Trail = dispatch.TruncateTrail(r.Trail)
	r.Attempts, r.Term, r.Code, r.Detail, r.Link = p.attempts, p.term, p.code, p.detail, p.link
	r.Enqueued = time.UnixMicro(p.enqueued)
	if p.begun != nil {
		r.Begun = time.UnixMicro(*p.begun)
	}
	if p.ended != nil {
		r.Ended = time.UnixMicro(*p.ended)
	}
	return r, nil
}

// Message implements [dispatch.Admin].
func (s queueAdmin) Message(ctx context.Context, name, id string) (dispatch.Record, error) {
	var found []dispatch.Record
	text, args := oneBatch, []any{id}
	if name != "" {
		text, args = text+" AND b.queue = ?2", append(args, name)
	}
	err := s.read(ctx, "reading a message", func(c call) (err error) {
		later, err := list(c, oneScheduled, []any{id, name}, scanWholeScheduled) // first: it may join its key meanwhile
		if err != nil {
			return err
		}
		found, err = list(c, text, args, func(scan scanner) (dispatch.Record, error) {
			var payload []byte
			var headers string
			r, err := scanRecord(scan, &payload, &headers)
			r.Payload, r.Headers = payload, dispatch.DecodeHeaders(headers)
			return r, err
		})
		for _, r := range later {
			if !slices.ContainsFunc(found, func(o dispatch.Record) bool { return o.Queue == r.Queue }) {
				found = append(found, r)
			}
		}
		if err != nil || len(found) > 0 {
			return err
		}
		if name != "" {
			err = c.requireQueue(name)
		}
		if err == nil {
			err = fmt.Errorf("%q: %w", id, dispatch.ErrNoMessage)
		}
		return err
	})
	switch {
	case err != nil:
		return dispatch.Record{}, err
	case len(found) > 1:
		return dispatch.Record{}, fmt.Errorf("sqlite: %w: %d queues have a message %q: name the queue", lease.ErrInvalid, len(found), id)
	}
	return found[0], nil
}

// notThere is err, but nil when there was no row.
func notThere(err error) error {
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	return err
}
