package sabledb

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/understudy-ha/understudy/lease"
)

// WriteState implements [lease.StateStore]. A state is a value of its own, so that the one that
// every operation writes stays small.
func (s *Store) WriteState(ctx context.Context, id lease.ID, term int64, data []byte) error {
	if err := lease.ValidateState(data); err != nil {
		return err
	}
	return s.run(ctx, func(k *call) error {
		l, err := k.memory.Get(ctx, id)
		if err == nil && (l.Session == "" || l.Term != term) {
			err = fmt.Errorf("%s under term %d: %w", id, term, lease.ErrNotHeld)
		}
		if err != nil {
			return err
		}
		k.extra = append(k.extra, []string{"SET", s.stateKey(id), strconv.FormatInt(term, 10) + " " + string(data)})
		return nil
	})
}

// ReadState implements [lease.StateStore].
func (s *Store) ReadState(ctx context.Context, id lease.ID) (state lease.State, err error) {
	err = s.run(ctx, func(k *call) error {
		all, err := k.c.do(ctx, []string{"GET", s.stateKey(id)})
		if err != nil {
			return failure(err, false)
		}
		if all[0].Nil {
			return nil
		}
		term, data, _ := strings.Cut(all[0].Text, " ")
		state.Data = []byte(data)
		if state.Term, err = strconv.ParseInt(term, 10, 64); err != nil {
			return s.foreign("the state of "+id.String(), err)
		}
		return nil
	})
	return state, err
}

func (s *Store) stateKey(id lease.ID) string { return s.key("lease-state:" + id.String()) }
