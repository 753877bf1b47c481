package shard

import (
	"fmt"

	"github.com/understudy-ha/understudy/lease"
)

// Validate returns an error that wraps lease.ErrInvalid unless a store may take the
// update.
func (u RowUpdate) Validate() error {
	if err := ValidateName(u.Row.Name); err != nil {
		return err
	}
	if u.Row.Rev < 0 || len(u.Row.Members) > MaxMembers {
		return fmt.Errorf("%w: shard %q: revision %d and %d members; use at least 0, and at most %d",
			lease.ErrInvalid, u.Row.Name, u.Row.Rev, len(u.Row.Members), MaxMembers)
	}
	var ids []string
	if u.Row.Primary != "" {
		ids = append(ids, u.Row.Primary)
	}
	for _, m := range u.Row.Members {
		ids = append(ids, m.ID)
	}
	for _, id := range append(ids, u.Drop...) {
		if err := ValidateNodeID(id); err != nil {
			return err
		}
	}
	for _, c := range u.Commands {
		if err := c.Validate(); err != nil {
			return err
		}
	}
	return nil
}

// Validate returns an error that wraps lease.ErrInvalid unless a store may queue the
// command.
func (c Command) Validate() error {
	if err := ValidateName(c.Shard); err != nil {
		return err
	}
	if err := ValidateNodeID(c.Node); err != nil {
		return err
	}
	if c.Within < MinWithin || c.Within > MaxWithin {
		return fmt.Errorf("%w: command %.80q waits for %v; use %v to %v", lease.ErrInvalid, c.ID, c.Within, MinWithin, MaxWithin)
	}
	return lease.ValidateText("command id", c.ID, 1, lease.MaxKey)
}

// Validate returns an error that wraps lease.ErrInvalid unless a store may look for the
// lock, and take it unless its Value is "".
func (l Lock) Validate() error {
	if err := ValidateName(l.Shard); err != nil {
		return err
	}
	if err := ValidateNodeID(l.Primary); err != nil {
		return err
	}
	return lease.ValidateText("value of the failover lock", l.Value, 0, lease.MaxName)
}
