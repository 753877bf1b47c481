package sqlite

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/understudy-ha/understudy/history"
	"github.com/understudy-ha/understudy/lease"
)

const (
	leaseColumns = `
coalesce(l.term, 0), coalesce(l.session, ''), coalesce(l.since_us, 0), coalesce(l.successor, ''),
coalesce(l.reserved_us, 0), coalesce(l.boot, ''), coalesce(l.asked, 0), coalesce(l.asked_for, ''), iif(l.session = '', 0, coalesce(l.places, 0)),
coalesce(s.instance, ''), coalesce(s.name, ''), coalesce(s.address, ''),
coalesce(s.interval_us, 0), coalesce(s.timeout_us, 0), coalesce(s.seq, 0),
coalesce(s.boot, ''), coalesce(s.deadline_us, 0), coalesce(s.ended, 0),
coalesce(s.renewed_us, 0), understudy_boot_us(), understudy_wall_us(),
(SELECT count(*) FROM understudy_waiter w JOIN understudy_session x ON x.id = w.session WHERE ` + aliveSQL

	// The lease need not be there for sessions to wait for it. Session ?4, if it does, sees those before it.
	getLease = "SELECT " + leaseColumns + ` AND w.space = ?2 AND w.key = ?3
  AND w.n < coalesce((SELECT me.n FROM understudy_waiter me WHERE me.space = ?2 AND me.key = ?3 AND me.session = ?4), 9223372036854775807))
FROM (SELECT 1)
LEFT JOIN understudy_lease l ON l.space = ?2 AND l.key = ?3
LEFT JOIN understudy_session s ON s.id = l.session`

	listLeases = "SELECT l.key, " + leaseColumns + ` AND w.space = l.space AND w.key = l.key)
FROM understudy_lease l LEFT JOIN understudy_session s ON s.id = l.session
WHERE l.space = ?2 AND l.key > ?3 ORDER BY l.key LIMIT ?4`

	takeLease = `
INSERT INTO understudy_lease (space, key, term, session, since_us, places) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
ON CONFLICT (space, key) DO UPDATE SET term = ?3, session = ?4, since_us = ?5, places = ?6,
  successor = '', reserved_us = 0, boot = '', asked = 0, asked_for = ''`

	freeLease = `
UPDATE understudy_lease SET session = '', since_us = ?3, successor = ?4, reserved_us = ?5, boot = ?6, asked = 0, asked_for = ''
WHERE space = ?1 AND key = ?2`

	leaveOne = "DELETE FROM understudy_waiter WHERE space = ?1 AND key = ?2 AND session = ?3"
)

// scanLease reads leaseColumns, as seen from the given boot; before are columns that precede them.
func scanLease(scan scanner, boot string, id lease.ID, before ...any) (lease.Lease, error) {
	l := lease.Lease{ID: id}
	var since, reserved, interval, timeout, deadline, renewed, now, wall int64
	var reservedBoot, sessionBoot string
	err := scan(append(before,
		&l.Term, &l.Session, &since, &l.Successor, &reserved, &reservedBoot, &l.ReleaseRequested, &l.RequestedSuccessor, &l.Places,
		&l.Holder.ID, &l.Holder.Name, &l.Holder.Address, &interval, &timeout, &l.Seq, &sessionBoot, &deadline, &l.Ended,
		&renewed, &now, &wall, &l.Waiting)...)
	if err != nil || l.Term == 0 {
		return l, err
	}
	l.Since, l.Age = time.UnixMicro(since), micros(wall-since)
	// A reservation from before a reboot is for a process that is no more.
	if l.Successor != "" && reservedBoot == boot {
		l.Reserved = max(0, micros(reserved-now))
	}
	if timeout == 0 {
		return l, nil // free, or the session's row is gone
	}
	l.Timing = lease.Timing{Interval: micros(interval), Timeout: micros(timeout)}
	l.Foreign = sessionBoot != boot
	if l.Remaining = micros(deadline - now); l.Foreign {
		l.Remaining = min(0, micros(renewed+timeout-wall)) // its deadline is of a boot-time clock that is no more
	}
	return l, nil
}

// lease reads a lease, as seen from the given boot, and by a session that may wait for it; "" is none.
func (c call) lease(id lease.ID, boot, session string) (lease.Lease, error) {
	return scanLease(func(dest ...any) error { return c.one(getLease, []any{boot, id.Space, id.Key, session}, dest...) }, boot, id)
}

