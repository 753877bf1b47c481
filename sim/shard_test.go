package sim

import "testing"

var shards = histories[ShardResult]{
	few: 8, many: 4000,
	run: func(t *testing.T, seed uint64, trace func(string, ...any)) (ShardResult, []string) {
		s := DrawShard(seed)
		s.Trace = trace
		r := RunShard(t, s)
		return r, r.Broken
	},
	sum: func(all *ShardResult, r ShardResult) {
		all.Writes += r.Writes
		all.Installs += r.Installs
		all.Slips += r.Slips
		all.Lost += r.Lost
		all.Blocked += r.Blocked
		all.Settled = max(all.Settled, r.Settled)
	},
	idle: func(all ShardResult, runs int) bool { return all.Installs < runs },
}

// TestShardSimulation is TestSimulation for shards.
func TestShardSimulation(t *testing.T) { shards.explore(t) }

// TestShardSeeds replays the seeds that once failed, with why.
func TestShardSeeds(t *testing.T) { shards.again(t, "testdata/shard_seeds.txt") }

// TestShardSimulationCatches proves the checks: each broken shard is caught, and for what it is.
func TestShardSimulationCatches(t *testing.T) {
	for _, twin := range ShardTwins() {
		catches(t, twin.Name, twin.Caught, 12, 600, func(t *testing.T, seed uint64) []string {
			s := DrawShard(seed)
			if s.Twin = twin; twin.Need != nil {
				twin.Need(&s)
			}
			return RunShard(t, s).Broken
		})
	}
}

// TestShardSchedules runs what shards got wrong once, as schedules with a little chance in them.
func TestShardSchedules(t *testing.T) {
	for name, need := range map[string]func(*ShardSetup){"stranded": stranded, "rolled back": rolledBack, "rolled back among restarts": rolledBackAmongRestarts, "emptied": emptied, "set back": setBack, "dies twice": diesTwice, "hung unled": hungUnled,
		"hung paused": hungPaused} {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(runs(t, 3, 48)) {
				s := DrawShard(seed)
				need(&s)
				for _, broken := range RunShard(t, s).Broken {
					t.Errorf("seed %d: %s", seed, broken)
				}
			}
		})
	}
}
