package redis_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/internal/testkit/realserver"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/lease/leasetest"
	"github.com/understudy-ha/understudy/store"
	"github.com/understudy-ha/understudy/store/redis"
)

func TestConformance(t *testing.T) {
	server := realserver.Redis(t, realserver.RedisOptions{})
	leasetest.Run(t, func(t *testing.T) *leasetest.Harness {
		var skew atomic.Int64
		prefix := prefixOf(t)
		return &leasetest.Harness{
			Open: func(t *testing.T) store.Store {
				s := open(t, server.URL(), prefix)
				s.SetSkew(func() time.Duration { return time.Duration(skew.Load()) })
				return s
			},
			Step: func(_ *testing.T, d time.Duration) { skew.Add(int64(d)) },
		}
	})
}

func TestLinearizable(t *testing.T) {
	server, prefix := realserver.Redis(t, realserver.RedisOptions{}), prefixOf(t)
	leasetest.CheckLinearizable(t, func(t *testing.T) leasetest.Target {
		return open(t, server.URL(), prefix)
	}, leasetest.Concurrent{})
}

// ample is longer than anything takes that does not hang, on whatever machine.
const ample = 3 * time.Minute

// open opens a store until the test ends, on a server that has been up for long.
func open(tb testing.TB, url, prefix string) *redis.Store {
	tb.Helper()
	s := openFresh(tb, url, prefix)
	if err := s.Settle(context.Background()); err != nil {
		tb.Fatal(err)
	}
	return s
}

// openFresh opens a store until the test ends.
func openFresh(tb testing.TB, url, prefix string) *redis.Store {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), ample)
	defer cancel()
	s, err := redis.Open(ctx, redis.Config{URL: url, Prefix: prefix})
	if err != nil {
		tb.Fatalf("Open: %v", err)
	}
	tb.Cleanup(func() { _ = s.Close() })
	return s.(*redis.Store)
}

// prefixOf gives each test an empty store on a shared server.
func prefixOf(tb testing.TB) string {
	name := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, tb.Name())
	return name[:min(len(name), 60)] + ":" + lease.NewID()
}
