package elect

import (
	"context"
	"fmt"
	"time"

	"github.com/understudy-ha/understudy/lease"
)

// Forget deletes a role that nobody holds or waits for, with all its places. Its terms still never fall. If its last holder
// did not release it, Forget first waits for the timeout of that one's session ([lease.Lease.ForgetWait]), and refuses at
// once when ctx ends before. lease.ErrHeld when it is held or waited for, lease.ErrNotFound when it was never held.
func Forget(ctx context.Context, store Store, clock lease.Clock, role, by string) error {
	if err := ValidateRole(role); err != nil {
		return err
	}
	leases, err := places(ctx, store, role)
	if err != nil {
		return err
	}
	if err := checkForgettable(ctx, role, leases); err != nil {
		return err
	}
	n, err := lease.Forget(ctx, store, clock, leases, by)
	if err == nil && n < len(leases) {
		err = fmt.Errorf("%w: role %q was taken or waited for in the same moment", lease.ErrHeld, role)
	}
	return err
}

func checkForgettable(ctx context.Context, role string, leases []lease.Lease) error {
	ends, bounded := ctx.Deadline()
	for _, l := range leases {
		switch wait := l.ForgetWait(); {
		case l.Held() && !l.Foreign:
			return fmt.Errorf("%w: %q is primary of role %q: stop it first", lease.ErrHeld, l.Holder.Name, role)
		case l.Waiting > 0:
			return fmt.Errorf("%w: role %q has %d standbys: stop them first", lease.ErrHeld, role, l.Waiting)
		case l.Term == 0:
			return fmt.Errorf("%w: role %q was never held", lease.ErrNotFound, role)
		case bounded && time.Until(ends) < wait:
			return fmt.Errorf("%w: the last holder of role %q was not stopped, and its session's timeout of %v has to be counted first, which is too long here; a server forgets the role by itself",
				lease.ErrHeld, role, wait)
		}
	}
	return nil
}

// ForgetVacant deletes the leases that nobody has held for after and nobody waits for: roles, and what programs took over
// the API. Those of shards go with their shards, and that of a job that runs once per period stays for the longest period,
// because it tells when the job ran last. It returns how many it deleted.
func ForgetVacant(ctx context.Context, store Store, clock lease.Clock, after time.Duration, by string) (n int, err error) {
	spaces, err := store.Spaces(ctx)
	for _, s := range spaces {
		least := after
		switch s.Space {
		case shardSpace:
			continue
		case OnceSpace:
			least = max(after, maxPeriod)
		}
		for last, more := "", true; more && err == nil; {
			var page []lease.Lease
			if page, err = store.List(ctx, s.Space, last, lease.MaxList); err != nil {
				break
			}
			var vacant []lease.Lease
			for _, l := range page {
				last = l.Key
				if !l.Held() && l.Waiting == 0 && vacantFor(l) >= least {
					vacant = append(vacant, l)
				}
			}
			more = len(page) == lease.MaxList
			var some int
			some, err = lease.Forget(ctx, store, clock, vacant, by)
			n += some
		}
	}
	return n, err
}
