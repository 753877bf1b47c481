package shard

import (
	"context"
	"fmt"
	"time"

	"github.com/understudy-ha/understudy/lease"
)

// Validated returns a registry that refuses what is not acceptable before the store sees it.
func Validated(r Registry) Registry { return validatedRegistry{r} }

type validatedRegistry struct{ Registry }

func (r validatedRegistry) Report(ctx context.Context, n Record, urgent bool) (View, error) {
	if err := n.Validate(); err != nil {
		return View{}, err
	}
	return r.Registry.Report(ctx, n, urgent)
}

func (r validatedRegistry) ReadView(ctx context.Context, shard string) (View, error) {
	if err := ValidateName(shard); err != nil {
		return View{}, err
	}
	return r.Registry.ReadView(ctx, shard)
}

func (r validatedRegistry) UpdateRow(ctx context.Context, u RowUpdate) (rev int64, err error) {
	if err := u.Validate(); err != nil {
		return 0, err
	}
	return r.Registry.UpdateRow(ctx, u)
}

func (r validatedRegistry) Lock(ctx context.Context, l Lock) error {
	if err := l.Validate(); err != nil {
		return err
	}
	if l.Value == "" {
		return fmt.Errorf("%w: the failover lock of shard %q needs a value", lease.ErrInvalid, l.Shard)
	}
	return r.Registry.Lock(ctx, l)
}

func (r validatedRegistry) Unlock(ctx context.Context, l Lock) error {
	if err := l.Validate(); err != nil {
		return err
	}
	return r.Registry.Unlock(ctx, l)
}

func (r validatedRegistry) List(ctx context.Context, after string, limit int) ([]View, error) {
	return r.Registry.List(ctx, after, min(max(limit, 1), MaxShards))
}

func (r validatedRegistry) Watch(ctx context.Context, shard string, wake func(shard string)) error {
	if shard != "" {
		if err := ValidateName(shard); err != nil {
			return err
		}
	}
	return r.Registry.Watch(ctx, shard, wake)
}

// ValidatedCommands is [Validated] for queues.
func ValidatedCommands(c Commands) Commands { return validatedCommands{c} }

type validatedCommands struct{ Commands }

func (c validatedCommands) Send(ctx context.Context, all ...Command) error {
	for _, one := range all {
		if err := one.Validate(); err != nil {
			return err
		}
	}
	if len(all) == 0 {
		return nil
	}
	return c.Commands.Send(ctx, all...)
}

func (c validatedCommands) Next(ctx context.Context, node string, wait time.Duration) (Command, error) {
	if err := ValidateNodeID(node); err != nil {
		return Command{}, err
	}
	return c.Commands.Next(ctx, node, min(max(wait, 0), MaxWait))
}
