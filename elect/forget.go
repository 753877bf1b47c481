package elect

import (
	"context"
	"fmt"
	"slices"
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
	// A Forget that was interrupted has left further places, without the first.
	leases = slices.DeleteFunc(leases, func(l lease.Lease) bool { return l.Term == 0 })
	if len(leases) == 0 {
		return fmt.Errorf("%w: role %q was never held", lease.ErrNotFound, role)
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
		case l.HasLiveHolder():
			return fmt.Errorf("%w: %q is primary of role %q: stop it first", lease.ErrHeld, l.Holder.Name, role)
		case l.Waiting > 0:
			return fmt.Errorf("%w: role %q has %d standbys: stop them first", lease.ErrHeld, role, l.Waiting)
		case bounded && time.Until(ends) < wait:
			return fmt.Errorf("%w: the last holder of role %q was not stopped, and its session's timeout of %v has to be counted first, which is too long here; a server forgets the role by itself",
				lease.ErrHeld, role, wait)
		}
	}
	return nil
}

// ForgetVacant deletes the leases that nobody has held for after and nobody waits for: roles, and what programs took over
// the API. Those of shards go with their shards, and that of a job that runs once per period stays for the longest period,
// because it tells when the job ran last. The places of a role go together. It returns how many it deleted.
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
		var vacant []lease.Lease
		inUse := map[string]bool{} // roles
		for last, more := "", true; more && err == nil; {
			var page []lease.Lease
			if page, err = store.List(ctx, s.Space, last, lease.MaxList); err != nil {
				break
			}
			for _, l := range page {
				last = l.Key
				switch {
				case !l.HasLiveHolder() && l.Waiting == 0 && vacantFor(l) >= least:
					vacant = append(vacant, l)
				case s.Space == Space:
					inUse[roleOf(l.Key)] = true
				}
			}
			if more = len(page) == lease.MaxList; more && s.Space == Space {
				continue // the next page may show that a role on this one is in use
			}
			vacant = slices.DeleteFunc(vacant, func(l lease.Lease) bool { return inUse[roleOf(l.Key)] })
			var some int
			some, err = lease.Forget(ctx, store, clock, vacant, by)
			n, vacant = n+some, nil
		}
	}
	return n, err
}
