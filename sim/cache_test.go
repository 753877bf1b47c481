package sim

import (
	"fmt"
	"testing"
)

var caches = histories[CacheResult]{
	few: 40, many: 30000,
	run: func(_ *testing.T, seed uint64, trace func(string, ...any)) (CacheResult, []string) {
		s := DrawCache(seed)
		s.Trace = trace
		r := RunCache(s)
		return r, r.Broken
	},
	sum: func(all *CacheResult, r CacheResult) {
		all.Gets += r.Gets
		all.Replies += r.Replies
		all.Fetches += r.Fetches
		all.Elections += r.Elections
		all.Removals += r.Removals
		all.Changes += r.Changes
		all.Apart += r.Apart
		all.Again += r.Again
		all.Busiest = max(all.Busiest, r.Busiest)
		if r.Settle.Seconds()*all.Within.Seconds() >= all.Settle.Seconds()*r.Within.Seconds() {
			all.Settle, all.Within = r.Settle, r.Within // what came nearest to its time
		}
	},
	idle: func(all CacheResult, runs int) bool {
		return all.Replies < 5*runs || all.Fetches < 2*runs || runs > 100 && all.Removals*all.Changes == 0
	},
}

// TestCacheSimulation is TestSimulation for the cache. A seed does the same each time.
func TestCacheSimulation(t *testing.T) { caches.explore(t) }

// TestCacheSeeds replays the seeds of the cache that once failed.
func TestCacheSeeds(t *testing.T) { caches.again(t, "testdata/cache_seeds.txt") }

// TestCacheSimulationRepeats proves that a seed can be replayed.
func TestCacheSimulationRepeats(t *testing.T) {
	for seed := range uint64(runs(t, 4, 40)) {
		trace := func() (lines []string) {
			s := DrawCache(seed)
			s.Trace = func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
			RunCache(s)
			return lines
		}
		first, second := trace(), trace()
		for i := range min(len(first), len(second)) {
			if first[i] != second[i] {
				t.Fatalf("seed %d does not do the same twice; line %d:\n%s\n%s", seed, i, first[i], second[i])
			}
		}
		if len(first) != len(second) {
			t.Fatalf("seed %d does not do the same twice: %d and %d lines", seed, len(first), len(second))
		}
	}
}

// TestCacheSimulationCatches proves the checks: each broken cluster is caught, and
// for what it is.
func TestCacheSimulationCatches(t *testing.T) {
	for _, twin := range CacheTwins() {
		catches(t, twin.Name, twin.Caught, 60, 1000, func(_ *testing.T, seed uint64) []string {
			s := DrawCache(seed)
			if s.Twin = twin; twin.Need != nil {
				twin.Need(&s)
			}
			return RunCache(s).Broken
		})
	}
}
