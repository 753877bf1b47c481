package redis

import (
	"context"
	"fmt"

	"github.com/understudy-ha/understudy/shard"
)

// shardChannel is where changes of all shards are told; ":NAME" after it is that of one.
func (s *Store) shardChannel() string { return fmt.Sprintf("%sshard-changes:%d", s.root, s.target.db) }

// Watch implements [shard.Registry]. It has a connection of its own.
func (r registry) Watch(ctx context.Context, name string, wake func(string)) error {
	s, channel := r.s, r.s.shardChannel()
	if name != "" {
		channel += ":" + name
	}
	confirmed := 0
	return s.subscribe(ctx, func(n notification) {
		switch {
		case n.subscribed:
			if confirmed++; confirmed == 2 { // both channels: from now on nothing is missed
				wake("")
			}
		case n.channel == channel:
			wake(n.payload)
		default:
			change, err := decode(n.payload)
			if err != nil {
				s.log.Warn("a notification cannot be read: something else publishes under this prefix", "err", err)
				wake("")
			} else if change.Lease.Space == shard.Space && (name == "" || name == change.Lease.Key) {
				wake(change.Lease.Key)
			}
		}
	}, channel, s.channel)
}
