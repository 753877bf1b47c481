package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/understudy-ha/understudy/claim"
	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/lease"
)

// queue is the [dispatch.Queue] of a Store.
type queue struct{ *Store }

// Queue returns what delivers.
func (s *Store) Queue() dispatch.Queue { return queue{s} }

const (
	hasQueue = "SELECT count(*) FROM understudy_queue WHERE name = ?1"

	getKey = `
SELECT term, session, step, begun_us, interrupted, blocked, done, waiting, over
FROM understudy_claim WHERE space = ?1 AND key = ?2`

	// A key that is kept, and one that is given back. In the usual case neither
	// index of the keys is touched: a held key is not in that of the free ones.
	keepKey = `
UPDATE understudy_claim SET step = ?3, begun_us = ?4, hold_us = ?5, interrupted = ?6, done = ?7, waiting = ?8, over = ?9
WHERE space = ?1 AND key = ?2`

	giveKey = `
UPDATE understudy_claim SET step = 0, interrupted = ?3, done = ?4, waiting = ?5, over = ?6,
  session = '', since_us = ?7, ready_us = ?8, blocked = ?9
WHERE space = ?1 AND key = ?2`

	// getHead finds the first batch after done that was not cancelled; all others
	// there are not over. Its payload is read if there is room for it.
	getHead = `
SELECT b.seq, b.id, b.content_type, b.state, b.attempts, b.link, b.size, iif(b.size <= ?4, p.payload, NULL)
FROM understudy_batch b JOIN understudy_payload p ON p.n = b.body
WHERE b.queue = ?1 AND b.key = ?2 AND b.seq > ?3 AND b.state <> 'cancelled' ORDER BY b.seq LIMIT 1`

	lookAtHead = `
SELECT seq, state FROM understudy_batch WHERE queue = ?1 AND key = ?2 AND seq > ?3 AND state <> 'cancelled' ORDER BY seq LIMIT 1`

	// commitFirst records the usual result: committed at the first attempt.
	commitFirst = `
UPDATE understudy_batch
SET state = 'committed', attempts = 1, term = ?4, code = ?5, detail = ?6, link = iif(?7 = '', link, ?7), begun_us = ?8, ended_us = ?9
WHERE queue = ?1 AND key = ?2 AND seq = ?3 AND state = 'queued' AND trail = ''`

	getProgress = `
SELECT id, state, blocks, attempts, term, code, detail, link, enqueued_us, begun_us, ended_us, trail
FROM understudy_batch WHERE queue = ?1 AND key = ?2 AND seq = ?3`

	setProgress = `
UPDATE understudy_batch
SET state = ?4, blocks = ?5, attempts = ?6, term = ?7, code = ?8, detail = ?9, link = ?10, begun_us = ?11, ended_us = ?12, trail = ?13
WHERE queue = ?1 AND key = ?2 AND seq = ?3`
)

// Turn implements [dispatch.Queue].
func (s queue) Turn(ctx context.Context, t dispatch.Turn) (dispatch.Turned, error) {
	if err := validTurn(t); err != nil {
		return dispatch.Turned{}, err
	}
	var out dispatch.Turned
	err := s.write(ctx, "a turn of a queue", func(tx *txn) error {
		if err := tx.needQueue(t.Queue); err != nil {
			return err
		}
		me, err := tx.living(t.Session)
		if err != nil && !errors.Is(err, lease.ErrLapsed) {
			return err
		}
		n := turn{txn: tx, Turn: t, space: dispatch.Space(t.Queue), me: me, alive: err == nil, room: dispatch.MaxPayload,
			keys: make(map[string]*turnKey, len(t.Results)+len(t.Begin))}
		out, err = n.run()
		return err
	})
	if err != nil {
		return dispatch.Turned{}, err
	}
	return out, nil
}

func validTurn(t dispatch.Turn) error {
	if n := len(t.Results) + len(t.Begin); n > claim.MaxKeys {
		return fmt.Errorf("sqlite: %w: %d entries in a turn; at most %d are allowed", lease.ErrInvalid, n, claim.MaxKeys)
	}
	for _, r := range t.Results {
		ok := false
		switch r.State {
		case dispatch.Committed, dispatch.Invalid, dispatch.Failed:
			ok = r.After == dispatch.Next || r.After == dispatch.Block
		case dispatch.Pending, dispatch.Valid, dispatch.Delayed, dispatch.Unknown:
			ok = r.After == dispatch.Again || r.After == dispatch.Hold || r.After == dispatch.Block
		}
		if !ok {
			return fmt.Errorf("sqlite: %w: a result with state %q cannot be followed by %q", lease.ErrInvalid, r.State, r.After)
		}
	}
	return nil
}

