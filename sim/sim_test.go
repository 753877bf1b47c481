package sim

import "testing"

// clusterSum is what runs of clusters came to.
type clusterSum struct {
	Terms  int
	Vacant float64 // the longest time without a primary after the last fault, in T
}

var clusters = histories[clusterSum]{
	few: 80, many: 20000,
	run: func(t *testing.T, seed uint64, trace func(string, ...any)) (clusterSum, []string) {
		s := Draw(seed)
		s.Trace = trace
		r := Run(t, s)
		return clusterSum{r.Grants, r.Vacant.Seconds() / s.Timing.Timeout.Seconds()}, r.Broken
	},
	sum: func(all *clusterSum, r clusterSum) {
		all.Terms, all.Vacant = all.Terms+r.Terms, max(all.Vacant, r.Vacant)
	},
	idle: func(all clusterSum, runs int) bool { return all.Terms < runs },
}

func TestSimulation(t *testing.T) { clusters.explore(t) }

// TestSeeds replays the seeds that once failed, with why.
func TestSeeds(t *testing.T) { clusters.again(t, "testdata/seeds.txt") }

// TestSimulationCatches proves the checks: each broken cluster is caught.
func TestSimulationCatches(t *testing.T) {
	for _, twin := range Twins() {
		catches(t, twin.Name, twin.Caught, 200, 200, func(t *testing.T, seed uint64) []string {
			s := Draw(seed)
			if s.Twin = twin; twin.Need != nil {
				twin.Need(&s)
			}
			return Run(t, s).Broken
		})
	}
}
