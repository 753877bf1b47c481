package redis

import (
	"context"
	"fmt"

	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/store"
)

// endChunk is how many leases one step of EndSession releases: about 5 ms.
const endChunk = 200

// StartSession implements [lease.Store].
func (s *Store) StartSession(ctx context.Context, n lease.Session) (lease.Renewal, error) {
	r, err := s.run(ctx, s.heart, writes, "session_start", []string{s.sessionKey(n.ID)},
		n.ID, n.Instance.ID, n.Instance.Name, n.Instance.Address, n.Instance.Label(),
		n.Timing.Interval.Microseconds(), n.Timing.Timeout.Microseconds(), wantedSchema)
	if err != nil {
		return lease.Renewal{}, err
	}
	switch r.text() {
	case "schema":
		return lease.Renewal{}, tooNew(r.number())
	case "used":
		return lease.Renewal{}, fmt.Errorf("session %s was used before: %w", n.ID, lease.ErrLapsed)
	}
	return lease.Renewal{Seq: r.number(), Changes: r.number()}, r.err()
}

// RenewSession implements [lease.Store].
func (s *Store) RenewSession(ctx context.Context, id string) (lease.Renewal, error) {
	r, err := s.run(ctx, s.heart, writes, "session_renew", []string{s.sessionKey(id), s.root + "changed"})
	if err != nil {
		return lease.Renewal{}, err
	}
	if r.text() == "lapsed" {
		return lease.Renewal{}, lapsed(id)
	}
	return lease.Renewal{Seq: r.number(), Changes: r.number()}, r.err()
}

// EndSession implements [lease.Store]. The session is over with the first step;
// the leases are released in as many more as it takes.
func (s *Store) EndSession(ctx context.Context, id, reason string) error {
	for first := true; ; first = false {
		r, err := s.run(ctx, s.heart, writes, "session_end", []string{s.sessionKey(id)},
			id, lease.TruncateReason(reason), endChunk, s.keep, s.channel)
		if err != nil && !first {
			return lease.PartiallyEnded(id, err)
		}
		if err != nil {
			return err
		}
		if r.number() == 0 {
			return nil
		}
	}
}

func (s *Store) sessionKey(id string) string { return s.root + "s:" + id }

func lapsed(session string) error { return fmt.Errorf("session %s: %w", session, lease.ErrLapsed) }

func tooNew(found int64) error {
	return fmt.Errorf("%w: the store's is version %d and this program knows up to %d: use a newer understudy",
		store.ErrSchema, found, wantedSchema)
}
