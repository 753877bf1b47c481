package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/understudy-ha/understudy/lease"
)

const (
	// maxRenewalDelay is how long a renewal waits for others at most, and renewalDelayPart which part of the time that its caller
	// gives it: at the default timing 100 ms, by which the session trusts itself less. It waits only if another was
	// sent so shortly before: a process with very many sessions sends ten statements a second.
	maxRenewalDelay  = 100 * time.Millisecond
	renewalDelayPart = 16
	// mostRenewals is how many sessions one statement renews.
	mostRenewals = 500
)

// renewals lets the sessions of one process share statements.
type renewals struct {
	store *Store

	mu       sync.Mutex
	sentAt   time.Time   // when the last statement was sent
	alone    string      // the session that it renewed, if it was one that had not waited
	together []*renewal  // what the next one renews
	due      *time.Timer // sends them
	dueAt    time.Time
}

// renewal is the call of one session that waits for the others.
type renewal struct {
	id       string
	deadline time.Time
	sent     bool // guarded by the mutex
	answer   chan renewalAnswer
}

type renewalAnswer struct {
	lease.Renewal
	err error
}

// errAlone is the answer to a session that a statement of its own is to renew: there is no other to join, or the shared statement
// left it out because its row was locked or it has lapsed.
var errAlone = errors.New("not renewed with others")

// RenewSession implements [lease.Store].
func (s *Store) RenewSession(ctx context.Context, id string) (lease.Renewal, error) {
	r, err := s.renewals.renew(ctx, id)
	if errors.Is(err, errAlone) {
		r, err = s.renewAlone(ctx, id)
	}
	switch {
	case errors.Is(err, lease.ErrLapsed):
		return lease.Renewal{}, fmt.Errorf("session %s: %w", id, err)
	case err != nil:
		return lease.Renewal{}, fmt.Errorf("renewing the session: %w", err)
	}
	return r, nil
}

func (s *Store) renewAlone(ctx context.Context, id string) (lease.Renewal, error) {
	var seq, changes *int64
	var waits []byte
	err := s.queryRow(ctx, sessions, "SELECT seq, changes, waits FROM {{rules}}.renew_session($1, $2)",
		func(r pgx.Row) error { return r.Scan(&seq, &changes, &waits) }, id, lockTimeout{})
	switch {
	case err != nil:
		return lease.Renewal{}, err
	case seq == nil:
		return lease.Renewal{}, lease.ErrLapsed
	}
	return readRenewal(*seq, *changes, waits)
}

func readRenewal(seq, changes int64, waits []byte) (lease.Renewal, error) {
	r := lease.Renewal{Seq: seq, Changes: changes}
	if waits == nil {
		return r, nil
	}
	var shown []shownLease
	if err := json.Unmarshal(waits, &shown); err != nil {
		return lease.Renewal{}, fmt.Errorf("%w: renewed the session, and cannot read what it waits for: %w", lease.ErrUnknown, err)
	}
	for _, x := range shown {
		r.Waits = append(r.Waits, x.lease())
	}
	return r, nil
}

// renew is errAlone unless the session was renewed with others.
func (b *renewals) renew(ctx context.Context, id string) (lease.Renewal, error) {
	r := b.join(ctx, id)
	if r == nil {
		return lease.Renewal{}, errAlone
	}
	select {
	case a := <-r.answer:
		return a.Renewal, a.err
	case <-ctx.Done():
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if r.sent {
		return lease.Renewal{}, fmt.Errorf("%w: %w", lease.ErrUnknown, ctx.Err())
	}
	b.together = slices.DeleteFunc(b.together, func(other *renewal) bool { return other == r })
	return lease.Renewal{}, fmt.Errorf("%w: %w", lease.ErrUnavailable, ctx.Err())
}

// join returns nil for a session that need not wait for others.
func (b *renewals) join(ctx context.Context, id string) *renewal {
	now := time.Now()
	deadline, ok := ctx.Deadline()
	if !ok {
		deadline = now.Add(callTimeout)
	}
	delay := min(maxRenewalDelay, deadline.Sub(now)/renewalDelayPart)
	b.mu.Lock()
	defer b.mu.Unlock()
	dueAt := b.sentAt.Add(delay)
	// Who renews again has nobody to wait for.
	if len(b.together) == 0 && (!now.Before(dueAt) || b.alone == id) {
		b.sentAt, b.alone = now, id
		return nil
	}
	r := &renewal{id: id, deadline: deadline, answer: make(chan renewalAnswer, 1)}
	b.together = append(b.together, r)
	if len(b.together) == 1 || dueAt.Before(b.dueAt) {
		b.dueAt = dueAt
		if b.due != nil {
			b.due.Stop()
		}
		b.due = time.AfterFunc(dueAt.Sub(now), b.send)
	}
	return r
}

// send renews all that wait.
func (b *renewals) send() {
	b.mu.Lock()
	all := b.together
	b.together, b.sentAt, b.alone = nil, time.Now(), ""
	for _, r := range all {
		r.sent = true
	}
	b.mu.Unlock()
	sendAll(all, cap(b.store.pool.slots), b.sendBatch)
}

// sendAll sends renewals in batches of mostRenewals. Two are under way at once: one whose connection hangs, which it may until
// its deadline, does not keep those behind it until theirs. But with the fewest connections, two, it is one: other calls would
// have none while two hang.
func sendAll(all []*renewal, connections int, send func([]*renewal)) {
	batches := make(chan []*renewal)
	for range min(2, connections-1, (len(all)+mostRenewals-1)/mostRenewals) {
		go func() {
			for batch := range batches {
				send(batch)
			}
		}()
	}
	for batch := range slices.Chunk(all, mostRenewals) {
		batches <- batch
	}
	close(batches)
}

func (b *renewals) sendBatch(batch []*renewal) {
	last := slices.MaxFunc(batch, func(x, y *renewal) int { return x.deadline.Compare(y.deadline) })
	ctx, cancel := context.WithDeadline(context.Background(), last.deadline)
	defer cancel()
	ids := make([]string, len(batch))
	for i, r := range batch {
		ids[i] = r.id
	}
	answers := map[string]renewalAnswer{}
	err := b.store.pool.withConnection(ctx, sessions, func(ctx context.Context, conn *pgx.Conn) error {
		found, err := conn.Query(ctx, b.store.sql("SELECT id, seq, changes, waits FROM {{rules}}.renew_sessions($1, $2)"),
			withLockTimeout(ctx, []any{ids, lockTimeout{}})...)
		if err != nil {
			return err
		}
		clear(answers) // of an attempt whose COMMIT failed
		var id string
		var seq, changes int64
		var waits []byte
		_, err = pgx.ForEachRow(found, []any{&id, &seq, &changes, &waits}, func() error {
			r, err := readRenewal(seq, changes, waits)
			answers[id] = renewalAnswer{r, err}
			return nil
		})
		return err
	})
	for _, r := range batch {
		a, ok := answers[r.id]
		switch {
		case err != nil:
			a = renewalAnswer{err: err}
		case !ok:
			a.err = errAlone
		}
		r.answer <- a
	}
}
