package main

import (
	"context"
	"slices"
	"strings"

	"github.com/understudy-ha/understudy/elect"
	"github.com/understudy-ha/understudy/monitor"
	"github.com/understudy-ha/understudy/store"
)

// demoOnly refuses a store that is used for something else: the demonstration would compete
// for roles, deliver queues and configure the monitor of others.
func demoOnly(ctx context.Context, st store.Store) error {
	ctx, cancel := context.WithTimeout(ctx, 2*callTimeout)
	defer cancel()
	roles, err := elect.Roles(ctx, st)
	if err != nil {
		return err
	}
	for _, r := range roles {
		switch {
		case !slices.Contains([]string{demoRoleName, demoMoreName, activeRole}, r.Name):
			return usedStore("role", r.Name)
		case len(r.Primary) > 0:
			return usagef("%s holds the role %q on this store: does another demonstration run? Give this one a store of its own, or wait until that has lapsed", r.Primary[0].Name, r.Name)
		}
	}
	if err := demoQueuesOnly(ctx, st); err != nil {
		return err
	}
	shards, err := shardsOf(st)
	if err != nil {
		return nil // it keeps none
	}
	views, err := shards.Registry().List(ctx, "", 100)
	if err != nil {
		return err
	}
	for _, v := range views {
		if !strings.HasPrefix(v.Row.Name, demoShards) {
			return usedStore("shard", v.Row.Name)
		}
	}
	return nil
}

func demoQueuesOnly(ctx context.Context, st store.Store) error {
	if q, ok := st.(store.Queues); ok {
		queues, err := q.Desk().Queues(ctx)
		if err != nil {
			return err
		}
		for _, v := range queues {
			if v.Queue != demoQueueName && v.Queue != monitor.QueueOf(demoSinkName) {
				return usedStore("queue", v.Queue)
			}
		}
	}
	if m, ok := st.(store.Monitors); ok {
		settings, err := m.Monitor().Settings(ctx)
		if err != nil {
			return err
		}
		for _, e := range settings.Events {
			if e.Name != demoEventName {
				return usedStore("event name", e.Name)
			}
		}
	}
	return nil
}

func usedStore(what, name string) error {
	return usagef("this store is in use: it has the %s %q. The demonstration kills, and needs a store of its own: leave --store and $UNDERSTUDY_STORE out, or name an empty one", what, name)
}
