package redis

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"
	"github.com/understudy-ha/understudy/shard"
)

// shardChannel is where changes of all shards are told; ":NAME" after it is that of one.
func (s *Store) shardChannel() string { return fmt.Sprintf("%sshard-changes:%d", s.root, s.target.db) }

// Watch implements [shard.Registry]. It has a connection of its own.
func (r registry) Watch(ctx context.Context, name string, wake func(string)) error {
	s, channel := r.s, r.s.shardChannel()
	if name != "" {
		if err := shard.ValidateName(name); err != nil {
			return err
		}
		channel += ":" + name
	}
	ready := 0
	return s.subscribe(ctx, func(message any) {
		switch m := message.(type) {
		case *redis.Subscription:
			// One that the driver renewed may have missed anything.
			if ready++; ready >= 2 {
				wake("")
			}
		case *redis.Message:
			if m.Channel == channel {
				wake(m.Payload)
				return
			}
			change, err := decode(m.Payload)
			if err != nil {
				s.log.Warn("a notification cannot be read: something else publishes under this prefix", "err", err)
				wake("")
			} else if change.Lease.Space == shard.Space && (name == "" || name == change.Lease.Key) {
				wake(change.Lease.Key)
			}
		}
	}, channel, s.channel)
}
