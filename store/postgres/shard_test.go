package postgres_test

import (
	"testing"
	"time"

	"github.com/understudy-ha/understudy/internal/testkit/realserver"
	"github.com/understudy-ha/understudy/shard/shardtest"
)

// TestShardConformance runs topics side by side, each in a database that no other uses meanwhile.
func TestShardConformance(t *testing.T) {
	server := realserver.Postgres(t, realserver.PostgresOptions{})
	const lanes = 3
	free := make(chan *fresh, lanes)
	for range lanes {
		free <- newFresh(t, server)
	}
	waysTo(t, server, func(t *testing.T, way func(string) string) {
		shardtest.TestRegistry(t, func(t *testing.T) shardtest.Subject {
			t.Parallel()
			f := <-free
			t.Cleanup(func() { free <- f }) // after its stores are closed
			return shardSubject(t, f.empty(t, way))
		})
	})
}

// shardSubject is an empty store in a database of its own, whose clock can be stepped.
func shardSubject(t *testing.T, d freshStore) shardtest.Subject {
	s := d.open(t)
	return shardtest.Subject{
		Registry: s.Registry(), Commands: s.Commands(), Leases: s, History: s,
		Open:    func(t *testing.T) shardtest.Subject { return shardSubject(t, d) },
		Advance: func(by time.Duration) { d.step(t, by) },
	}
}
