package main

import (
	"context"
)

// shardOutage measures how long a shard is without a primary, in one of the ways in which one fails.
func shardOutage(name string) func(context.Context, *bed, options, *Report) {
	return func(ctx context.Context, b *bed, o options, r *Report) {
		overStores(ctx, b, o, r, name, func(s *shardTrials) {
			for _, one := range outagesOfShards() {
				if one.section == name {
					s.outage(ctx, one, o.fails)
				}
			}
		})
	}
}

// overStores runs a section on each store.
func overStores(ctx context.Context, b *bed, o options, r *Report, name string, f func(s *shardTrials)) {
	addLoad(r, name, "at the start")
	for _, kind := range shardStores(o) {
		f(newShardTrials(ctx, b, r, buildProgram(ctx, b), kind))
		b.clear()
	}
	addLoad(r, name, "at the end")
}

// shardCrash counts what a crash loses under load.
func shardCrash(ctx context.Context, b *bed, o options, r *Report) {
	overStores(ctx, b, o, r, "crash", func(s *shardTrials) { s.crash(ctx, o.fails) })
}

// shardSwitchover measures changes of primary on purpose.
func shardSwitchover(ctx context.Context, b *bed, o options, r *Report) {
	overStores(ctx, b, o, r, "switchover", func(s *shardTrials) {
		s.switchover(ctx, false, o.fails)
		s.switchover(ctx, true, o.fails)
	})
}

// shardStores are those of the stores to measure in which agents of several hosts can meet.
func shardStores(o options) (out []string) {
	for _, kind := range o.kinds {
		if kind == "postgres" || kind == "redis" {
			out = append(out, kind)
		}
	}
	return out
}
