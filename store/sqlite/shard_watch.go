package sqlite

import (
	"context"
	"slices"

	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/shard"
)

const (
	lastShardWake = "SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'understudy_shard_wake'), 0)"
	newShardWakes = "SELECT n, shard FROM understudy_shard_wake WHERE n > ?1 ORDER BY n LIMIT ?2"
)

// shardWatcher follows what shards' watchers are told of, and the events of their leases.
type shardWatcher struct {
	watcher
	of   string // a shard, or "" for all
	told int64  // the newest waking that was told
}

// Watch implements [shard.Registry].
func (r registry) Watch(ctx context.Context, name string, wake func(string)) error {
	inner, cancel := r.s.untilClosed(ctx)
	defer cancel()
	err := r.s.watchShards(inner, name, wake)
	if ctx.Err() != nil {
		return nil
	}
	return failed("watching shards", err)
}

func (s *Store) watchShards(ctx context.Context, name string, wake func(string)) error {
	w := shardWatcher{of: name}
	return s.follow(ctx, &w.watcher, mark{lastShardWake, &w.told}, func() { wake("") },
		func() error { return w.look(wake) })
}

// look tells what is new. When it fails the next look finds it all again.
func (w *shardWatcher) look(wake func(string)) error {
	var version int64
	if err := w.one(dataVersion, nil, &version); err != nil || version == w.version {
		return err
	}
	changes, last, err := w.events()
	if err != nil {
		return err
	}
	names, told, err := w.wakings()
	if err != nil {
		return err
	}
	if len(changes) == maxTold || len(names) == maxTold {
		names = []string{""}
	} else {
		for _, c := range changes {
			if c != (lease.Change{}) && c.Lease.Space == shard.Space {
				names = append(names, c.Lease.Key)
			}
		}
	}
	w.version, w.last, w.told = version, last, told
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		if w.of == "" || name == "" || name == w.of {
			wake(name)
		}
	}
	return nil
}

// wakings are the shards that were told of, and the newest of these tellings.
func (w *shardWatcher) wakings() (names []string, last int64, err error) {
	last = w.told
	err = w.each(newShardWakes, []any{w.told, maxTold}, func(scan scanner) error {
		name := ""
		if err := scan(&last, &name); err != nil {
			return err
		}
		names = append(names, name)
		return nil
	})
	if err == nil && len(names) == maxTold {
		err = w.one(lastShardWake, nil, &last)
	}
	return names, last, err
}