func (t *txn) needQueue(name string) error {
	var n int
	if err := t.one(hasQueue, []any{name}, &n); err != nil {
		return err
	}
	if n == 0 {
		return fmt.Errorf("queue %q: %w", name, dispatch.ErrNoQueue)
	}
	return nil
}

// turn is one Turn under way.
type turn struct {
	*txn
	dispatch.Turn
	space string
	me    sessionRow
	alive bool
	keys  map[string]*turnKey
	order []*turnKey // as they were named first
	woken int        // keys that became ready for anybody
	room  int        // bytes of payloads that may still be read
	out   dispatch.Turned
}

// turnKey is the row of a key, as this turn leaves it.
type turnKey struct {
	key                     string
	named                   int64 // the term under which it was named last
	term                    int64
	session                 string
	step, begun             int64
	hold                    int64
	interrupted             int64
	blocked                 bool
	done, waiting, over     int64
	held, given, changed    bool // held: by the session, under the term that was named
	settled, atTarget, look bool // look: whether the target has its head has to be looked up
	ready                   any  // of one that is given back; nil is idle
}

func (n *turn) run() (dispatch.Turned, error) {
	n.out.Standing = make(map[string]dispatch.Standing, len(n.Results)+len(n.Begin))
	for _, r := range n.Results {
		k, err := n.key(r.Key, r.Term)
		ok := false
		if err == nil {
			ok, err = n.settle(k, r)
		}
		if err != nil {
			return n.out, err
		}
		k.settled = k.settled || ok
		k.look = !ok
		n.out.Settled = append(n.out.Settled, dispatch.Settled{Key: r.Key, Seq: r.Seq, Accepted: ok})
	}
	for _, c := range n.Begin {
		k, err := n.key(c.Key, c.Term)
		if err == nil {
			err = n.begin(k)
		}
		if err != nil {
			return n.out, err
		}
	}
	for _, k := range n.order {
		if err := n.end(k); err != nil {
			return n.out, err
		}
	}
	return n.out, n.wake(n.space, n.woken)
}

// key reads the row of a key once.
func (n *turn) key(key string, term int64) (*turnKey, error) {
	k := n.keys[key]
	if k == nil {
		k = &turnKey{key: key}
		err := n.one(getKey, []any{n.space, key}, &k.term, &k.session, &k.step, &k.begun, &k.interrupted,
			&k.blocked, &k.done, &k.waiting, &k.over)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return nil, err
		}
		n.keys[key] = k
		n.order = append(n.order, k)
	}
	k.named = term
	k.held = n.Session != "" && k.session == n.Session && k.term == term
	return k, nil
}

// settle records a result, if it counts.
func (n *turn) settle(k *turnKey, r dispatch.Result) (bool, error) {
	if !k.held || k.waiting == 0 || r.Seq <= k.done {
		return false, nil
	}
	if r.Seq > k.done+1 { // those before it were all cancelled, or it is not the head
		head, _, err := n.head(k)
		if err != nil || head != r.Seq {
			return false, err
		}
		k.done = r.Seq - 1
	}
	ok, err := n.note(k, r)
	if err != nil || !ok {
		return false, err
	}
	k.step, k.interrupted, k.changed = 0, 0, true
	k.atTarget = r.After == dispatch.Hold && atTarget(r.State)
	switch r.After {
	case dispatch.Next:
		k.done, k.waiting, k.over = r.Seq, k.waiting-1, k.over+1
	case dispatch.Again:
		n.give(k, n.wall+r.Wait.Microseconds())
		if r.Wait <= 0 {
			n.woken++
		}
	case dispatch.Block:
		k.blocked = true
		n.give(k, nil)
		return true, n.blocked(k, r)
	}
	return true, nil
}

// atTarget tells that the target has the batch.
func atTarget(s dispatch.State) bool { return s == dispatch.Pending || s == dispatch.Valid }

func (n *turn) head(k *turnKey) (seq int64, state dispatch.State, err error) {
	err = n.one(lookAtHead, []any{n.Queue, k.key, k.done}, &seq, &state)
	if errors.Is(err, sql.ErrNoRows) {
		err = nil
	}
	return seq, state, err
}

// give takes the key from its holder.
func (n *turn) give(k *turnKey, ready any) {
	k.session, k.held, k.given, k.changed, k.ready = "", false, true, true, ready
}

