package demo

import (
	"context"
	"slices"
	"strings"

	"github.com/understudy-ha/understudy/elect"
	"github.com/understudy-ha/understudy/internal/usererr"
	"github.com/understudy-ha/understudy/monitor"
	"github.com/understudy-ha/understudy/store"
)

// unused refuses a store that is used for something else: the demonstration would compete
// for roles, deliver queues and configure the monitor of others.
func unused(ctx context.Context, st store.Store) error {
	ctx, cancel := context.WithTimeout(ctx, 2*callTimeout)
	defer cancel()
	roles, err := elect.Roles(ctx, st)
	if err != nil {
		return err
	}
	for _, r := range roles {
		switch {
		case !slices.Contains([]string{roleName, moreRole, monitorRole}, r.Name):
			return usedStore("role", r.Name)
		case len(r.Primary) > 0:
			return usererr.Errorf("%s holds the role %q on this store: does another demonstration run? Give this one a store of its own, or wait until that has lapsed", r.Primary[0].Name, r.Name)
		}
	}
	if err := unusedQueues(ctx, st); err != nil {
		return err
	}
	shards, ok := st.(store.Shards)
	if !ok {
		return nil
	}
	views, err := shards.Registry().List(ctx, "", 100)
	if err != nil {
		return err
	}
	for _, v := range views {
		if !strings.HasPrefix(v.Row.Name, shardPrefix) {
			return usedStore("shard", v.Row.Name)
		}
	}
	return nil
}

func unusedQueues(ctx context.Context, st store.Store) error {
	if q, ok := st.(store.Queues); ok {
		queues, err := q.QueueAdmin().Queues(ctx)
		if err != nil {
			return err
		}
		for _, v := range queues {
			if v.Queue != queueName && v.Queue != monitor.SinkQueue(sinkName) {
				return usedStore("queue", v.Queue)
			}
		}
	}
	if m, ok := st.(store.Monitors); ok {
		settings, err := m.Monitor().Settings(ctx)
		if err != nil {
			return err
		}
		for _, e := range settings.Checks {
			if e.Name != CheckName {
				return usedStore("check", e.Name)
			}
		}
	}
	return nil
}

func usedStore(what, name string) error {
	return usererr.Errorf("this store is in use: it has the %s %q. The demonstration kills, and needs a store of its own: leave --store and $UNDERSTUDY_STORE out, or name an empty one", what, name)
}
