package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/understudy-ha/understudy/lease"
)

const (
	// In one statement with what it depends on: only the present holder writes.
	writeState = `
INSERT INTO understudy_lease_state (space, key, term, data)
SELECT space, key, term, ?4 FROM understudy_lease WHERE space = ?1 AND key = ?2 AND term = ?3 AND session <> ''
ON CONFLICT (space, key) DO UPDATE SET term = excluded.term, data = excluded.data`

	forgetState = "DELETE FROM understudy_lease_state WHERE space = ?1 AND key = ?2"

	readState = "SELECT term, data FROM understudy_lease_state WHERE space = ?1 AND key = ?2"
)

// WriteState implements [lease.StateStore].
func (s *Store) WriteState(ctx context.Context, id lease.ID, term int64, data []byte) error {
	if err := lease.ValidateState(data); err != nil {
		return err
	}
	if data == nil {
		data = []byte{} // the column is not null
	}
	return s.write(ctx, "writing a state", func(t *txn) error {
		n, err := t.exec(writeState, id.Space, id.Key, term, data)
		if err == nil && n == 0 {
			err = fmt.Errorf("%s under term %d: %w", id, term, lease.ErrNotHeld)
		}
		return err
	})
}

// ReadState implements [lease.StateStore].
func (s *Store) ReadState(ctx context.Context, id lease.ID) (state lease.State, err error) {
	err = s.read(ctx, "reading a state", func(c call) error {
		err := c.one(readState, []any{id.Space, id.Key}, &state.Term, &state.Data)
		if errors.Is(err, sql.ErrNoRows) {
			return nil
		}
		return err
	})
	return state, err
}
