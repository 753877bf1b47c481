package postgres

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/lease"
)

// busyKeys are the keys e of the queue $1 that have a message left to do, with their
// claims c and heads b. Finished messages are not looked at.
const busyKeys = `{{schema}}.tail e
	JOIN {{schema}}.claim c ON c.space = 'queue/' || e.queue AND c.key = e.key
	JOIN LATERAL (SELECT b.* FROM {{schema}}.batch b
		WHERE b.queue = e.queue AND b.key = e.key AND b.seq > c.done AND NOT b.over ORDER BY b.seq LIMIT 1) b ON true`

// busy reports whether such a key may have something to do, from its claim alone.
const busy = `(c.session <> '' OR c.ready_at IS NOT NULL OR c.blocked IS NOT NULL)`

// depth is how many messages of such a key have not ended: by their numbers where
// they are many, which counts those that were cancelled before their turn.
const depth = `(SELECT CASE WHEN z.last - b.seq < 200
		THEN (SELECT count(*) FROM {{schema}}.batch x WHERE x.queue = e.queue AND x.key = e.key AND x.seq >= b.seq AND NOT x.over)
		ELSE z.last - b.seq + 1 END
	FROM (SELECT x.seq AS last FROM {{schema}}.batch x WHERE x.queue = e.queue AND x.key = e.key AND x.seq > 0 ORDER BY x.seq DESC LIMIT 1) z)`

// Queues implements [dispatch.Admin].
func (d queueAdmin) Queues(ctx context.Context) ([]dispatch.Overview, error) {
	out, err := rows(ctx, d.Store, `SELECT q.name, coalesce(k.depth, 0), n.given - coalesce(k.depth, 0) - a.dead, a.dead,
			w.n, extract(epoch FROM greatest(k.oldest, now.at - w.first, '0')),
			coalesce(k.keys, 0), coalesce(k.in_step, 0), coalesce(k.pending, 0), coalesce(k.delayed, 0), coalesce(k.blocked, 0)
		FROM (SELECT {{schema}}.clock() AS at OFFSET 0) now, {{schema}}.queue q,
		LATERAL (SELECT coalesce(sum(coalesce((SELECT x.seq FROM {{schema}}.batch x
				WHERE x.queue = e.queue AND x.key = e.key AND x.seq > e.last ORDER BY x.seq DESC LIMIT 1), e.last) - e.moved), 0)::bigint AS given
			FROM {{schema}}.tail e WHERE e.queue = q.name) n,
		LATERAL (SELECT sum(h.depth)::bigint AS depth, count(*) AS keys, max(now.at - h.enqueued) AS oldest,
				count(*) FILTER (WHERE h.blocked) AS blocked, count(*) FILTER (WHERE NOT h.blocked AND h.in_step) AS in_step,
				count(*) FILTER (WHERE NOT h.blocked AND NOT h.in_step AND h.state IN ('pending', 'valid')) AS pending,
				count(*) FILTER (WHERE NOT h.blocked AND NOT h.in_step AND h.state IN ('delayed', 'unknown')) AS delayed
			FROM (SELECT `+depth+` AS depth, b.state, b.enqueued, c.blocked IS NOT NULL AS blocked,
					b.hold IS NOT NULL AND b.term = c.term AND c.session <> '' AS in_step
				FROM `+busyKeys+` WHERE e.queue = q.name AND `+busy+`) h) k,
		LATERAL (SELECT count(*) AS dead FROM (
			SELECT FROM {{schema}}.batch x WHERE x.queue = q.name AND x.aside AND x.over AND x.state IN ('invalid', 'failed') LIMIT $1) d) a,
		LATERAL {{rules}}.count_scheduled(q.name, $2) w
		ORDER BY q.name`, scanOverview, int64(dispatch.MaxDeadLetters), int64(dispatch.MaxScheduled))
	if err == nil {
		err = d.holders(ctx, out)
	}
	return out, during(err, "listing queues")
}

