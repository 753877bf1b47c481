package sim

import (
	"bufio"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// runs is how many seeds a test tries: SIM_RUNS, or many for `make prove`, or few.
// tried tells make prove's table how many histories a test tries.
func tried(t *testing.T, n int) {
	t.Attr("tried", fmt.Sprintf("%d random histories in simulation", n))
}

func runs(t *testing.T, few, many int) int {
	if s := os.Getenv("SIM_RUNS"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil {
			t.Fatalf("SIM_RUNS=%q is not a number", s)
		}
		return n
	}
	if os.Getenv("UNDERSTUDY_PROVE") == "1" {
		return many
	}
	return few
}

// TestSimulation runs clusters from seeds. SIM_SEED=n replays one seed up to
// twenty times, because goroutines that are ready at once run in any order, and
// prints all that happened if it fails.
func TestSimulation(t *testing.T) {
	if s := os.Getenv("SIM_SEED"); s != "" {
		seed, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatalf("SIM_SEED=%q is not a number", s)
		}
		for range 20 {
			setup := Draw(seed)
			var trace []string
			setup.Trace = func(format string, args ...any) { trace = append(trace, fmt.Sprintf(format, args...)) }
			if r := Run(t, setup); len(r.Broken) > 0 {
				setup.Trace = nil
				t.Fatalf("%+v\n%s\n%s", setup, strings.Join(trace, "\n"), strings.Join(r.Broken, "\n"))
			}
		}
		return
	}
	first := uint64(time.Now().UnixNano()) / 1000
	n := runs(t, 200, 20000)
	t.Logf("%d seeds from %d", n, first)
	const shares = 4
	for share := range shares {
		t.Run(fmt.Sprint("share ", share), func(t *testing.T) {
			t.Parallel()
			tried(t, (n-share+shares-1)/shares)
			var longest, grants = 0.0, 0
			for i := share; i < n; i += shares {
				r := check(t, first+uint64(i))
				longest = max(longest, r.Vacant.Seconds()/Draw(first+uint64(i)).Timing.Timeout.Seconds())
				grants += r.Grants
			}
			t.Logf("%d terms; a primary at most %.2f T after the last fault", grants, longest)
			if grants < n/shares {
				t.Errorf("%d terms in %d runs: nothing happens", grants, n/shares)
			}
		})
	}
}

// TestSeeds replays the seeds that once failed, with why.
func TestSeeds(t *testing.T) {
	for _, seed := range seeds(t, "testdata/seeds.txt") {
		check(t, seed)
	}
}

func seeds(t *testing.T, path string) (all []uint64) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		line, _, _ := strings.Cut(lines.Text(), "#")
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		seed, err := strconv.ParseUint(line, 10, 64)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		all = append(all, seed)
	}
	return all
}

func check(t *testing.T, seed uint64) Result {
	t.Helper()
	r := Run(t, Draw(seed))
	if len(r.Broken) > 0 {
		t.Errorf("seed %d (replay with SIM_SEED=%d):\n  %s", seed, seed, strings.Join(r.Broken[:min(5, len(r.Broken))], "\n  "))
	}
	return r
}

// TestSimulationCatches proves the checks: each broken cluster is caught.
func TestSimulationCatches(t *testing.T) {
	const most = 200 // seeds
	for _, twin := range Twins() {
		t.Run(twin.Name, func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(most) {
				s := Draw(seed)
				if s.Twin = twin; twin.Need != nil {
					twin.Need(&s)
				}
				if r := Run(t, s); len(r.Broken) > 0 {
					t.Logf("caught at seed %d: %s", seed, slices.Min(r.Broken))
					return
				}
			}
			t.Errorf("not caught in %d seeds", most)
		})
	}
}
