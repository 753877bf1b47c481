package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/understudy-ha/understudy/lease"
)

// StartSession implements [lease.Store]. It also forgets some sessions that have
// been over for a day.
func (s *Store) StartSession(ctx context.Context, n lease.Session) (lease.Renewal, error) {
	var started bool
	err := s.queryRow(ctx, sessions, "SELECT {{rules}}.start_session($1, $2, $3, $4, $5, $6, $7)",
		func(r pgx.Row) error { return r.Scan(&started) },
		n.ID, n.Instance.ID, n.Instance.Name, n.Instance.Address, n.Timing.Interval.Nanoseconds(), n.Timing.Timeout.Nanoseconds(), lockTimeout{})
	switch {
	case err != nil:
		return lease.Renewal{}, fmt.Errorf("starting a session: %w", err)
	case !started:
		return lease.Renewal{}, fmt.Errorf("session %s was used before: %w", n.ID, lease.ErrLapsed)
	}
	return lease.Renewal{Seq: 1}, nil
}

// releasedPerCall is how many leases one statement of EndSession releases.
const releasedPerCall = 5000

// EndSession implements [lease.Store]. Its first statement ends the session, and
// with that all leases are free; those of a session with very many are released
// by further ones.
func (s *Store) EndSession(ctx context.Context, id, reason string) error {
	for first, released := true, int64(releasedPerCall); released == releasedPerCall; first = false {
		err := s.queryRow(ctx, ordinary, "SELECT {{rules}}.end_session($1, $2, $3, $4)",
			func(r pgx.Row) error { return r.Scan(&released) }, id, lease.TruncateReason(reason), int64(releasedPerCall), lockTimeout{})
		if err != nil && !first {
			return lease.PartiallyEnded(id, err)
		}
		if err != nil {
			return fmt.Errorf("ending the session: %w", err)
		}
	}
	return nil
}
