package sim

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestShardSimulation runs shards from seeds. SIM_SHARD=n replays one seed up to
// twenty times and prints all that happened if it fails.
func TestShardSimulation(t *testing.T) {
	if s := os.Getenv("SIM_SHARD"); s != "" {
		seed, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatalf("SIM_SHARD=%q is not a number", s)
		}
		for range 20 {
			setup := DrawShard(seed)
			var trace []string
			setup.Trace = func(format string, args ...any) { trace = append(trace, fmt.Sprintf(format, args...)) }
			if r := RunShard(t, setup); len(r.Broken) > 0 {
				setup.Trace = nil
				t.Fatalf("%+v\n%s\n%s", setup, strings.Join(trace, "\n"), strings.Join(r.Broken, "\n"))
			}
		}
		return
	}
	first := uint64(time.Now().UnixNano()) / 1000
	if s := os.Getenv("SIM_FIRST"); s != "" {
		first, _ = strconv.ParseUint(s, 10, 64)
	}
	n := runs(t, 8, 4000)
	t.Logf("%d seeds from %d", n, first)
	const shares = 2
	for share := range shares {
		t.Run(fmt.Sprint("share ", share), func(t *testing.T) {
			t.Parallel()
			triedShare(t, n, share, shares)
			var sum ShardResult
			for i := share; i < n; i += shares {
				r := checkShard(t, first+uint64(i))
				sum.Writes, sum.Installs, sum.Slips, sum.Lost, sum.Blocked = sum.Writes+r.Writes, sum.Installs+r.Installs, sum.Slips+r.Slips, sum.Lost+r.Lost, sum.Blocked+r.Blocked
				sum.Settled = max(sum.Settled, r.Settled)
			}
			t.Logf("%+v", sum)
			if sum.Installs < n/shares {
				t.Errorf("%d primaries in %d runs: nothing happens", sum.Installs, n/shares)
			}
		})
	}
}

// TestShardSeeds replays the seeds that once failed, with why.
func TestShardSeeds(t *testing.T) {
	for _, seed := range seeds(t, "testdata/shard_seeds.txt") {
		checkShard(t, seed)
	}
}

// TestShardSimulationCatches proves the checks: each broken shard is caught, and for what it is.
func TestShardSimulationCatches(t *testing.T) {
	most := runs(t, 12, 600) // seeds
	for _, twin := range ShardTwins() {
		t.Run(twin.Name, func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(most) {
				s := DrawShard(twin.First + seed)
				if s.Twin = twin; twin.Need != nil {
					twin.Need(&s)
				}
				for _, broken := range RunShard(t, s).Broken {
					if strings.Contains(broken, twin.Caught) {
						line, _, _ := strings.Cut(broken, "\n")
						t.Logf("caught at seed %d: %s", s.Seed, line)
						return
					}
				}
			}
			if os.Getenv("UNDERSTUDY_PROVE") == "" {
				t.Skipf("not caught in %d seeds; make prove gives it more", most)
			}
			t.Errorf("not caught in %d seeds", most)
		})
	}
}

func checkShard(t *testing.T, seed uint64) ShardResult {
	t.Helper()
	setup := DrawShard(seed)
	var trace []string
	dir := os.Getenv("SIM_TRACES")
	if dir != "" {
		setup.Trace = func(format string, args ...any) { trace = append(trace, fmt.Sprintf(format, args...)) }
	}
	r := RunShard(t, setup)
	if len(r.Broken) > 0 {
		if dir != "" {
			_ = os.WriteFile(fmt.Sprintf("%s/%d", dir, seed), []byte(strings.Join(trace, "\n")), 0o600)
		}
		t.Errorf("seed %d (replay with SIM_SHARD=%d):\n  %s", seed, seed, strings.Join(r.Broken[:min(3, len(r.Broken))], "\n  "))
	}
	return r
}
