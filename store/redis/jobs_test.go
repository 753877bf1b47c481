package redis_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/internal/testkit/realserver"
	"github.com/understudy-ha/understudy/job/jobtest"
)

func TestJobs(t *testing.T) {
	server := realserver.Redis(t, realserver.RedisOptions{})
	jobtest.TestStore(t, func(t *testing.T) jobtest.Subject {
		var skew atomic.Int64
		prefix := prefixOf(t)
		first, second := open(t, server.URL(), prefix), open(t, server.URL(), prefix)
		first.SetSkew(func() time.Duration { return time.Duration(skew.Load()) })
		second.SetSkew(func() time.Duration { return time.Duration(skew.Load()) })
		return jobtest.Subject{Jobs: first.Jobs(), Other: second.Jobs(), History: first, Advance: func(d time.Duration) { skew.Add(int64(d)) }}
	})
}