func scanOverview(r pgx.CollectableRow) (o dispatch.Overview, err error) {
	var oldest float64
	err = r.Scan(&o.Queue, &o.Depth, &o.Done, &o.DeadLetters, &o.Scheduled, &oldest, &o.Keys, &o.InStep, &o.Pending, &o.Delayed, &o.Blocked)
	o.Oldest = time.Duration(oldest * float64(time.Second))
	return o, err
}

// holders adds who works on each queue.
func (d queueAdmin) holders(ctx context.Context, queues []dispatch.Overview) error {
	at := make(map[string]*dispatch.Overview, len(queues))
	for i := range queues {
		at[dispatch.Space(queues[i].Queue)] = &queues[i]
	}
	_, err := rows(ctx, d.Store, `SELECT m.space, s.instance_id, s.name, s.address, m.asleep,
			(SELECT count(*) FROM {{schema}}.claim c WHERE c.session = m.session AND c.session <> '' AND c.space = m.space)
		FROM {{schema}}.member m JOIN {{schema}}.session s ON s.id = m.session, (SELECT {{schema}}.clock() AS at OFFSET 0) now
		WHERE m.joined AND NOT s.ended AND s.deadline > now.at ORDER BY s.name, s.instance_id`,
		func(r pgx.CollectableRow) (h dispatch.HolderCount, err error) {
			var space string
			err = r.Scan(&space, &h.Instance.ID, &h.Instance.Name, &h.Instance.Address, &h.Asleep, &h.Keys)
			if o := at[space]; o != nil {
				o.Holders = append(o.Holders, h)
			}
			return h, err
		})
	return err
}

// Keys implements [dispatch.Admin].
func (d queueAdmin) Keys(ctx context.Context, q dispatch.KeyQuery) ([]dispatch.KeyRecord, error) {
	// Idle keys may have lost their claims, and have no heads.
	keys := `{{schema}}.tail e LEFT JOIN {{schema}}.claim c ON c.space = 'queue/' || e.queue AND c.key = e.key
		LEFT JOIN LATERAL (SELECT b.* FROM {{schema}}.batch b WHERE b.queue = e.queue AND b.key = e.key
			AND b.seq > c.done AND NOT b.over ORDER BY b.seq LIMIT 1) b ON ` + busy
	if q.Blocked {
		keys = busyKeys + ` AND c.blocked IS NOT NULL`
	}
	out, err := rows(ctx, d.Store, `SELECT e.key, coalesce(`+depth+`, 0), coalesce(b.id, ''),
			coalesce({{rules}}.shown_state(b.state, b.hold, b.term, c.term, c.session), ''),
			coalesce(s.instance_id, ''), coalesce(s.name, ''), coalesce(s.address, ''), coalesce(c.term, e.term),
			coalesce(b.hold IS NOT NULL AND b.term = c.term AND c.session <> '', false), coalesce(c.blocked IS NOT NULL, false),
			coalesce(b.detail, ''), coalesce(extract(epoch FROM now.at - b.enqueued), 0), coalesce(extract(epoch FROM c.ready_at - now.at), 0)
		FROM (SELECT {{schema}}.clock() AS at OFFSET 0) now, `+keys+`
		LEFT JOIN {{schema}}.session s ON s.id = c.session AND c.session <> ''
		WHERE e.queue = $1 AND e.key > $2 AND ($3 OR b.id IS NOT NULL) AND (NOT $4 OR c.blocked IS NOT NULL)
		ORDER BY e.key LIMIT $5`, scanKey, q.Queue, q.After, q.Idle, q.Blocked, int64(dispatch.PageSize(q.Limit)))
	if err == nil && len(out) == 0 {
		err = d.requireQueue(ctx, q.Queue)
	}
	return out, during(err, "listing keys")
}

