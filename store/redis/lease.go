package redis

import (
	"context"
	"fmt"
	"time"

	"github.com/understudy-ha/understudy/lease"
)

// Acquire implements [lease.Store].
func (s *Store) Acquire(ctx context.Context, c lease.Expectation) (lease.Lease, error) {
	waited := ""
	if c.Waited {
		waited = "1"
	}
	r, err := s.run(ctx, s.rest, writes, "lease_acquire", []string{s.leaseKey(c.Lease), s.sessionKey(c.Session)},
		c.Lease.Space, c.Lease.Key, c.Session, c.Seen.Term, c.Seen.Session, c.Seen.Seq, waited, s.keep, s.channel, c.Places)
	if err != nil {
		return lease.Lease{}, err
	}
	outcome := r.text()
	switch outcome {
	case "lapsed":
		return lease.Lease{}, lapsed(c.Session)
	case "kept":
		return lease.Lease{}, fmt.Errorf("%w: the server was started or took over a moment ago and may have forgotten who holds what: no lease is given away for another %v",
			lease.ErrUnavailable, r.micros().Round(time.Millisecond))
	}
	shown := r.row()
	l := shown.lease(c.Lease.Space)
	if err := shown.err(); err != nil {
		return lease.Lease{}, err
	}
	if outcome == "held" {
		return l, fmt.Errorf("%s: %w", c.Lease, lease.ErrHeld)
	}
	return l, r.err()
}

// Release implements [lease.Store].
func (s *Store) Release(ctx context.Context, h lease.ReleaseRequest) error {
	r, err := s.run(ctx, s.rest, writes, "lease_release", []string{s.leaseKey(h.Lease)},
		h.Lease.Space, h.Lease.Key, h.Session, h.Term, h.Successor, h.Reserve.Microseconds(),
		lease.TruncateReason(h.Reason), s.keep, s.channel)
	if err != nil {
		return err
	}
	if r.text() == "not held" {
		return fmt.Errorf("%s under term %d: %w", h.Lease, h.Term, lease.ErrNotHeld)
	}
	return r.err()
}

// Get implements [lease.Store].
func (s *Store) Get(ctx context.Context, id lease.ID) (lease.Lease, error) {
	r, err := s.run(ctx, s.rest, reads, "lease_get", []string{s.leaseKey(id)}, id.Space, id.Key)
	if err != nil {
		return lease.Lease{}, err
	}
	return r.lease(id.Space), r.err()
}

// List implements [lease.Store].
func (s *Store) List(ctx context.Context, space, after string, limit int) ([]lease.Lease, error) {
	r, err := s.run(ctx, s.rest, reads, "lease_list", []string{s.root + "ls:" + space}, space, after, lease.ListLimit(limit))
	if err != nil {
		return nil, err
	}
	var out []lease.Lease
	for r.more() {
		one := r.row()
		out = append(out, one.lease(space))
		if err := one.err(); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (s *Store) leaseKey(id lease.ID) string { return s.root + "l:" + nameOf(id) }

// nameOf is name_of in rows.lua.
func nameOf(id lease.ID) string { return fmt.Sprintf("%d:%s:%s", len(id.Space), id.Space, id.Key) }
