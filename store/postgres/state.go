package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/understudy-ha/understudy/lease"
)

// WriteState implements [lease.StateStore].
func (s *Store) WriteState(ctx context.Context, id lease.ID, term int64, data []byte) error {
	if err := lease.ValidateState(data); err != nil {
		return err
	}
	if data == nil {
		data = []byte{} // the column is not null
	}
	var written bool
	err := s.queryRow(ctx, ordinary, "SELECT {{rules}}.write_state($1, $2, $3, $4, $5)",
		func(r pgx.Row) error { return r.Scan(&written) }, id.Space, id.Key, term, data, lockTimeout{})
	switch {
	case err != nil:
		return fmt.Errorf("writing the state of %s: %w", id, err)
	case !written:
		return fmt.Errorf("%s under term %d: %w", id, term, lease.ErrNotHeld)
	}
	return nil
}

// ReadState implements [lease.StateStore].
func (s *Store) ReadState(ctx context.Context, id lease.ID) (state lease.State, err error) {
	err = s.queryRow(ctx, ordinary, "SELECT term, data FROM {{schema}}.lease_state WHERE space = $1 AND key = $2", func(r pgx.Row) error {
		err := r.Scan(&state.Term, &state.Data)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		return err
	}, id.Space, id.Key)
	return state, during(err, "reading the state of %s", id)
}
