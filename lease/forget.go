package lease

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// ForgetRequest deletes a lease.
type ForgetRequest struct {
	Lease ID
	// Seen is the lease as it was when a whole timeout had been counted with its session unmoved: see [Forget].
	Seen Seen
	By   string // who asked, for the history
}

// Permits is the rule of [Roster.Forget] for a lease that is as l: stores that decide in Go call it.
func (f ForgetRequest) Permits(l Lease) error {
	switch {
	case l.Term == 0:
		return fmt.Errorf("%w: %s was never held", ErrNotFound, f.Lease)
	case l.Seen() != f.Seen, !l.Free() && l.Remaining > 0, l.Waiting > 0:
		return fmt.Errorf("%s: %w", f.Lease, ErrHeld)
	}
	return nil
}

// Reason is what the history says of it.
func (f ForgetRequest) Reason() string { return TruncateReason("forgotten by " + f.By) }

// ForgetWait is how long [Forget] takes to be sure that the last holder of a lease is gone: nothing if it was released,
// and the timeout of its session otherwise. The holder may trust it for so long after the store's wall clock was stepped
// forward and shows it as lapsed.
func (l Lease) ForgetWait() time.Duration {
	switch {
	case l.Session == "":
		return 0
	case l.Timing.Timeout == 0:
		return DefaultTimeout // its row is gone, a day after it lapsed
	}
	return l.Timing.Timeout
}

// Forget deletes those of the leases, as they were just read, that nobody holds or waits for, and returns how many. It first
// waits for the longest [Lease.ForgetWait] of them. One that was acquired or waited for meanwhile is left alone.
func Forget(ctx context.Context, store Roster, clock Clock, leases []Lease, by string) (n int, err error) {
	wait := time.Duration(0)
	for _, l := range leases {
		wait = max(wait, l.ForgetWait())
	}
	if wait > 0 && !Sleep(ctx, clock, wait) {
		return 0, context.Cause(ctx)
	}
	for _, l := range leases {
		switch err := store.Forget(ctx, ForgetRequest{Lease: l.ID, Seen: l.Seen(), By: by}); {
		case err == nil:
			n++
		case !errors.Is(err, ErrHeld) && !errors.Is(err, ErrNotFound):
			return n, err
		}
	}
	return n, nil
}
