package sabledb

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/understudy-ha/understudy/access"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/shard"
)

// Registry implements [store.Shards].
func (s *Store) Registry() shard.Registry { return shard.Validated(registry{s}) }

// Commands implements [store.Shards].
func (s *Store) Commands() shard.Commands { return shard.ValidatedCommands(commands{s}) }

// Tokens implements [store.Tokens].
func (s *Store) Tokens() access.Tokens { return access.NewTokens(tokens{s}) }

type (
	registry struct{ s *Store }
	commands struct{ s *Store }
	tokens   struct{ s *Store }
)

// Report implements [shard.Registry].
func (r registry) Report(ctx context.Context, n shard.Record, urgent bool) (v shard.View, err error) {
	if err := validateTiming(lease.Timing{Interval: n.Interval, Timeout: n.Timeout}); err != nil && n.Timeout != shard.TimeoutStopped {
		return v, err
	}
	err = r.s.run(ctx, func(k *call) (err error) { v, err = k.memory.Registry().Report(ctx, n, urgent); return err })
	return v, err
}

// UpdateRow implements [shard.Registry].
func (r registry) UpdateRow(ctx context.Context, u shard.RowUpdate) (rev int64, err error) {
	err = r.s.run(ctx, func(k *call) (err error) {
		k.notify(u.Commands)
		rev, err = k.memory.Registry().UpdateRow(ctx, u)
		return err
	})
	return rev, err
}

// Lock implements [shard.Registry].
func (r registry) Lock(ctx context.Context, l shard.Lock) error {
	return r.s.run(ctx, func(k *call) error { return k.memory.Registry().Lock(ctx, l) })
}

// Unlock implements [shard.Registry].
func (r registry) Unlock(ctx context.Context, l shard.Lock) error {
	return r.s.run(ctx, func(k *call) error { return k.memory.Registry().Unlock(ctx, l) })
}

// ReadView implements [shard.Registry].
func (r registry) ReadView(ctx context.Context, name string) (v shard.View, err error) {
	err = r.s.run(ctx, func(k *call) (err error) { v, err = k.memory.Registry().ReadView(ctx, name); return err })
	return v, err
}

// List implements [shard.Registry].
func (r registry) List(ctx context.Context, after string, limit int) (all []shard.View, err error) {
	err = r.s.run(ctx, func(k *call) (err error) { all, err = k.memory.Registry().List(ctx, after, limit); return err })
	return all, err
}

// Watch implements [shard.Registry]: there is nothing to listen to.
func (r registry) Watch(context.Context, string, func(string)) error {
	return fmt.Errorf("sabledb: %w", errors.ErrUnsupported)
}

// notify has those woken who wait for commands.
func (k *call) notify(all []shard.Command) {
	for _, c := range all {
		k.wake = append(k.wake, c.Node)
	}
}

// Send implements [shard.Commands].
func (c commands) Send(ctx context.Context, all ...shard.Command) error {
	return c.s.run(ctx, func(k *call) error {
		k.notify(all)
		return k.memory.Commands().Send(ctx, all...)
	})
}

// Next implements [shard.Commands].
func (c commands) Next(ctx context.Context, node string, wait time.Duration) (got shard.Command, err error) {
	for end := time.Now().Add(wait); ; {
		err = c.s.run(ctx, func(k *call) (err error) {
			got, err = k.memory.Commands().Next(ctx, node, 0)
			return err
		})
		left := time.Until(end)
		if !errors.Is(err, shard.ErrNoCommand) || left <= 0 {
			return got, err
		}
		if err := c.await(ctx, node, left); err != nil {
			return got, err
		}
	}
}

// await returns when a command was sent to the node, or after d. It takes no lock.
func (c commands) await(ctx context.Context, node string, d time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, d+callTimeout)
	defer cancel()
	conn, err := c.s.dial(ctx)
	if err != nil {
		return failure(err, false)
	}
	defer conn.Close()
	d = max(d, 2*time.Millisecond) // 0 would be for ever
	if _, err = conn.do(ctx, []string{"BRPOP", c.s.key("wake:" + node), strconv.FormatFloat(d.Seconds(), 'f', 3, 64)}); err != nil {
		return failure(err, false)
	}
	return nil
}

// Change implements [access.Table].
func (t tokens) Change(ctx context.Context, op string, decide access.Decision) (out access.Token, err error) {
	err = t.s.run(ctx, func(k *call) (err error) { out, err = k.memory.TokenTable().Change(ctx, op, decide); return err })
	return out, err
}

// List implements [access.Table].
func (t tokens) List(ctx context.Context) (all []access.Token, now time.Time, err error) {
	err = t.s.run(ctx, func(k *call) (err error) { all, now, err = k.memory.TokenTable().List(ctx); return err })
	return all, now, err
}
