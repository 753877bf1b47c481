package sqlite

import (
	"context"
	"fmt"

	"github.com/understudy-ha/understudy/history"
	"github.com/understudy-ha/understudy/lease"
)

const (
	// leaveDead takes off the list whoever will never live again, so that
	// programs that start over and over do not make it grow.
	leaveDead = `
DELETE FROM understudy_waiter AS w WHERE w.space = ?2 AND w.key = ?3
  AND NOT EXISTS (SELECT 1 FROM understudy_session x WHERE x.id = w.session AND ` + aliveSQL + ")"

	isWaiting = `
SELECT EXISTS (SELECT 1 FROM understudy_waiter w JOIN understudy_session x ON x.id = w.session
  WHERE w.space = ?2 AND w.key = ?3 AND w.session = ?4 AND ` + aliveSQL + ")"

	joinOne = "INSERT INTO understudy_waiter (space, key, session) VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING"

	listWaiters = `
SELECT ` + sessionColumns + `, understudy_boot_us(), w.key
FROM understudy_waiter w JOIN understudy_session s ON s.id = w.session
WHERE w.space = ?2 AND EXISTS (SELECT 1 FROM understudy_session x WHERE x.id = s.id AND ` + aliveSQL + `)
ORDER BY w.key, w.n`

	listSessions = `
SELECT ` + sessionColumns + `, understudy_boot_us()
FROM understudy_session s
WHERE EXISTS (SELECT 1 FROM understudy_session x WHERE x.id = s.id AND ` + aliveSQL + `)
ORDER BY s.started_us, s.id`

	// The lease without a name, which nobody can hold, has the greatest term that was forgotten.
	forgottenTerm = "SELECT coalesce((SELECT term FROM understudy_lease WHERE space = '' AND key = ''), 0)"
	keepTerm      = "INSERT INTO understudy_lease (space, key, term, session, since_us) VALUES ('', '', ?1, '', ?2) ON CONFLICT (space, key) DO UPDATE SET term = max(term, ?1)"
	forgetLease   = "DELETE FROM understudy_lease WHERE space = ?1 AND key = ?2"
	countLeases   = "SELECT space, count(*) FROM understudy_lease WHERE space <> '' GROUP BY space ORDER BY space"

	askFor = "UPDATE understudy_lease SET asked = 1, asked_for = ?3 WHERE space = ?1 AND key = ?2"
)

// Join implements [lease.Roster].
func (s *Store) Join(ctx context.Context, id lease.ID, session string) (l lease.Lease, err error) {
	const op = "joining"
	// Who waits already only reads: it does so often.
	waits := false
	err = s.read(ctx, op, func(c call) (err error) {
		if err = c.one(isWaiting, []any{s.clocks.boot, id.Space, id.Key, session}, &waits); err == nil && waits {
			l, err = c.lease(id, s.clocks.boot, session)
		}
		return err
	})
	if err != nil || waits {
		return l, err
	}
	err = s.write(ctx, op, func(t *txn) error {
		if _, err := t.living(session); err != nil {
			return err
		}
		if _, err := t.exec(leaveDead, t.boot, id.Space, id.Key); err != nil {
			return err
		}
		if _, err := t.exec(joinOne, id.Space, id.Key, session); err != nil {
			return err
		}
		l, err = t.lease(id, t.boot, session)
		return err
	})
	return l, err
}

// Leave implements [lease.Roster].
func (s *Store) Leave(ctx context.Context, id lease.ID, session string) error {
	return s.write(ctx, "leaving", func(t *txn) error {
		_, err := t.exec(leaveOne, id.Space, id.Key, session)
		return err
	})
}

// Waiters implements [lease.Roster].
func (s *Store) Waiters(ctx context.Context, space string) ([]lease.Waiter, error) {
	return readAll(ctx, s, "listing waiters", listWaiters, []any{s.clocks.boot, space}, func(scan scanner) (lease.Waiter, error) {
		key := ""
		n, err := scanLiving(scan, &key)
		return lease.Waiter{Lease: lease.ID{Space: space, Key: key}, Session: n}, err
	})
}

// Sessions implements [lease.Roster].
func (s *Store) Sessions(ctx context.Context) ([]lease.Session, error) {
	return readAll(ctx, s, "listing sessions", listSessions, []any{s.clocks.boot}, func(scan scanner) (lease.Session, error) { return scanLiving(scan) })
}

// scanLiving reads sessionColumns and the clock; more are columns that follow.
func scanLiving(scan scanner, more ...any) (lease.Session, error) {
	var r sessionRow
	var now int64
	err := r.scan(scan, append([]any{&now}, more...)...)
	r.Remaining = micros(r.deadline - now)
	return r.Session, err
}

// RequestRelease implements [lease.Roster].
func (s *Store) RequestRelease(ctx context.Context, id lease.ID, successor, who string) error {
	return s.write(ctx, "asking for a lease", func(t *txn) error {
		l, err := t.lease(id, t.boot, "")
		if err != nil {
			return err
		}
		if !l.HasLiveHolder() { // nobody would answer
			return fmt.Errorf("%s: %w", id, lease.ErrNotHeld)
		}
		if _, err := t.exec(askFor, id.Space, id.Key, successor); err != nil {
			return err
		}
		holder := l.Holder.Label()
		return t.record(history.Event{
			Part: id.Space, Subject: id.Key, From: holder, To: holder,
			Term: l.Term, Reason: lease.ReleaseRequestedReason(successor, who), Duration: l.Age,
		}, changeTaken, "")
	})
}

// Forget implements [lease.Roster].
func (s *Store) Forget(ctx context.Context, f lease.ForgetRequest) error {
	return s.write(ctx, "forgetting a lease", func(t *txn) error {
		l, err := t.lease(f.Lease, t.boot, "")
		if err != nil {
			return err
		}
		if err := f.Permits(l); err != nil {
			return err
		}
		for _, step := range []struct {
			sql  string
			args []any
		}{{endSession, []any{l.Session}}, {forgetLease, []any{l.Space, l.Key}}, {forgetState, []any{l.Space, l.Key}}, {keepTerm, []any{l.Term, t.wall}}} {
			if _, err := t.exec(step.sql, step.args...); err != nil {
				return err
			}
		}
		return t.record(history.Event{Part: l.Space, Subject: l.Key, Term: l.Term, Reason: f.Reason()}, changeFreed, "")
	})
}

// Spaces implements [lease.Roster].
func (s *Store) Spaces(ctx context.Context) ([]lease.SpaceCount, error) {
	return readAll(ctx, s, "counting leases", countLeases, nil, func(scan scanner) (n lease.SpaceCount, err error) {
		return n, scan(&n.Space, &n.Leases)
	})
}
