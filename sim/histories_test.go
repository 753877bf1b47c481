package sim

import (
	"bufio"
	"cmp"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// histories are the runs of one simulation, each from a seed. R is what one run, or all of a share, came to.
//
//	SIM_SEED=n      replays one seed up to twenty times, because goroutines that are ready at once run in any
//	                order, and prints all that happened if it fails
//	SIM_RUNS=n      tries so many seeds
//	SIM_FIRST=n     beginning with this one, instead of one by the clock
//	SIM_TRACES=dir  leaves a file there of each that fails, by its seed
type histories[R any] struct {
	// run is the history of a seed: what it came to, and the promises that were broken. trace is told what
	// happens; nil for nobody.
	run func(t *testing.T, seed uint64, trace func(format string, args ...any)) (R, []string)
	// few seeds are tried by make test, many by make prove.
	few, many int
	sum       func(all *R, r R)
	// idle tells that next to nothing happened in so many runs.
	idle func(all R, runs int) bool
}

// explore tries seeds that nobody has tried, or replays SIM_SEED.
func (h histories[R]) explore(t *testing.T) {
	if _, ok := os.LookupEnv("SIM_SEED"); ok {
		h.replay(t, number(t, "SIM_SEED", 0))
		return
	}
	first, n := number(t, "SIM_FIRST", uint64(time.Now().UnixNano())/1000), runs(t, h.few, h.many)
	t.Logf("%d seeds from %d", n, first)
	shares := min(4, n)
	if testing.Short() {
		shares = 1 // a quarter of the histories
	}
	var mu sync.Mutex
	var all R
	for share := range shares {
		t.Run(fmt.Sprint("share ", share), func(t *testing.T) {
			t.Parallel()
			mine := (n - share + shares - 1) / shares
			tried(t, mine)
			var sum R
			for i := range mine {
				h.sum(&sum, h.check(t, first+uint64(i*shares+share)))
			}
			t.Logf("%+v", sum)
			mu.Lock()
			defer mu.Unlock()
			h.sum(&all, sum)
		})
	}
	t.Cleanup(func() { // when all shares have ended: in a small one little may happen by chance
		if h.idle(all, n) {
			t.Errorf("nothing happens: %+v", all)
		}
	})
}

func (h histories[R]) replay(t *testing.T, seed uint64) {
	for range 20 {
		var trace []string
		_, broken := h.run(t, seed, func(format string, args ...any) { trace = append(trace, fmt.Sprintf(format, args...)) })
		if len(broken) > 0 {
			t.Fatalf("seed %d\n%s\n%s", seed, strings.Join(trace, "\n"), strings.Join(broken, "\n"))
		}
	}
}

// check runs the history of a seed, in which no promise may be broken.
func (h histories[R]) check(t *testing.T, seed uint64) R {
	t.Helper()
	var lines []string
	var trace func(string, ...any)
	dir := os.Getenv("SIM_TRACES")
	if dir != "" {
		trace = func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	}
	// One in which something tries again without a pause never ends: its time does not pass.
	stuck := time.AfterFunc(10*time.Minute, func() { panic(fmt.Sprintf("seed %d does not end (replay with SIM_SEED=%d)", seed, seed)) })
	r, broken := h.run(t, seed, trace)
	if stuck.Stop(); len(broken) == 0 {
		return r
	}
	t.Errorf("seed %d (replay with SIM_SEED=%d):\n  %s", seed, seed, strings.Join(broken[:min(5, len(broken))], "\n  "))
	if dir != "" {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprint(seed)), []byte(strings.Join(lines, "\n")), 0o600); err != nil {
			t.Error(err)
		}
	}
	return r
}

// again replays the seeds of a file that once failed: make prove all of them, make test some that it draws, if there are many.
func (h histories[R]) again(t *testing.T, path string) {
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var seeds []uint64
	for lines := bufio.NewScanner(f); lines.Scan(); {
		line, _, _ := strings.Cut(lines.Text(), "#")
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		seed, err := strconv.ParseUint(line, 10, 64)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		seeds = append(seeds, seed)
	}
	rand.Shuffle(len(seeds), func(i, j int) { seeds[i], seeds[j] = seeds[j], seeds[i] })
	for _, seed := range seeds[:min(len(seeds), runs(t, 10, len(seeds)))] {
		h.check(t, seed)
	}
}

// catches runs a broken twin from seeds, beginning with the telling one, until a promise is broken whose words have
// want in them. What is not caught by few seeds is left to make prove, which tries many.
func catches(t *testing.T, name, want string, few, many int, broken func(t *testing.T, seed uint64) []string) {
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		most := runs(t, few, many)
		for i := range uint64(most) {
			seed := tellingSeeds[name] + i
			for _, b := range broken(t, seed) {
				if strings.Contains(b, want) {
					line, _, _ := strings.Cut(b, "\n")
					t.Logf("caught at seed %d: %s", seed, line)
					return
				}
			}
		}
		if most < many {
			t.Skipf("not caught in %d seeds; make prove tries %d", most, many)
		}
		t.Errorf("not caught in %d seeds", most)
	})
}

// tellingSeeds are where a run of a broken twin starts, by its name, when the seeds before do not
// show what is broken, or take long. Others begin at 0.
var tellingSeeds = map[string]uint64{
	"renewal stamped after the call": 57,
	"trust of T instead of T-I":      8,

	"a removal reaches no further than clocks may be off": 74,

	"a key goes on that waits for a person": 13,
	"an old term is accepted":               10,
	"… and the deposed sends on":            11,
	"what is under way can be cancelled":    88,
	"… and undoes the order":                102,

	"a lost run is started again": 22,

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
	"a promise is believed for too long":           50,
	"a removal is confirmed before it is stored":   26,
	"a removed copy is taken again":                152,
	"an acknowledgement counts from when it comes": 60,
	"an older copy is taken":                       7,
	"failures are remembered for ever":             87,
	"no abstention after a restart":                242,
	"removals are forgotten at a restart":          1360,

	"a switchover does not wait for the last writes": 14,
	"one signal is enough":                           101,
	"the fence is not closed":                        83,
	"only some promise":                              15,
}

// tried tells make prove's table how many histories a test tries.
func tried(t *testing.T, n int) {
	t.Attr("tried", fmt.Sprintf("%d random histories in simulation", n))
}

// runs is how many seeds a test tries: SIM_RUNS, or many for `make prove`, or few.
func runs(t *testing.T, few, many int) int {
	t.Helper()
	if os.Getenv("UNDERSTUDY_PROVE") == "1" {
		few = many
	}
	if testing.Short() {
		few = max(1, few/4)
	}
	return int(number(t, "SIM_RUNS", uint64(few)))
}

// number is what a variable of the environment says, or otherwise.
func number(t *testing.T, name string, otherwise uint64) uint64 {
	t.Helper()
	n, err := strconv.ParseUint(cmp.Or(os.Getenv(name), fmt.Sprint(otherwise)), 10, 63)
	if err != nil {
		t.Fatalf("%s=%q is not a number", name, os.Getenv(name))
	}
	return n
}
