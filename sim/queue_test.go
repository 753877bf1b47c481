package sim

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestQueueSimulation is TestSimulation for queues.
func TestQueueSimulation(t *testing.T) {
	if s := os.Getenv("SIM_SEED"); s != "" {
		seed, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatalf("SIM_SEED=%q is not a number", s)
		}
		for range 20 {
			setup := DrawQueue(seed)
			var trace []string
			setup.Trace = func(format string, args ...any) { trace = append(trace, fmt.Sprintf(format, args...)) }
			if r := RunQueue(t, setup); len(r.Broken) > 0 {
				setup.Trace = nil
				t.Fatalf("%+v\n%s\n%s", setup, strings.Join(trace, "\n"), strings.Join(r.Broken, "\n"))
			}
		}
		return
	}
	first := uint64(time.Now().UnixNano()) / 1000
	n := runs(t, 60, 10000)
	t.Logf("%d seeds from %d", n, first)
	const shares = 4
	for share := range shares {
		t.Run(fmt.Sprint("share ", share), func(t *testing.T) {
			t.Parallel()
			triedShare(t, n, share, shares)
			var sum QueueResult
			for i := share; i < n; i += shares {
				r := checkQueue(t, first+uint64(i))
				sum.Batches += r.Batches
				sum.Submitted += r.Submitted
				sum.Asked += r.Asked
				sum.TakenOver += r.TakenOver
				sum.Blocked += r.Blocked
				sum.Apart += r.Apart
				sum.Settle = max(sum.Settle, r.Settle)
			}
			t.Logf("%+v", sum)
			if each := n / shares; sum.Batches < 5*each || sum.Submitted < sum.Batches/2 || each > 10 && sum.TakenOver*sum.Asked*sum.Blocked == 0 {
				t.Error("nothing happens")
			}
		})
	}
}

func checkQueue(t *testing.T, seed uint64) QueueResult {
	t.Helper()
	r := RunQueue(t, DrawQueue(seed))
	if len(r.Broken) > 0 {
		t.Errorf("seed %d (replay with SIM_SEED=%d):\n  %s", seed, seed, strings.Join(r.Broken[:min(5, len(r.Broken))], "\n  "))
	}
	return r
}

// TestQueueSeeds replays the seeds that once failed, with why.
func TestQueueSeeds(t *testing.T) {
	for _, seed := range seeds(t, "testdata/queue_seeds.txt") {
		checkQueue(t, seed)
	}
}

// TestQueueSimulationCatches proves the checks: each broken queue is caught, and
// for what it is.
func TestQueueSimulationCatches(t *testing.T) {
	most := runs(t, 30, 300) // seeds; what is not caught by so few is left to `make prove`
	for _, twin := range QueueTwins() {
		t.Run(twin.Name, func(t *testing.T) {
			t.Parallel()
			for i := range uint64(most) {
				seed := tellingSeeds[twin.Name] + i
				s := DrawQueue(seed)
				if s.Twin = twin; twin.Need != nil {
					twin.Need(&s)
				}
				for _, broken := range RunQueue(t, s).Broken {
					if strings.Contains(broken, twin.Caught) {
						t.Logf("caught at seed %d: %s", seed, broken)
						return
					}
				}
			}
			if most < 300 {
				t.Skipf("not caught in %d seeds; make prove tries 300", most)
			}
			t.Errorf("not caught in %d seeds", most)
		})
	}
}
