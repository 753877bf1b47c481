package elect

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/understudy-ha/understudy/lease"
)

// ResignRequest asks holders of a role to release it.
type ResignRequest struct {
	Role string
	// Successor, when not "", is the standby (an instance's name or ID) for which the
	// role is kept for one T.
	Successor string
	// All holders of a role with several are asked, not only one.
	All bool
	// By is who asked, for the history.
	By string
}

// Resign asks the primary of a role to release it, and returns as soon as the request
// is recorded, with the holders that were asked. Of a role with several it asks the
// one that has held its place longest and was not asked yet, so that as many
// calls as there are holders replace all of them one by one; or all at once. [ErrVacant] when the
// role is vacant; a successor that is not a standby is lease.ErrInvalid.
func Resign(ctx context.Context, store Store, r ResignRequest) (asked []Primary, err error) {
	if err := ValidateRole(r.Role); err != nil {
		return nil, err
	}
	if r.All && r.Successor != "" {
		return nil, fmt.Errorf("%w: one successor cannot follow all holders of %q; name it or ask all, not both", lease.ErrInvalid, r.Role)
	}
	if r.Successor != "" {
		if err := requireWaiting(ctx, store, r.Role, r.Successor); err != nil {
			return nil, err
		}
	}
	held, err := heldPlaces(ctx, store, r.Role)
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(held, func(a, b lease.Lease) int {
		if a.ReleaseRequested != b.ReleaseRequested {
			if b.ReleaseRequested {
				return -1
			}
			return 1
		}
		return a.Since.Compare(b.Since)
	})
	for _, l := range held {
		err := store.RequestRelease(ctx, l.ID, r.Successor, r.By)
		if err != nil && !errors.Is(err, lease.ErrNotHeld) {
			return asked, err
		}
		if err == nil {
			asked = append(asked, primaryOf(l))
		}
		if err == nil && !r.All {
			break
		}
	}
	if len(asked) == 0 {
		return nil, fmt.Errorf("%w: %q", ErrVacant, r.Role)
	}
	return asked, nil
}

func requireWaiting(ctx context.Context, store Store, role, successor string) error {
	if err := lease.ValidateText("successor", successor, 1, lease.MaxName); err != nil {
		return err
	}
	waiters, err := store.Waiters(ctx, Space)
	if err != nil {
		return err
	}
	names := ""
	for _, w := range waiters {
		if w.Lease.Key != role {
			continue
		}
		if w.Session.Instance.IsNamed(successor) {
			return nil
		}
		names += fmt.Sprintf(" %q", w.Session.Instance.Name)
	}
	if names == "" {
		names = " none"
	}
	return fmt.Errorf("%w: %q is not a standby of role %q; standbys:%s", lease.ErrInvalid, successor, role, names)
}

// LetOthers waits until every place of the role is held, no other instance waits for
// one, or one T has passed. An instance that resigned calls it before it campaigns again.
func LetOthers(ctx context.Context, cfg Config) error {
	ctx, cancel := context.WithTimeoutCause(ctx, cfg.Keeper.Timing().Timeout, errNobody)
	defer cancel()
	places := Leases(cfg.Role, max(1, cfg.Holders))
	// A standby that takes one place leaves the list of the others a moment later, which wakes nobody: so look often.
	every := cfg.Keeper.Timing().Interval / 8
	err := awaitCondition(ctx, cfg.Keeper, places, every, func(ctx context.Context) (bool, error) {
		for n, id := range places {
			l, err := cfg.Keeper.Store().Get(ctx, id)
			if err != nil {
				return false, err
			}
			// All standbys are on the list of the first place, if they have a roster to be on;
			// this instance left it when it acquired a place.
			if n == 0 && l.Waiting == 0 && l.Reserved <= 0 && cfg.Keeper.Roster() != nil {
				return true, nil
			}
			if !l.HasLiveHolder() {
				return false, nil
			}
		}
		return true, nil
	})
	if errors.Is(err, errNobody) {
		return nil
	}
	return err
}

var errNobody = errors.New("elect: no other instance took the role")