func scanKey(r pgx.CollectableRow) (k dispatch.KeyRecord, err error) {
	var waiting, next float64
	err = r.Scan(&k.Key, &k.Depth, &k.Head, &k.State, &k.Holder.ID, &k.Holder.Name, &k.Holder.Address, &k.Term,
		&k.InStep, &k.Blocked, &k.Reason, &waiting, &next)
	if k.State == dispatch.Queued || k.State == dispatch.Submitting {
		k.Reason = ""
	}
	if k.Head != "" {
		k.Waiting = time.Duration(waiting * float64(time.Second))
		if !k.Blocked {
			k.Next = max(0, time.Duration(next*float64(time.Second)))
		}
	}
	return k, err
}

// Messages implements [dispatch.Admin].
func (d queueAdmin) Messages(ctx context.Context, q dispatch.MessageQuery) ([]dispatch.Record, error) {
	if len(q.IDs) > dispatch.MaxPage {
		return nil, fmt.Errorf("%w: %d ids; at most %d are allowed", lease.ErrInvalid, len(q.IDs), dispatch.MaxPage)
	}
	if q.IDs == nil {
		q.IDs = []string{}
	}
	var out, numbered []dispatch.Record
	var err error
	if q.State == dispatch.Scheduled || len(q.IDs) > 0 && q.State == "" {
		out, err = d.scheduled(ctx, q) // first: they may join their keys meanwhile
	}
	if err == nil && q.State != dispatch.Scheduled {
		numbered, err = d.numbered(ctx, q)
		out = slices.DeleteFunc(out, func(r dispatch.Record) bool {
			return slices.ContainsFunc(numbered, func(o dispatch.Record) bool { return o.ID == r.ID })
		})
		out = append(out, numbered...)
	}
	if err == nil && len(out) == 0 {
		err = d.requireQueue(ctx, q.Queue)
	}
	return out[:min(len(out), dispatch.PageSize(q.Limit))], during(err, "listing messages")
}

// numbered lists messages that have their places in their keys.
func (d queueAdmin) numbered(ctx context.Context, q dispatch.MessageQuery) ([]dispatch.Record, error) {
	return rows(ctx, d.Store, `SELECT `+recordColumns+` FROM `+batchSource(q)+`
		  AND b.queue = $1 AND ($2 = '' OR b.key = $2) AND (b.key, b.seq) > ($3, $4) AND b.seq IS NOT NULL
		  AND ($5 = '' OR {{rules}}.shown_state(b.state, b.hold, b.term, c.term, c.session) = $5) AND (cardinality($6::text[]) = 0 OR b.id = ANY ($6))
		ORDER BY b.key, b.seq LIMIT $7`,
		func(r pgx.CollectableRow) (dispatch.Record, error) { return scanRecord(r) },
		q.Queue, q.Key, q.AfterKey, q.AfterSeq, string(q.State), q.IDs, int64(dispatch.PageSize(q.Limit)))
}

// batchSource is where the messages b of a query are found, with the claims c of
// their keys, so that what was delivered long ago is not searched for the rest.
func batchSource(q dispatch.MessageQuery) string {
	const claimed = ` LEFT JOIN {{schema}}.claim c ON c.space = 'queue/' || b.queue AND c.key = b.key`
	switch {
	case len(q.IDs) > 0 || q.State == "" || q.State == dispatch.Committed:
		return `{{schema}}.batch b` + claimed + ` WHERE true`
	case q.State == dispatch.Invalid || q.State == dispatch.Failed || q.State == dispatch.Cancelled:
		return `{{schema}}.batch b` + claimed + ` WHERE b.aside`
	case q.State == dispatch.Queued:
		return `{{schema}}.claim c JOIN {{schema}}.batch b ON b.key = c.key AND b.seq > c.done AND NOT b.over
			WHERE c.space = 'queue/' || $1 AND c.key >= $3 AND ` + busy
	}
	// Only heads can be in any other state.
	return busyKeys + ` WHERE e.queue = $1 AND e.key >= $3 AND ` + busy
}
