package redis

import (
	"context"
	"fmt"

	"github.com/understudy-ha/understudy/lease"
)

// WriteState implements [lease.StateStore].
func (s *Store) WriteState(ctx context.Context, id lease.ID, term int64, data []byte) error {
	if err := lease.ValidateState(data); err != nil {
		return err
	}
	r, err := s.run(ctx, s.rest, writes, "state_write", []string{s.leaseKey(id)}, id.Space, id.Key, term, string(data))
	if err != nil {
		return err
	}
	if r.text() == "not held" {
		return fmt.Errorf("%s under term %d: %w", id, term, lease.ErrNotHeld)
	}
	return r.err()
}

// ReadState implements [lease.StateStore].
func (s *Store) ReadState(ctx context.Context, id lease.ID) (state lease.State, err error) {
	r, err := s.run(ctx, s.rest, reads, "state_read", []string{s.leaseKey(id)}, id.Space, id.Key)
	if err != nil {
		return state, err
	}
	state.Term = r.number()
	state.Data = []byte(r.text())
	return state, r.err()
}
