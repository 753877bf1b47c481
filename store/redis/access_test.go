package redis_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/access/accesstest"
	"github.com/understudy-ha/understudy/internal/testkit/realserver"
)

func TestAccess(t *testing.T) {
	server := realserver.Redis(t, realserver.RedisOptions{})
	accesstest.TestTokens(t, func(t *testing.T) accesstest.Subject {
		prefix := prefixOf(t)
		var skew atomic.Int64
		clock := func() time.Duration { return time.Duration(skew.Load()) }
		one, other := open(t, server.URL(), prefix), open(t, server.URL(), prefix)
		one.SetSkew(clock)
		other.SetSkew(clock)
		return accesstest.Subject{
			Tokens: one.Tokens(), Other: other.Tokens(), History: one,
			Advance: func(d time.Duration) { skew.Add(int64(d)) },
		}
	})
}
