//go:build linux

package fault

import (
	"math/rand/v2"
	"testing"
	"time"
)

// unhurt is a server to which nothing happens.
type unhurt struct{}

func (unhurt) Stop()                          {}
func (unhurt) Kill()                          {}
func (unhurt) Start(testing.TB)               {}
func (unhurt) Pause()                         {}
func (unhurt) Resume()                        {}
func (unhurt) Step(testing.TB, time.Duration) {}

// TestChaosCountsOnce: the table of what was tried has each fault once, and none that did not happen.
func TestChaosCountsOnce(t *testing.T) {
	random, database := rand.New(rand.NewPCG(1, 1)), Database{Server: unhurt{}}
	const strikes = 30
	monitor := &MonitorChaos{Beater: &Beater{Monitors: &Monitors{MonitorsConfig: MonitorsConfig{Database: database}}}, disturber: disturber{random: random}, count: map[string]int{}}
	queue := &QueueChaos{Fleet: &Fleet{tb: t, FleetConfig: FleetConfig{Database: database}}, For: time.Hour, disturber: disturber{random: random}, count: map[string]int{}}
	for range strikes {
		monitor.count[monitor.hurt(t)]++
		queue.count[queue.hurt()]++
	}
	for part, count := range map[string]map[string]int{"monitor": monitor.count, "queue": queue.count} {
		sum := 0
		for _, n := range count {
			sum += n
		}
		if sum != strikes {
			t.Errorf("%s: %d strikes at the server count as %v", part, strikes, count)
		}
	}

	shard := &ShardChaos{Shard: &Shard{tb: t, ShardConfig: ShardConfig{Programs: Programs{Understudy: "/nowhere/understudy"}}}, did: "switchover"}
	if shard.switchover(nil, &ShardNode{}); shard.did != "" {
		t.Errorf("a switchover that was refused counts as %q", shard.did)
	}
	cache := &CacheChaos{Peers: &Peers{}, disturber: disturber{random: random}}
	for range 100 {
		if what, _ := cache.killMany(random); what != "" {
			t.Fatalf("the death of nobody counts as %q", what)
		}
	}
}
