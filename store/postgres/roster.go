package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/understudy-ha/understudy/lease"
)

// Join implements [lease.Roster].
func (s *Store) Join(ctx context.Context, id lease.ID, session string) (lease.Lease, error) {
	var lives bool
	var l lease.Lease
	err := s.queryRow(ctx, ordinary, "SELECT j.lives, (j.lease).* FROM {{rules}}.join_waiting_list($1, $2, $3, $4) j",
		func(r pgx.Row) (err error) {
			l, err = scanLease(r, &lives)
			return err
		}, id.Space, id.Key, session, lockTimeout{})
	switch {
	case err != nil:
		return lease.Lease{}, fmt.Errorf("joining %s: %w", id, err)
	case !lives:
		return lease.Lease{}, fmt.Errorf("session %s: %w", session, lease.ErrLapsed)
	}
	return l, nil
}

// Leave implements [lease.Roster].
func (s *Store) Leave(ctx context.Context, id lease.ID, session string) error {
	_, err := s.exec(ctx, "DELETE FROM {{schema}}.waiter WHERE space = $1 AND key = $2 AND session = $3", id.Space, id.Key, session)
	return during(err, "leaving %s", id)
}

// Waiters implements [lease.Roster].
func (s *Store) Waiters(ctx context.Context, space string) ([]lease.Waiter, error) {
	out, err := rows(ctx, s, `SELECT w.space, w.key, `+sessionColumns+`
		FROM {{schema}}.waiter w JOIN {{schema}}.session s ON s.id = w.session, (SELECT {{schema}}.clock() AS at OFFSET 0) c
		WHERE w.space = $1 AND NOT s.ended AND s.deadline > c.at ORDER BY w.key, w.place`,
		func(r pgx.CollectableRow) (w lease.Waiter, err error) {
			w.Session, err = scanSession(r, &w.Lease.Space, &w.Lease.Key)
			return w, err
		}, space)
	return out, during(err, "listing who waits in %s", space)
}

// RequestRelease implements [lease.Roster].
func (s *Store) RequestRelease(ctx context.Context, id lease.ID, successor, who string) error {
	var asked bool
	err := s.queryRow(ctx, ordinary, "SELECT {{rules}}.request_release($1, $2, $3, $4, $5)",
		func(r pgx.Row) error { return r.Scan(&asked) },
		id.Space, id.Key, successor, lease.ReleaseRequestedReason(successor, who), lockTimeout{})
	switch {
	case err != nil:
		return fmt.Errorf("asking for %s: %w", id, err)
	case !asked:
		return fmt.Errorf("%s: %w", id, lease.ErrNotHeld)
	}
	return nil
}

// Sessions implements [lease.Roster].
func (s *Store) Sessions(ctx context.Context) ([]lease.Session, error) {
	out, err := rows(ctx, s, `SELECT `+sessionColumns+`
		FROM {{schema}}.session s, (SELECT {{schema}}.clock() AS at OFFSET 0) c
		WHERE NOT s.ended AND s.deadline > c.at ORDER BY s.started, s.id`,
		func(r pgx.CollectableRow) (lease.Session, error) { return scanSession(r) })
	return out, during(err, "listing sessions")
}

// Forget implements [lease.Roster].
func (s *Store) Forget(ctx context.Context, f lease.ForgetRequest) error {
	var verdict string
	err := s.queryRow(ctx, ordinary, "SELECT {{rules}}.forget_lease($1, $2, $3, $4, $5, $6, $7)",
		func(r pgx.Row) error { return r.Scan(&verdict) },
		f.Lease.Space, f.Lease.Key, f.Seen.Term, f.Seen.Session, f.Seen.Seq, f.Reason(), lockTimeout{})
	switch {
	case err != nil:
		return fmt.Errorf("forgetting %s: %w", f.Lease, err)
	case verdict == "never":
		return fmt.Errorf("%w: %s was never held", lease.ErrNotFound, f.Lease)
	case verdict == "held":
		return fmt.Errorf("%s: %w", f.Lease, lease.ErrHeld)
	}
	return nil
}

// Spaces implements [lease.Roster].
func (s *Store) Spaces(ctx context.Context) ([]lease.SpaceCount, error) {
	out, err := rows(ctx, s, "SELECT space, count(*) FROM {{schema}}.lease WHERE space <> '' GROUP BY space ORDER BY space",
		func(r pgx.CollectableRow) (n lease.SpaceCount, err error) { return n, r.Scan(&n.Space, &n.Leases) })
	return out, during(err, "counting leases")
}

const sessionColumns = `s.id, s.instance_id, s.name, s.address, s.interval_ns, s.timeout_ns, s.seq, s.deadline, s.ended, s.started, c.at`

func scanSession(r pgx.Row, before ...any) (lease.Session, error) {
	var n lease.Session
	var interval, timeout int64
	var deadline, at time.Time
	err := r.Scan(append(before, &n.ID, &n.Instance.ID, &n.Instance.Name, &n.Instance.Address,
		&interval, &timeout, &n.Seq, &deadline, &n.Ended, &n.Started, &at)...)
	n.Timing = lease.Timing{Interval: time.Duration(interval), Timeout: time.Duration(timeout)}
	n.Remaining, n.Started = deadline.Sub(at), n.Started.UTC()
	return n, err
}
