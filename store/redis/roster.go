package redis

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/understudy-ha/understudy/lease"
)

// Rows that one script shows of lists that have no limit of their own.
const (
	queuePage   = 50
	sessionPage = 500
)

// forgetChunk is how many dead waiters one step of Forget takes off the list: a few ms.
const forgetChunk = 200

// Join implements [lease.Roster].
func (s *Store) Join(ctx context.Context, id lease.ID, session string) (lease.Lease, error) {
	r, err := s.run(ctx, s.rest, writes, "queue_join", []string{s.queueKey(id), s.sessionKey(session)}, id.Space, id.Key, session)
	if err != nil {
		return lease.Lease{}, err
	}
	if r.text() == "lapsed" {
		return lease.Lease{}, lapsed(session)
	}
	shown := r.row()
	l := shown.lease(id.Space)
	return l, errors.Join(shown.err(), r.err())
}

// Leave implements [lease.Roster].
func (s *Store) Leave(ctx context.Context, id lease.ID, session string) error {
	_, err := s.run(ctx, s.rest, writes, "queue_leave", []string{s.queueKey(id)}, id.Space, id.Key, session)
	return err
}

// Waiters implements [lease.Roster]. A space with very many queues is read in
// several steps, between which it may change.
func (s *Store) Waiters(ctx context.Context, space string) ([]lease.Waiter, error) {
	var out []lease.Waiter
	for after := ""; ; {
		r, err := s.run(ctx, s.rest, reads, "queue_list", []string{s.root + "ws:" + space}, space, after, queuePage)
		if err != nil {
			return nil, err
		}
		after = r.text()
		for r.more() {
			one := r.row()
			id := lease.ID{Space: space, Key: one.text()}
			out = append(out, lease.Waiter{Lease: id, Session: one.session(one.text())})
			if err := one.err(); err != nil {
				return nil, err
			}
		}
		if after == "" || r.failed {
			return out, r.err()
		}
	}
}

// RequestRelease implements [lease.Roster].
func (s *Store) RequestRelease(ctx context.Context, id lease.ID, successor, who string) error {
	r, err := s.run(ctx, s.rest, writes, "lease_ask", []string{s.leaseKey(id)},
		id.Space, id.Key, successor, lease.ReleaseRequestedReason(successor, who), s.keep, s.channel)
	if err != nil {
		return err
	}
	if r.text() == "not held" {
		return fmt.Errorf("%s: %w", id, lease.ErrNotHeld)
	}
	return r.err()
}

// Sessions implements [lease.Roster]. Very many are read in several steps.
func (s *Store) Sessions(ctx context.Context) ([]lease.Session, error) {
	v, err := s.do(ctx, "ZRANGE", s.root+"sessions", 0, -1)
	if err != nil {
		return nil, err
	}
	ids, _ := v.([]any)
	var out []lease.Session
	for page := range slices.Chunk(ids, sessionPage) {
		r, err := s.run(ctx, s.rest, reads, "session_list", []string{s.root + "sessions"}, page...)
		if err != nil {
			return nil, err
		}
		for r.more() {
			one := r.row()
			out = append(out, one.session(one.text()))
			if err := one.err(); err != nil {
				return nil, err
			}
		}
	}
	slices.SortStableFunc(out, func(a, b lease.Session) int {
		if c := a.Started.Compare(b.Started); c != 0 {
			return c
		}
		return strings.Compare(a.ID, b.ID)
	})
	return out, nil
}

// Forget implements [lease.Roster]. Very many that waited, and are dead, are taken off the list in several steps.
func (s *Store) Forget(ctx context.Context, f lease.ForgetRequest) error {
	for {
		r, err := s.run(ctx, s.rest, writes, "lease_forget", []string{s.leaseKey(f.Lease)},
			f.Lease.Space, f.Lease.Key, f.Seen.Term, f.Seen.Session, f.Seen.Seq, f.Reason(), s.keep, s.channel, forgetChunk)
		if err != nil {
			return err
		}
		switch r.text() {
		case "more":
			continue
		case "never":
			return fmt.Errorf("%w: %s was never held", lease.ErrNotFound, f.Lease)
		case "held":
			return fmt.Errorf("%s: %w", f.Lease, lease.ErrHeld)
		}
		return r.err()
	}
}

// Spaces implements [lease.Roster].
func (s *Store) Spaces(ctx context.Context) ([]lease.SpaceCount, error) {
	r, err := s.run(ctx, s.rest, reads, "lease_spaces", []string{s.root + "spaces"})
	if err != nil {
		return nil, err
	}
	var out []lease.SpaceCount
	for r.more() {
		out = append(out, lease.SpaceCount{Space: r.text(), Leases: int(r.number())})
	}
	return out, r.err()
}

func (s *Store) queueKey(id lease.ID) string { return s.root + "w:" + nameOf(id) }
