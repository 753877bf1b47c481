package redis_test

import (
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/internal/testkit/realserver"
	"github.com/understudy-ha/understudy/internal/testkit/sableplain"
	"github.com/understudy-ha/understudy/lease/leasetest"
	"github.com/understudy-ha/understudy/shard/shardtest"
	"github.com/understudy-ha/understudy/store"
	"github.com/understudy-ha/understudy/store/redis"
)

// sable is a stand-in with its server. It fails the test if anything was asked of it
// that a SableDB does not have.
type sable struct {
	*sableplain.Server
	real *realserver.RedisServer
}

func startSable(t *testing.T) sable {
	t.Helper()
	s := sable{real: realserver.Redis(t, realserver.RedisOptions{})}
	var err error
	if s.Server, err = sableplain.Start(s.real.Addr); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.Close()
		for _, r := range s.Refused() {
			t.Errorf("SableDB would have refused %s", r)
		}
	})
	return s
}

func (s sable) url(prefix string) string {
	return "redis://" + s.Addr() + "/0?scripts=off&prefix=" + prefix
}

// open opens a store on a server that has been up for long.
func (s sable) open(t *testing.T, prefix string) store.Store {
	t.Helper()
	out := s.openFresh(t, prefix)
	realserver.Eventually(t, time.Minute, "the server counts as one that has been up for long", func() error {
		_, err := s.real.Do("DEL", "{"+prefix+"}:lost")
		return err
	})
	return out
}

func (s sable) openFresh(t *testing.T, prefix string) (out store.Store) {
	t.Helper()
	realserver.Eventually(t, time.Minute, "the store opens", func() (err error) {
		out, err = redis.Open(t.Context(), redis.Config{URL: s.url(prefix)})
		return err
	})
	t.Cleanup(func() { _ = out.Close() })
	return out
}

// step moves the server's clock as far as the store can see it: every key that
// expires does so that much earlier, or later.
func (s sable) step(t *testing.T, prefix string, d time.Duration) {
	t.Helper()
	script := `for _, key in ipairs(redis.call('KEYS', '*')) do
		local left = redis.call('PTTL', key)
		if string.sub(key, 1, #ARGV[1]) == ARGV[1] and left >= 0 then redis.call('PEXPIRE', key, left - ARGV[2]) end
	end
	return 'OK'`
	if _, err := s.real.Do("EVAL", script, "0", "{"+prefix+"}:", fmt.Sprint(d.Milliseconds())); err != nil {
		t.Fatal(err)
	}
}

func TestPlainConformance(t *testing.T) {
	s := startSable(t)
	leasetest.Run(t, func(t *testing.T) *leasetest.Harness {
		prefix := prefixOf(t)
		return &leasetest.Harness{
			Open: func(t *testing.T) store.Store { return s.open(t, prefix) },
			Step: func(t *testing.T, d time.Duration) { s.step(t, prefix, d) },
		}
	})
	for _, used := range []string{"WATCH", "MULTI", "EXEC", "SET", "EXPIRE", "TTL"} {
		if s.Served()[used] == 0 {
			t.Errorf("%s was never used: has the stand-in been asked at all?", used)
		}
	}
}

// Over a slow line much happens between what a client looks at and what it does.
func TestPlainLinearizable(t *testing.T) {
	for name, slowest := range map[string]time.Duration{"as it is": 0, "over a slow line": 300 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, prefix := startSable(t), prefixOf(t)
			s.open(t, prefix) // from here on the server has been up for long
			open := func(t *testing.T) leasetest.Target { return s.openFresh(t, prefix) }
			if slowest > 0 {
				s.Before(func(args []string) {
					if (args[0] == "WATCH" || args[0] == "MULTI") && rand.IntN(3) == 0 {
						<-time.After(rand.N(slowest))
					}
				})
			}
			leasetest.CheckLinearizable(t, open, leasetest.Concurrent{Worlds: 12, Timeout: 5 * time.Second, Length: 11 * time.Second})
		})
	}
}

func TestPlainShardConformance(t *testing.T) {
	t.Parallel()
	s := startSable(t)
	shardtest.TestRegistry(t, func(t *testing.T) shardtest.Subject {
		t.Parallel() // some topics wait
		return s.subject(t, prefixOf(t), &atomic.Int64{})
	})
}

// subject is an empty store whose clock can be stepped, and with it those of its
// clients.
func (s sable) subject(t *testing.T, prefix string, skew *atomic.Int64) shardtest.Subject {
	own := s.open(t, prefix)
	redis.SetPlainSkew(own, func() time.Duration { return time.Duration(skew.Load()) })
	shards := own.(store.Shards)
	return shardtest.Subject{
		Registry: shards.Registry(), Commands: shards.Commands(), Leases: own, History: own, Grain: time.Second,
		Advance: func(d time.Duration) { skew.Add(int64(d)); s.step(t, prefix, d) },
		Open:    func(t *testing.T) shardtest.Subject { return s.subject(t, prefix, skew) },
	}
}
