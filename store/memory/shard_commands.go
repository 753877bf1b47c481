package memory

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/shard"
)

// Commands are the queues that the store keeps for package shard. Waiting goes by the
// timers of package time, expiry by the store's clock.
func (s *Store) Commands() shard.Commands { return shard.ValidatedCommands(commands{s}) }

// commands is the [shard.Commands] of a Store.
type commands struct{ s *Store }

type queued struct {
	shard.Command
	Expires time.Time `json:"expires"`
}

// Send implements [shard.Commands].
func (c commands) Send(ctx context.Context, all ...shard.Command) error {
	if err := c.s.begin(ctx, "sending commands"); err != nil {
		return err
	}
	defer c.s.mu.Unlock()
	now := c.s.now()
	for _, one := range all {
		c.s.shards.send(one, now)
	}
	return nil
}

func (all *shards) send(c shard.Command, now time.Time) {
	q := all.waiting(c.Node, now)
	if slices.ContainsFunc(q, func(w queued) bool { return w.ID == c.ID }) {
		return
	}
	q = append(q, queued{c, now.Add(c.Within)})
	all.queues[c.Node] = q[max(0, len(q)-shard.MaxQueue):]
	if coming := all.coming[c.Node]; coming != nil {
		close(coming)
		delete(all.coming, c.Node)
	}
}

// waiting is a node's queue without what has expired.
func (all *shards) waiting(node string, now time.Time) []queued {
	q := slices.DeleteFunc(all.queues[node], func(w queued) bool { return !now.Before(w.Expires) })
	all.queues[node] = q
	if len(q) == 0 {
		delete(all.queues, node)
	}
	return q
}

// Next implements [shard.Commands].
func (c commands) Next(ctx context.Context, node string, wait time.Duration) (shard.Command, error) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		if err := c.s.begin(ctx, "waiting for a command"); err != nil {
			return shard.Command{}, err
		}
		got, coming := c.s.shards.take(node, c.s.now())
		c.s.mu.Unlock()
		if coming == nil {
			return got, nil
		}
		select {
		case <-coming:
		case <-timer.C:
			return shard.Command{}, fmt.Errorf("%w for node %.8s", shard.ErrNoCommand, node)
		case <-ctx.Done():
			return shard.Command{}, fmt.Errorf("memory: waiting for a command: %w: %w", lease.ErrUnavailable, context.Cause(ctx))
		}
	}
}

// take is the oldest command of a queue, or what is closed when one comes.
func (all *shards) take(node string, now time.Time) (shard.Command, <-chan struct{}) {
	if q := all.waiting(node, now); len(q) > 0 {
		if all.queues[node] = q[1:]; len(q) == 1 {
			delete(all.queues, node)
		}
		return q[0].Command, nil
	}
	if all.coming[node] == nil {
		all.coming[node] = make(chan struct{})
	}
	return shard.Command{}, all.coming[node]
}
