package postgres_test

import (
	"testing"
	"time"

	"github.com/understudy-ha/understudy/shard/shardtest"
)

func TestShardConformance(t *testing.T) {
	ways(t, func(t *testing.T, empty func(*testing.T) freshStore) {
		shardtest.TestRegistry(t, func(t *testing.T) shardtest.Subject { return shardSubject(t, empty(t)) })
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
