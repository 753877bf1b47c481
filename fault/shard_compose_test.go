//go:build linux

package fault_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/fault"
)

// TestFaultShardComposed has faults overlap that a seed draws: cuts between any two of store, agents and nodes, kills,
// pauses, hosts that go back to a snapshot, a store that comes back empty. The judge knows every write that was
// acknowledged.
func TestFaultShardComposed(t *testing.T) {
	t.Parallel()
	programs := fault.Build(t)
	// A part has half an hour, also on a machine that takes four times as long as one that is idle.
	parts, seeds := uint64(2), uint64(10)
	if prove {
		parts, seeds = 10, 100
	}
	for part := range parts {
		t.Run(fmt.Sprintf("part %d", part+1), func(t *testing.T) {
			t.Parallel()
			first := givenSeed()
			n := fault.InNetwork(t, storeAt)
			if n == nil {
				return
			}
			s := fault.NewShard(t, fault.ShardConfig{Programs: programs, Database: fault.RedisIn(t, n, storeAt), Network: n, Seed: first})
			did := map[string]int{}
			for seed := first + part*seeds; seed < first+(part+1)*seeds && !t.Failed(); seed++ {
				s.Settled()
				s.Forgive()
				load := &fault.ShardLoad{Shard: s, Number: seed}
				load.Start()
				chaos := fault.ShardChaos{Shard: s, Load: load, Seed: seed}
				began := time.Now()
				steps, excused := chaos.Compose(storeAt)
				evidence := load.Stop(s.Settled())
				evidence.Excused = excused
				t.Logf("UNDERSTUDY_SEED=%d, %v: %q", seed, time.Since(began).Round(time.Millisecond), steps)
				judgedEvidence(t, evidence)
				did["compositions"]++
				did["faults of compositions"] += len(steps)
			}
			tried(t, did)
		})
	}
}
