package elect

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/understudy-ha/understudy/lease"
)

// Space is the space of the leases that are roles.
const Space = "role"

// shardSpace is that of the leases of shards' primaries, as package shard has it.
const shardSpace = "shard"

// MaxHolders is the most that may hold one role at a time.
const MaxHolders = 100

// slotMark separates a role from the number of its place, from the second on.
const slotMark = "#"

var (
	// ErrVacant: the role has no holder.
	ErrVacant = errors.New("elect: the role is vacant")
	// ErrHolders: an instance that holds the role has another number of Config.Holders.
	ErrHolders = errors.New("elect: all instances of a role must allow the same number of holders")
	// ErrMoved is the cause with which work is cancelled when the companion role
	// (Config.With) is held elsewhere.
	ErrMoved = errors.New("elect: the companion role moved to another instance")
)

// ValidateRole returns an error that wraps lease.ErrInvalid unless the name can
// be that of a role: 1 to 190 bytes of printable text without '#'.
func ValidateRole(role string) error {
	if err := lease.ValidateText("role", role, 1, lease.MaxKey-10); err != nil {
		return err
	}
	if err := Leases(role, 1)[0].Validate(); err != nil {
		return err
	}
	if strings.Contains(role, slotMark) {
		return fmt.Errorf("%w: role %q contains '#', which numbers the places of a role with several holders", lease.ErrInvalid, role)
	}
	return nil
}

// Leases returns the leases of a role's places: the role itself for the first,
// and a numbered one for each further.
func Leases(role string, holders int) []lease.ID {
	ids := []lease.ID{{Space: Space, Key: role}}
	for n := 2; n <= holders; n++ {
		ids = append(ids, lease.ID{Space: Space, Key: role + slotMark + strconv.Itoa(n)})
	}
	return ids
}

// HeldBeside asks the store whether a place of the role is held by an instance of the keeper's name: on the same host,
// where names are host names.
func HeldBeside(ctx context.Context, k *lease.Keeper, role string) (bool, error) {
	beside := func(l lease.Lease) bool {
		return l.HasLiveHolder() && strings.EqualFold(l.Holder.Name, k.Instance().Name)
	}
	// It is asked each interval: most roles have one holder, who says so, and there is nothing more to read.
	first, err := k.Store().Get(ctx, Leases(role, 1)[0])
	if err != nil || beside(first) || first.HasLiveHolder() && first.Places == 1 {
		return err == nil && beside(first), err
	}
	held, err := heldPlaces(ctx, k.Store(), role)
	return err == nil && slices.ContainsFunc(held, beside), err
}

// placeOf is the number of a place in its role, from 1.
func placeOf(key string) int {
	_, n, _ := strings.Cut(key, slotMark)
	place, _ := strconv.Atoi(n) // none for the first
	return max(1, place)
}

// roleOf is the role that a lease's key belongs to.
func roleOf(key string) string {
	role, _, _ := strings.Cut(key, slotMark)
	return role
}
