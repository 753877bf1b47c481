package redis_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/understudy-ha/understudy/internal/testkit/realserver"
	"github.com/understudy-ha/understudy/lease"
)

// BenchmarkCost takes turns between a bare SET and the store's calls, so that
// whatever else the host does falls on all of them alike, and reports medians in
// microseconds.
func BenchmarkCost(b *testing.B) {
	for _, held := range []int{1, 1000, 100_000} {
		b.Run(fmt.Sprintf("leases=%d", held), func(b *testing.B) {
			server := realserver.Redis(b, realserver.RedisOptions{})
			s := open(b, server.URL(), "")
			bare := goredis.NewClient(&goredis.Options{
				Addr: server.Addr, Protocol: 2, DisableIdentity: true, ContextTimeoutEnabled: true,
				MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
			})
			defer bare.Close()
			a := start(b, s, "a", 24*time.Hour)
			hold(b, s, a.ID, held)
			id := lease.ID{Space: "role", Key: "measured"}
			took := map[string][]float64{}
			measure := func(name string, f func() error) {
				began := time.Now()
				if err := f(); err != nil {
					b.Fatalf("%s: %v", name, err)
				}
				took[name] = append(took[name], float64(time.Since(began).Nanoseconds())/1000)
			}
			var l lease.Lease
			for b.Loop() {
				measure("set-µs", func() error {
					ctx, cancel := context.WithTimeout(b.Context(), time.Second)
					defer cancel()
					return bare.Set(ctx, "bare", "value", 0).Err()
				})
				measure("renew-µs", func() error {
					ctx, cancel := context.WithTimeout(b.Context(), time.Second)
					defer cancel()
					_, err := s.RenewSession(ctx, a.ID)
					return err
				})
				measure("acquire-µs", func() (err error) {
					l, err = s.Acquire(b.Context(), lease.Expectation{Lease: id, Session: a.ID, Seen: lease.Seen{Term: l.Term}})
					return err
				})
				measure("release-µs", func() error {
					return s.Release(b.Context(), lease.ReleaseRequest{Lease: id, Session: a.ID, Term: l.Term})
				})
			}
			for name, all := range took {
				slices.Sort(all)
				b.ReportMetric(all[len(all)/2], name)
			}
			b.ReportMetric(0, "ns/op")
			began := time.Now()
			if err := s.EndSession(b.Context(), a.ID, "done"); err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(time.Since(began).Milliseconds()), "end-ms")
			stats, err := server.Do("INFO", "commandstats")
			if err != nil {
				b.Fatal(err)
			}
			b.Log(stats)
		})
	}
}