// begin begins a step with the head of a key, or looks at it.
func (n *turn) begin(k *turnKey) error {
	if !k.held || !n.alive || k.step != 0 && !n.Anew || k.waiting == 0 {
		return nil
	}
	if k.blocked {
		n.give(k, nil)
		return nil
	}
	a := dispatch.Assignment{Term: k.term, Batch: dispatch.Batch{Queue: n.Queue, Key: k.key}}
	var state dispatch.State
	var size int
	err := n.one(getHead, []any{n.Queue, k.key, k.done, n.room}, &a.Seq, &a.ID, &a.ContentType, &state, &a.Attempt, &a.Link, &size, &a.Payload)
	if err != nil {
		return fmt.Errorf("the head of key %q: %w", k.key, err)
	}
	if size > n.room && !(atTarget(state) && k.settled) {
		k.look = true // its turn comes with the next call
		return nil
	}
	n.room -= size
	k.done, k.changed, k.look = a.Seq-1, true, false
	k.atTarget = atTarget(state)
	switch {
	case k.atTarget && k.settled:
		return nil
	case k.atTarget:
		a.Todo = dispatch.Poll
		n.out.Begun = append(n.out.Begun, a)
		return nil
	case state == dispatch.Unknown:
		a.Todo = dispatch.Ask
	case k.interrupted != 0:
		a.Todo = dispatch.Ask
		a.Attempt++
		if err := n.lost(k, a.Seq); err != nil {
			return err
		}
	default:
		a.Todo = dispatch.Send
		a.Attempt++
	}
	k.step, k.begun, k.hold = k.term, n.wall, n.now+n.Window.Microseconds()
	n.out.Begun = append(n.out.Begun, a)
	return nil
}

// end writes what became of a key and tells where it stands.
func (n *turn) end(k *turnKey) error {
	if k.held && k.step == 0 && k.waiting == 0 {
		n.give(k, nil)
	}
	if k.held && k.look && k.step == 0 {
		_, state, err := n.head(k)
		if err != nil {
			return err
		}
		k.atTarget = atTarget(state)
	}
	n.out.Standing[k.key] = n.standing(k)
	if !k.changed {
		return nil
	}
	var err error
	if k.given {
		_, err = n.exec(giveKey, n.space, k.key, k.interrupted, k.done, k.waiting, k.over, n.wall, k.ready, k.blocked)
	} else {
		_, err = n.exec(keepKey, n.space, k.key, k.step, k.begun, k.hold, k.interrupted, k.done, k.waiting, k.over)
	}
	return err
}

func (n *turn) standing(k *turnKey) dispatch.Standing {
	switch {
	case !n.alive:
		return dispatch.Lost
	case k.given && k.named == k.term:
		return dispatch.Given
	case !k.held:
		return dispatch.Lost
	case k.step != 0 || k.atTarget:
		return dispatch.Held
	}
	return dispatch.Ready
}

const (
	endedLong = `
SELECT key, seq, body, size FROM understudy_batch
WHERE queue = ?1 AND ended_us IS NOT NULL AND blocks = 0 AND ended_us < ?2 ORDER BY ended_us LIMIT ?3`

	dropBatch   = "DELETE FROM understudy_batch WHERE queue = ?1 AND key = ?2 AND seq = ?3"
	dropPayload = "DELETE FROM understudy_payload WHERE n = ?1"

	// What one transaction deletes: what takes some 20 ms, for which everybody's
	// renewals wait.
	pruneAtOnce = 250
	pruneBytes  = 16 << 20
)

// Prune implements [dispatch.Queue]. It goes by the time at which batches ended,
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

// prune deletes up to most batches that ended before the given time.
func (t *txn) prune(name string, before int64, most int) (deleted int, through bool, err error) {
	if err := t.needQueue(name); err != nil {
		return 0, false, err
	}
	type old struct {
		key             string
		seq, body, size int64
	}
	var found []old
	err = t.each(t.ctx, endedLong, []any{name, before, most}, func(scan func(...any) error) error {
		var b old
		err := scan(&b.key, &b.seq, &b.body, &b.size)
		found = append(found, b)
		return err
	})
	bytes := int64(0)
	for _, b := range found {
		if err == nil {
			_, err = t.exec(dropBatch, name, b.key, b.seq)
		}
		if err == nil {
			_, err = t.exec(dropPayload, b.body)
		}
		if err != nil {
			return 0, false, err
		}
		deleted++
		if bytes += b.size; bytes > pruneBytes {
			return deleted, false, nil
		}
	}
	return deleted, len(found) < most, err
}
