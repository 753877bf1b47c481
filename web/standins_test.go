package web_test

import (
	"context"
	"time"

	"github.com/understudy-ha/understudy/cache"
	"github.com/understudy-ha/understudy/cache/protocol"
	"github.com/understudy-ha/understudy/shard"
)

// directory shows the shards as the store has them.
type directory struct{ registry shard.Registry }

func (d directory) Shard(name string) (shard.View, bool) {
	v, err := d.registry.ReadView(context.Background(), name)
	return v, err == nil
}

func (d directory) Shards() []shard.View {
	var all []shard.View
	for after := ""; ; after = all[len(all)-1].Row.Name {
		page, err := d.registry.List(context.Background(), after, shard.MaxShards)
		if all = append(all, page...); err != nil || len(page) < shard.MaxShards {
			return all
		}
	}
}

func (d directory) Changed() <-chan struct{} { return nil }

func (d directory) Freshness() (time.Duration, error) { return 0, nil }

// peer is a cache of two keys.
type peer struct{ removed chan string }

func (p *peer) Get(ctx context.Context, _ string, _ cache.GetOptions) (cache.Item, error) {
	<-ctx.Done()
	return cache.Item{}, ctx.Err()
}

func (p *peer) Peek(string) (cache.Item, bool) { return cache.Item{}, false }

func (p *peer) Remove(_ context.Context, _ protocol.Scope, name string) (int, int, error) {
	p.removed <- name
	return 1, 2, nil
}

func (p *peer) Keys(context.Context, cache.KeyQuery) ([]cache.KeyView, error) {
	return []cache.KeyView{{Key: "report", Doing: "idle", Size: 3}, {Key: long, Doing: "fetching"}}, nil
}

func (p *peer) Cluster(context.Context) (cache.ClusterView, error) {
	return cache.ClusterView{Self: "tcp://127.0.0.1:1", Member: true, Majority: 2, Connected: 1, Partitioned: true, Peers: []cache.PeerView{
		{URL: "tcp://127.0.0.1:1", API: "tcp://127.0.0.1:2", Self: true, Link: "up"}, {URL: "tcp://127.0.0.1:3", API: "tcp://127.0.0.1:4", Link: "dead"},
	}}, nil
}

func (p *peer) Watch(ctx context.Context, _ func(cache.Event)) error {
	<-ctx.Done()
	return nil
}

func (p *peer) Stats() cache.Stats {
	return cache.Stats{Hits: 7, Fetches: 2, FetchTime: 3 * time.Second}
}
