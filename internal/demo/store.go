package demo

import (
	"context"
	"slices"
	"strings"

	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/elect"
	"github.com/understudy-ha/understudy/internal/usererr"
	"github.com/understudy-ha/understudy/monitor"
	"github.com/understudy-ha/understudy/store"
)

// unused refuses a store that is used for something else: the demonstration would compete for roles, deliver queues and configure
// the monitor of others. Names alone do not tell, as its own are everyone's examples: a store in which it has been has its
// second role, or its sink.
func unused(ctx context.Context, st store.Store) error {
	ctx, cancel := context.WithTimeout(ctx, 2*callTimeout)
	defer cancel()
	roles, err := elect.Roles(ctx, st)
	if err != nil {
		return err
	}
	var queues []dispatch.Overview
	if q, ok := st.(store.Queues); ok {
		if queues, err = q.QueueAdmin().Queues(ctx); err != nil {
			return err
		}
	}
	sink := monitor.SinkQueue(sinkName)
	own := slices.ContainsFunc(roles, func(r elect.Role) bool { return r.Name == moreRole }) ||
		slices.ContainsFunc(queues, func(v dispatch.Overview) bool { return v.Queue == sink })
	for _, r := range roles {
		switch {
		case !own || !slices.Contains([]string{roleName, moreRole, monitorRole}, r.Name):
			return usedStore("role", r.Name)
		case len(r.Primary) > 0:
			return usererr.Errorf("%s holds the role %q on this store: does another demonstration run? Give this one a store of its own, or wait until that has lapsed", r.Primary[0].Name, r.Name)
		}
	}
	for _, v := range queues {
		if !own || v.Queue != queueName && v.Queue != sink {
			return usedStore("queue", v.Queue)
		}
	}
	if m, ok := st.(store.Monitors); ok {
		settings, err := m.Monitor().Settings(ctx)
		if err != nil {
			return err
		}
		for _, e := range settings.Checks {
			if !own || e.Name != CheckName {
				return usedStore("check", e.Name)
			}
		}
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

func usedStore(what, name string) error {
	return usererr.Errorf("this store is in use: it has the %s %q. The demonstration kills, and needs a store of its own: leave --store and $UNDERSTUDY_STORE out, or name an empty one", what, name)
}
