package redis_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/internal/testkit/realserver"
	"github.com/understudy-ha/understudy/shard"
	"github.com/understudy-ha/understudy/store"
	"github.com/understudy-ha/understudy/store/redis"
)

// BenchmarkPlain measures, without scripts, what an agent does every interval, and what a
// reader of 1,000 shards of three nodes does.
func BenchmarkPlain(b *testing.B) {
	server := realserver.Redis(b, realserver.RedisOptions{})
	own, err := redis.Open(b.Context(), redis.Config{URL: server.URL() + "?scripts=off"})
	if err != nil {
		b.Fatal(err)
	}
	defer own.Close()
	reg := own.(store.Shards).Registry()
	report := func(i int) {
		id := fmt.Sprintf("%08x%s", i, strings.Repeat("0123abcd", 4))
		r := shard.Record{
			Shard: fmt.Sprintf("shard-%04d", i/3), ID: id, Address: fmt.Sprintf("10.0.%d.%d:6379", i/256, i%256), Role: shard.Replica,
			Instance: "i", Engine: "redis", Interval: time.Second, Timeout: 5 * time.Second,
		}
		if _, err := reg.Report(b.Context(), r, false); err != nil {
			b.Fatal(err)
		}
	}
	const nodes = 3000
	for i := range nodes {
		report(i)
	}
	b.Run("Report", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			report(i % nodes)
		}
	})
	b.Run("List", func(b *testing.B) {
		for b.Loop() {
			all, err := reg.List(b.Context(), "", shard.MaxShards)
			if err != nil || len(all) != nodes/3 {
				b.Fatalf("List: %d, %v", len(all), err)
			}
		}
	})
	b.Run("RenewSession", func(b *testing.B) {
		me := plainSession(b, own, "a", time.Minute)
		for b.Loop() {
			if _, err := own.RenewSession(b.Context(), me.ID); err != nil {
				b.Fatal(err)
			}
		}
	})
}
