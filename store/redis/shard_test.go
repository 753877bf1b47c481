package redis_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/internal/testkit/realserver"
	"github.com/understudy-ha/understudy/shard/shardtest"
	"github.com/understudy-ha/understudy/store/redis"
)

func TestShardConformance(t *testing.T) {
	server := realserver.Redis(t, realserver.RedisOptions{})
	shardtest.TestRegistry(t, func(t *testing.T) shardtest.Subject { return shardSubject(t, server) })
}

// shardSubject is an empty store whose clock can be stepped.
func shardSubject(t *testing.T, server *realserver.RedisServer) shardtest.Subject {
	prefix := prefixOf(t)
	var skew atomic.Int64
	var subject func(t *testing.T) shardtest.Subject
	subject = func(t *testing.T) shardtest.Subject {
		s := open(t, server.URL(), prefix)
		s.SetSkew(func() time.Duration { return time.Duration(skew.Load()) })
		return shardtest.Subject{
			Registry: s.Registry(), Commands: s.Commands(), Leases: s, History: s, Open: subject,
			Advance: func(d time.Duration) { skew.Add(int64(d)); expireLocks(t, server, s, d) },
		}
	}
	return subject(t)
}

// expireLocks lets the server's own clock, by which locks expire, seem to have gone on.
func expireLocks(t *testing.T, server *realserver.RedisServer, s *redis.Store, d time.Duration) {
	t.Helper()
	script := `for _, key in ipairs(redis.call('KEYS', '*_FAILOVER')) do
		if string.sub(key, 1, #ARGV[1]) == ARGV[1] then
			redis.call('PEXPIRE', key, redis.call('PTTL', key) - ARGV[2])
		end
	end`
	if _, err := server.Do("EVAL", script, "0", s.Root(), fmt.Sprint(d.Milliseconds())); err != nil {
		t.Fatal(err)
	}
}