// Get implements [lease.Store].
func (s *Store) Get(ctx context.Context, id lease.ID) (lease.Lease, error) {
	var l lease.Lease
	err := s.read(ctx, "reading a lease", func(c call) (err error) {
		l, err = c.lease(id, s.clocks.boot, "")
		return err
	})
	if err != nil {
		return lease.Lease{}, err
	}
	return l, nil
}

// List implements [lease.Store].
func (s *Store) List(ctx context.Context, space, after string, limit int) ([]lease.Lease, error) {
	return readAll(ctx, s, "listing leases", listLeases, []any{s.clocks.boot, space, after, lease.ListLimit(limit)}, func(scan scanner) (lease.Lease, error) {
		key := ""
		l, err := scanLease(scan, s.clocks.boot, lease.ID{Space: space}, &key)
		l.Key = key
		return l, err
	})
}

// Acquire implements [lease.Store].
func (s *Store) Acquire(ctx context.Context, c lease.Expectation) (lease.Lease, error) {
	var shown lease.Lease
	err := s.write(ctx, "acquiring", func(t *txn) (err error) {
		shown, err = t.acquire(c)
		return err
	})
	if err != nil && !errors.Is(err, lease.ErrHeld) {
		return lease.Lease{}, err
	}
	return shown, err
}

func (t *txn) acquire(c lease.Expectation) (lease.Lease, error) {
	me, err := t.living(c.Session)
	if err != nil {
		return lease.Lease{}, err
	}
	shown, err := t.lease(c.Lease, t.boot, c.Session)
	if err != nil || shown.Session == c.Session {
		return shown, err
	}
	reason, ok := c.Permits(shown, me.Instance)
	if !ok {
		return shown, fmt.Errorf("%s: %w", c.Lease, lease.ErrHeld)
	}
	return t.take(shown, me, reason, c.Places)
}

// take gives the lease, which is as old says, to the session me, and returns it
// as it is then.
func (t *txn) take(old lease.Lease, me sessionRow, reason string, places int) (lease.Lease, error) {
	if old.Term == 0 {
		if err := t.one(forgottenTerm, nil, &old.Term); err != nil {
			return old, err
		}
	}
	e := history.Event{
		Part: old.Space, Subject: old.Key, To: me.Instance.Label(),
		Term: max(old.Term+1, t.wall/1000), Reason: reason, Duration: old.Age,
	}
	if old.Session != "" {
		if err := t.depose(old, &e); err != nil {
			return old, err
		}
	}
	if _, err := t.exec(takeLease, old.Space, old.Key, e.Term, me.ID, t.wall, places); err != nil {
		return old, err
	}
	if _, err := t.exec(leaveOne, old.Space, old.Key, me.ID); err != nil {
		return old, err
	}
	return lease.Lease{
		ID: old.ID, Term: e.Term, Session: me.ID, Holder: me.Instance, Timing: me.Timing, Seq: me.Seq,
		Remaining: micros(me.deadline - t.now), Since: time.UnixMicro(t.wall), Waiting: old.Waiting, Places: places,
	}, t.record(e, changeTaken, "")
}

// depose ends the session of the holder that old shows, and notes in the event
// who that was and for how long it has been silent.
func (t *txn) depose(old lease.Lease, e *history.Event) error {
	if old.Holder.ID != "" {
		e.From = old.Holder.Label()
	}
	e.Duration = -old.Remaining
	_, err := t.exec(endSession, old.Session)
	return err
}

// Release implements [lease.Store].
func (s *Store) Release(ctx context.Context, h lease.ReleaseRequest) error {
	return s.write(ctx, "releasing", func(t *txn) error { return t.releaseLease(h) })
}

func (t *txn) releaseLease(h lease.ReleaseRequest) error {
	l, err := t.lease(h.Lease, t.boot, "")
	if err != nil {
		return err
	}
	if h.Session == "" || l.Session != h.Session || l.Term != h.Term {
		return fmt.Errorf("%s under term %d: %w", h.Lease, h.Term, lease.ErrNotHeld)
	}
	reserved, boot := int64(0), ""
	if h.Successor != "" {
		reserved, boot = t.now+h.Reserve.Microseconds(), t.boot
	}
	if _, err := t.exec(freeLease, l.Space, l.Key, t.wall, h.Successor, reserved, boot); err != nil {
		return err
	}
	return t.record(history.Event{
		Part: l.Space, Subject: l.Key, From: l.Holder.Label(),
		Term: l.Term, Reason: lease.TruncateReason(h.Reason), Duration: l.Age,
	}, changeFreed, h.Successor)
}
