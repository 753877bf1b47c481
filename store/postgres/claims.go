package postgres

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/understudy-ha/understudy/claim"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/store"
)

var _ store.Queues = (*Store)(nil)

// Claims is the table of claims.
func (s *Store) Claims() claim.KeyTable { return claims{s} }

type claims struct{ *Store }

// Offer implements [claim.KeyTable].
func (c claims) Offer(ctx context.Context, space string, keys []string, in time.Duration) error {
	err := c.callReadCommitted(ctx, "SELECT {{rules}}.offer_keys($1, $2, $3, $4)", space, sortedKeys(keys), in.Microseconds(), lockTimeout{})
	return during(err, "offering %d keys of %s", len(keys), space)
}

// Withdraw implements [claim.KeyTable].
func (c claims) Withdraw(ctx context.Context, space string, keys []string) error {
	err := c.callReadCommitted(ctx, "SELECT {{rules}}.withdraw_keys($1, $2, $3)", space, sortedKeys(keys), lockTimeout{})
	return during(err, "withdrawing %d keys of %s", len(keys), space)
}

// Join implements [claim.KeyTable]. For one that falls asleep it is two statements:
// only what has been committed is seen by those who wake.
func (c claims) Join(ctx context.Context, m claim.Member) (claim.Share, error) {
	from := c.floors.get(m.Space, time.Now())
	var members, mine, held, least *int
	var free, due *bool
	err := c.rowReadCommitted(ctx, "SELECT * FROM {{rules}}.join_space($1, $2, $3, $4, $5)",
		func(r pgx.Row) error { return r.Scan(&members, &mine, &held, &least, &free, &due) }, m.Space, m.Session, m.Asleep, from, lockTimeout{})
	if err == nil && members == nil {
		err = fmt.Errorf("session %s: %w", m.Session, lease.ErrLapsed)
	}
	if err == nil && m.Asleep && !*free {
		err = c.rowReadCommitted(ctx, "SELECT {{rules}}.recheck_free_keys($1, $2, $3)", func(r pgx.Row) error { return r.Scan(&free) }, m.Space, from, lockTimeout{})
	}
	if err != nil {
		return claim.Share{}, fmt.Errorf("joining %s: %w", m.Space, err)
	}
	return claim.Share{Members: *members, Mine: *mine, Held: *held, Least: *least, Free: *free, Due: *due}, nil
}

// ClaimKeys implements [claim.KeyTable].
func (c claims) ClaimKeys(ctx context.Context, w claim.ClaimRequest) ([]claim.Claim, error) {
	var at *time.Time
	began := time.Now()
	from := c.floors.get(w.Space, began)
	taken, err := rowsReadCommitted(ctx, c.Store, "SELECT coalesce(key, ''), coalesce(term, 0), coalesce(interrupted, false), at FROM {{rules}}.claim_keys($1, $2, $3, $4, $5, $6, $7)",
		func(r pgx.CollectableRow) (t claim.Claim, err error) {
			err = r.Scan(&t.Key, &t.Term, &t.Interrupted, &at)
			return t, err
		}, w.Space, w.Session, int64(w.Limit), int64(w.Fresh), w.Linger.Microseconds(), from, lockTimeout{})
	taken = slices.DeleteFunc(taken, func(t claim.Claim) bool { return t.Term == 0 }) // a row without a key has only the clock
	if err == nil && at == nil {
		err = fmt.Errorf("session %s: %w", w.Session, lease.ErrLapsed)
	}
	if err != nil {
		return nil, fmt.Errorf("claiming keys of %s: %w", w.Space, err)
	}
	if len(taken) < w.Limit {
		c.floors.raise(w.Space, at.Add(-max(w.Linger, maxCommitDelay)), from == nil, began, time.Now())
	}
	return taken, nil
}

// StartSteps implements [claim.KeyTable].
func (c claims) StartSteps(ctx context.Context, space, session string, hold time.Duration, held []claim.Claim) ([]claim.Claim, error) {
	keys, terms := claimColumns(held)
	var begun []string
	err := c.rowReadCommitted(ctx, "SELECT {{rules}}.start_steps($1, $2, $3, $4, $5, $6)", func(r pgx.Row) error { return r.Scan(&begun) },
		space, session, hold.Microseconds(), keys, terms, lockTimeout{})
	if err == nil && begun == nil {
		err = fmt.Errorf("session %s: %w", session, lease.ErrLapsed)
	}
	if err != nil {
		return nil, fmt.Errorf("starting steps on %d keys of %s: %w", len(held), space, err)
	}
	accepted := make(map[string]bool, len(begun))
	for _, key := range begun {
		accepted[key] = true
	}
	out := make([]claim.Claim, 0, len(begun))
	for _, h := range held {
		if accepted[h.Key] {
			out = append(out, h)
		}
	}
	return out, nil
}

