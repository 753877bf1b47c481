package lease

import (
	"context"
	"fmt"
)

// MaxState is the most that the state of a lease may have, in bytes.
const MaxState = 64 << 10

// State is what holders of a lease keep beside it for those that follow: a checkpoint,
// a cursor, a rotating token.
type State struct {
	Data []byte
	Term int64 // under which it was written; 0 when nobody has written one
}

// StateStore is the part of a store that keeps a state beside each lease. Errors are as for
// [Store].
type StateStore interface {
	// WriteState replaces the state of a lease that is held under this term, and is
	// [ErrNotHeld] otherwise: a former holder changes nothing once another has acquired the
	// lease, or it was released. More than [MaxState] bytes are [ErrInvalid]. Writing the same
	// again is not an error.
	WriteState(ctx context.Context, id ID, term int64, data []byte) error
	// ReadState returns the state that was written last, and the zero State if none was since the
	// lease was last forgotten. After an acquisition it is what the former holder left.
	ReadState(ctx context.Context, id ID) (State, error)
}

// ValidateState refuses a state that is too long.
func ValidateState(data []byte) error {
	if len(data) > MaxState {
		return fmt.Errorf("%w: a state of %d bytes; at most %d are possible", ErrInvalid, len(data), MaxState)
	}
	return nil
}

// ReadState returns what the former holders left, or this one has written.
func (h *HeldLease) ReadState(ctx context.Context) (State, error) {
	states, err := h.keeper.states()
	if err != nil {
		return State{}, err
	}
	return callStore(ctx, h.keeper.cfg.Timing, func(ctx context.Context) (State, error) { return states.ReadState(ctx, h.ID) })
}

// WriteState replaces the state, under this holder's term alone.
func (h *HeldLease) WriteState(ctx context.Context, data []byte) error {
	states, err := h.keeper.states()
	if err != nil {
		return err
	}
	_, err = callStore(ctx, h.keeper.cfg.Timing, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, states.WriteState(ctx, h.ID, h.Term, data)
	})
	return err
}

func (k *Keeper) states() (StateStore, error) {
	if s, ok := k.cfg.Store.(StateStore); ok {
		return s, nil
	}
	return nil, fmt.Errorf("%w: the keeper's store keeps no states", ErrInvalid)
}
