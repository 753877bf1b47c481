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

// tried tells make prove's table how many histories a test tries.
func tried(t *testing.T, n int) {
	t.Attr("tried", fmt.Sprintf("%d random histories in simulation", n))
}

// triedShare is tried for one of the shares of n seeds: every shares-th, beginning with that one.
func triedShare(t *testing.T, n, share, shares int) { tried(t, (n-share+shares-1)/shares) }

// runs is how many seeds a test tries: SIM_RUNS, or many for `make prove`, or few.
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
			triedShare(t, n, share, shares)
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

// tellingSeeds are where a run of a broken twin begins, by its name, when the seeds before do not
// show what is broken, or take long. Others begin at 0.
var tellingSeeds = map[string]uint64{
	"renewal stamped after the call": 57,
	"trust of T instead of T-I":      8,

	"a key goes on that waits for a person": 13,
	"an old term is accepted":               10,
	"… and the deposed sends on":            11,
	"what is under way can be cancelled":    6,
	"… and undoes the order":                102,

	"a pause does not end":                  4,
	"a pause is not seen":                   4,
	"a replay is a sign of life":            3,
	"a return is not seen":                  3,
	"alarms are raised twice":               3,
	"an alarm does not end":                 3,
	"beats are acknowledged and lost":       3,
	"beats between are overlooked":          2,
	"blind time counts":                     5,
	"groups are not reported":               3,
	"no time after blindness":               3,
	"nobody sweeps":                         3,
	"nothing is proven":                     3,
	"one is not told":                       3,
	"the base is forgotten":                 1,
	"the end comes first":                   2,
	"the end has another id":                3,
	"the path is trusted for ever":          3,
	"the router's path is proven by others": 3,
	"the sender's clock decides":            2,
	"what is judged is not looked at again": 3,

	"a late yes is counted":                        20,
	"a partition never ends":                       7,
	"a promise is believed for too long":           10,
	"a removed copy is taken again":                41,
	"an acknowledgement counts from when it comes": 15,
	"an older copy is taken":                       7,
	"failures are remembered for ever":             42,
}

// TestSimulationCatches proves the checks: each broken cluster is caught.
func TestSimulationCatches(t *testing.T) {
	const most = 200 // seeds
	for _, twin := range Twins() {
		t.Run(twin.Name, func(t *testing.T) {
			t.Parallel()
			for i := range uint64(most) {
				seed := tellingSeeds[twin.Name] + i
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
