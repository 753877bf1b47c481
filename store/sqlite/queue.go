package sqlite

import (
	"context"
	"errors"
	"fmt"

	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/lease"
)

// queue is the [dispatch.Queue] of a Store.
type queue struct{ *Store }

// Queue returns what delivers.
func (s *Store) Queue() dispatch.Queue { return dispatch.Validated(queue{s}) }

const (
	hasQueue = "SELECT count(*) FROM understudy_queue WHERE name = ?1"

	getKey = `
SELECT term, session, step, begun_us, hold_us, interrupted, blocked, done, waiting, over
FROM understudy_claim WHERE space = ?1 AND key = ?2`

	// A key that is kept, and one that is given back. In the usual case neither
	// index of the keys is touched: a held key is not in that of the free ones.
	keepKey = `
UPDATE understudy_claim SET step = ?3, begun_us = ?4, hold_us = ?5, interrupted = ?6, done = ?7, waiting = ?8, over = ?9, blocked = ?10
WHERE space = ?1 AND key = ?2`

	giveKey = `
UPDATE understudy_claim SET step = 0, interrupted = ?3, done = ?4, waiting = ?5, over = ?6,
  session = '', since_us = ?7, ready_us = ?8, blocked = ?9
WHERE space = ?1 AND key = ?2`

	// getHead finds the first message after done that was not cancelled; all others
	// there are not over. Its payload is read if there is room for it.
	getHead = `
SELECT b.seq, b.id, b.content_type, b.state, b.attempts, b.enqueued_us, b.begun_us, b.code, b.detail, b.link, b.headers, b.trail, b.size, iif(b.size <= ?4, p.payload, NULL)
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

// Exchange implements [dispatch.Queue].
func (s queue) Exchange(ctx context.Context, t dispatch.Exchange) (dispatch.ExchangeResult, error) {
	var out dispatch.ExchangeResult
	err := s.write(ctx, "an exchange of a queue", func(tx *txn) error {
		if err := tx.requireQueue(t.Queue); err != nil {
			return err
		}
		me, err := tx.living(t.Session)
		if err != nil && !errors.Is(err, lease.ErrLapsed) {
			return err
		}
		n := exchange{txn: tx, Exchange: t, space: dispatch.Space(t.Queue), me: me, alive: err == nil, room: dispatch.MaxPayload,
			keys: make(map[string]*exchangeKey, len(t.Results)+len(t.Begin))}
		out, err = n.run()
		return err
	})
	if err != nil {
		return dispatch.ExchangeResult{}, err
	}
	return out, nil
}

func (c call) requireQueue(name string) error {
	var n int
	if err := c.one(hasQueue, []any{name}, &n); err != nil {
		return err
	}
	if n == 0 {
		return fmt.Errorf("queue %q: %w", name, dispatch.ErrNoQueue)
	}
	return nil
}