// FinishSteps implements [claim.KeyTable].
func (c claims) FinishSteps(ctx context.Context, space, session string, done []claim.StepResult) ([]string, error) {
	keys, terms, in := make([]string, len(done)), make([]int64, len(done)), make([]int64, len(done))
	idle, release := make([]bool, len(done)), make([]bool, len(done))
	visitInKeyOrder(done, func(d claim.StepResult) string { return d.Key }, func(i int, d claim.StepResult) {
		keys[i], terms[i], in[i], idle[i], release[i] = d.Key, d.Term, d.In.Microseconds(), d.Idle, d.Release
	})
	var accepted []string
	err := c.rowReadCommitted(ctx, "SELECT {{rules}}.finish_steps($1, $2, $3, $4, $5, $6, $7, $8)", func(r pgx.Row) error { return r.Scan(&accepted) },
		space, session, keys, terms, in, idle, release, lockTimeout{})
	if err != nil {
		return nil, fmt.Errorf("finishing steps on %d keys of %s: %w", len(done), space, err)
	}
	return accepted, nil
}

// Release implements [claim.KeyTable].
func (c claims) Release(ctx context.Context, space, session string, held []claim.Claim) error {
	keys, terms := claimColumns(held)
	err := c.callReadCommitted(ctx, "SELECT {{rules}}.release_keys($1, $2, $3, $4, $5)", space, session, keys, terms, lockTimeout{})
	return during(err, "releasing %d keys of %s", len(held), space)
}

// List implements [claim.KeyTable].
func (c claims) List(ctx context.Context, q claim.Query) ([]claim.Row, error) {
	args := []any{q.Space, q.After, int64(q.PageSize())}
	held := ""
	if q.Session != "" {
		held = "k.session = $4 AND k.session <> '' AND"
		args = append(args, q.Session)
	}
	out, err := rows(ctx, c.Store, `SELECT x.key, x.term, x.session, coalesce(s.instance_id, ''), coalesce(s.name, ''), coalesce(s.address, ''),
			x.session <> '' AND coalesce(s.ended OR s.deadline <= now.at, true), x.since, x.ready_at, x.step_ends_at,
			x.session <> '' AND x.step_ends_at IS NOT NULL, x.interrupted, now.at
		FROM (SELECT {{schema}}.clock() AS at OFFSET 0) now
		CROSS JOIN LATERAL (SELECT k.*, {{rules}}.step_ends_at(k) AS step_ends_at FROM {{schema}}.claim k
			WHERE `+held+` k.space = $1 AND k.key > $2 ORDER BY k.key LIMIT $3) x
		LEFT JOIN {{schema}}.session s ON s.id = x.session AND x.session <> '' ORDER BY x.key`, scanClaim, args...)
	return out, during(err, "listing keys of %s", q.Space)
}

func scanClaim(r pgx.CollectableRow) (c claim.Row, err error) {
	var ready, hold *time.Time
	var at time.Time
	err = r.Scan(&c.Key, &c.Term, &c.Session, &c.Holder.ID, &c.Holder.Name, &c.Holder.Address,
		&c.Lapsed, &c.Since, &ready, &hold, &c.InStep, &c.Interrupted, &at)
	c.Since, c.Idle = c.Since.UTC(), ready == nil
	if ready != nil {
		c.In = ready.Sub(at)
	}
	if c.InStep && hold != nil {
		c.Hold = hold.Sub(at)
	}
	return c, err
}

// sortedKeys is a list in the order of its bytes, in which rows are locked; never null.
func sortedKeys(list []string) []string { return slices.Sorted(slices.Values(list)) }

// claimColumns are the keys and terms of claims, in the order in which rows are locked.
func claimColumns(claims []claim.Claim) (keys []string, terms []int64) {
	keys, terms = make([]string, len(claims)), make([]int64, len(claims))
	visitInKeyOrder(claims, func(c claim.Claim) string { return c.Key }, func(i int, c claim.Claim) { keys[i], terms[i] = c.Key, c.Term })
	return keys, terms
}

// visitInKeyOrder visits a list in the order of its keys.
func visitInKeyOrder[T any](list []T, key func(T) string, visit func(int, T)) {
	byKey := func(a, b T) int { return cmp.Compare(key(a), key(b)) }
	if !slices.IsSortedFunc(list, byKey) {
		list = slices.SortedFunc(slices.Values(list), byKey)
	}
	for i, x := range list {
		visit(i, x)
	}
}
