//go:build linux

package fault_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/fault"
	"github.com/understudy-ha/understudy/internal/testkit/realserver"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/shard"
)

// judgedShard ends the load, judges it, and returns the verdict.
func judgedShard(t *testing.T, s *fault.Shard, load *fault.ShardLoad) fault.ShardVerdict {
	t.Helper()
	return judgedEvidence(t, load.Stop(s.Settled()))
}

// judgedEvidence reports what the judge finds in the evidence.
func judgedEvidence(t *testing.T, e fault.ShardEvidence) fault.ShardVerdict {
	t.Helper()
	v := fault.JudgeShard(e)
	t.Logf("%d writes under %d lineages, %d lost with their primary, %d slipped, longest time without: %v", v.Writes, v.Lineages, v.Lost, v.Slipped, v.Gap)
	for i, violation := range v.Violations {
		if i == 10 {
			t.Errorf("and %d more", len(v.Violations)-10)
			break
		}
		t.Errorf("VIOLATION %s", violation)
	}
	return v
}

// TestFaultShardChaos makes one random fault after the other. The judge knows every write that was
// acknowledged.
func TestFaultShardChaos(t *testing.T) {
	t.Parallel()
	programs := fault.Build(t)
	seed := givenSeed()
	faults, stores := 4, []string{"redis", "sqlite"}
	if prove {
		faults, stores = 200, append(stores, "postgres")
	}
	for _, store := range stores {
		t.Run(store, func(t *testing.T) {
			t.Parallel()
			t.Logf("UNDERSTUDY_SEED=%d", seed)
			s := fault.NewShard(t, fault.ShardConfig{Programs: programs, Database: database(t, store), Seed: seed,
				Timing: lease.Timing{Interval: 400 * time.Millisecond, Timeout: 3 * time.Second}})
			load := &fault.ShardLoad{Shard: s}
			load.Start()
			chaos := fault.ShardChaos{Shard: s, Load: load, Seed: seed, Faults: faults}
			did := chaos.Run()
			t.Logf("did %v", did)
			tried(t, did)
			judgedShard(t, s, load)
		})
	}
}

// TestFaultShardCatches does behind the agents' backs what they are there to prevent. The judge must
// see it in what real nodes acknowledged.
func TestFaultShardCatches(t *testing.T) {
	t.Parallel()
	s := fault.NewShard(t, fault.ShardConfig{Programs: fault.Build(t), Database: fault.SQLite(t)})
	load := &fault.ShardLoad{Shard: s}
	load.Start()
	p := s.Primary()
	enough := func(n *fault.ShardNode) {
		t.Helper()
		from := now()
		realserver.Eventually(t, time.Minute, "writes to "+n.Name, func() error {
			if got := len(load.Writes(n, from)); got < 20 {
				return fmt.Errorf("%d so far", got)
			}
			return nil
		})
	}
	enough(p)
	for _, n := range s.Nodes {
		n.KillAgent()
	}
	other := s.Replicas()[0]
	other.Must("REPLICAOF", "NO", "ONE")
	other.Must("CONFIG", "SET", "min-replicas-to-write", "0")
	enough(other)
	enough(p) // two primaries at once
	p.Must("FLUSHALL")
	evidence := load.Stop(p)
	second := ""
	for _, w := range evidence.Writes {
		if w.Node == other.Addr {
			second = w.Lineage
		}
	}
	broken := func(e fault.ShardEvidence) map[fault.Rule]int {
		count := map[fault.Rule]int{}
		for _, v := range fault.JudgeShard(e).Violations {
			count[v.Rule]++
		}
		return count
	}
	if got := broken(evidence); got[fault.Stranger] < 20 || got[fault.Dropped] < 20 {
		t.Errorf("the judge sees %v", got)
	}
	// As if an agent had opened it while the old one went on.
	evidence.Lineages = append(evidence.Lineages, shard.Lineage{ID: second})
	if got := broken(evidence); got[fault.Late] < 10 {
		t.Errorf("of two primaries, the judge sees %v", got)
	}
}

// TestJudgeShard shows the judge what breaks its rules, and what does not.
func TestJudgeShard(t *testing.T) {
	t.Parallel()
	lineages := []shard.Lineage{{ID: "a", End: 100}, {ID: "b"}}
	write := func(key, node, lineage string, sent, acked time.Duration, txn int64) fault.ShardWrite {
		return fault.ShardWrite{Key: key, Node: node, Lineage: lineage, Sent: sent, Acked: acked, Txn: txn}
	}
	first, second := write("1", "x", "a", 1, 2, 90), write("2", "y", "b", 10, 11, 110)
	for _, test := range []struct {
		name   string
		extra  fault.ShardWrite
		has    bool
		hang   []fault.Hang
		broken fault.Rule
	}{
		{name: "nothing", extra: write("3", "y", "b", 12, 13, 120), has: true},
		{name: "old primary writes after the new one", extra: write("3", "x", "a", 12, 13, 0), broken: fault.Late},
		{name: "at the same time, nobody can tell", extra: write("3", "x", "a", 10, 12, 0)},
		{name: "hung, and accepted when it went on", extra: write("3", "x", "a", 5, 20, 0), hang: []fault.Hang{{Node: "x", From: 4, To: 15}}, broken: fault.Late},
		{name: "answered while it was thought to hang", extra: write("3", "x", "a", 5, 9, 0), hang: []fault.Hang{{Node: "x", From: 4, To: 15}}},
		{name: "of no lineage", extra: write("3", "z", "c", 5, 6, 50), has: true, broken: fault.Stranger},
		{name: "the next one had it, and it is lost", extra: write("3", "x", "a", 3, 4, 95), broken: fault.Dropped},
		{name: "the present one had it, and it is lost", extra: write("3", "y", "b", 12, 13, 120), broken: fault.Dropped},
		{name: "nobody had it", extra: write("3", "x", "a", 3, 4, 101)},
		{name: "all had it", extra: fault.ShardWrite{Key: "3", Node: "x", Lineage: "a", Sent: 3, Acked: 4, Copies: 2}, broken: fault.Copied},
	} {
		e := fault.ShardEvidence{Writes: []fault.ShardWrite{first, second, test.extra}, Lineages: lineages, Hangs: test.hang, Others: 2,
			Final: map[string]bool{"1": true, "2": true, "3": test.has}}
		v := fault.JudgeShard(e)
		switch {
		case test.broken == "" && len(v.Violations) > 0:
			t.Errorf("%s: %v", test.name, v.Violations)
		case test.broken != "" && (len(v.Violations) != 1 || v.Violations[0].Rule != test.broken):
			t.Errorf("%s: %v, want %s", test.name, v.Violations, test.broken)
		}
	}
}
