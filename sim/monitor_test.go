package sim

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestMonitorSimulation is TestSimulation for monitors.
func TestMonitorSimulation(t *testing.T) {
	if s := os.Getenv("SIM_SEED"); s != "" {
		seed, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatalf("SIM_SEED=%q is not a number", s)
		}
		for range 20 {
			setup := DrawMonitor(seed)
			var trace []string
			setup.Trace = func(format string, args ...any) { trace = append(trace, fmt.Sprintf(format, args...)) }
			if r := RunMonitor(t, setup); len(r.Broken) > 0 {
				setup.Trace = nil
				t.Fatalf("%+v\n%s\n%s", setup, strings.Join(trace, "\n"), strings.Join(r.Broken, "\n"))
			}
		}
		return
	}
	first := uint64(time.Now().UnixNano()) / 1000
	n := runs(t, 12, 8000)
	t.Logf("%d seeds from %d", n, first)
	const shares = 4
	for share := range shares {
		t.Run(fmt.Sprint("share ", share), func(t *testing.T) {
			t.Parallel()
			triedShare(t, n, share, shares)
			var sum MonitorResult
			for i := share; i < n; i += shares {
				r := checkMonitor(t, first+uint64(i))
				sum.Beats += r.Beats
				sum.Onsets += r.Onsets
				sum.Abated += r.Abated
				sum.Blind += r.Blind
				sum.Groups += r.Groups
			}
			t.Logf("%+v", sum)
			if each := n / shares; sum.Beats < 50*each || sum.Onsets < 2*each || each > 10 && sum.Abated*sum.Blind*sum.Groups == 0 {
				t.Error("nothing happens")
			}
		})
	}
}

func checkMonitor(t *testing.T, seed uint64) MonitorResult {
	t.Helper()
	r := RunMonitor(t, DrawMonitor(seed))
	if len(r.Broken) > 0 {
		t.Errorf("seed %d (replay with SIM_SEED=%d):\n  %s", seed, seed, strings.Join(r.Broken[:min(5, len(r.Broken))], "\n  "))
	}
	return r
}

// TestMonitorSQLite is TestMonitorSimulation on the store that is a file.
func TestMonitorSQLite(t *testing.T) {
	first := uint64(time.Now().UnixNano()) / 1000
	n := runs(t, 1, 200)
	tried(t, n)
	t.Logf("%d seeds from %d", n, first)
	for i := range n {
		s := DrawMonitor(first + uint64(i))
		s.SQLite, s.Steps = true, false
		if os.Getenv("UNDERSTUDY_PROVE") != "1" {
			s.Length = min(s.Length, 25*time.Second) // a file takes its time
		}
		if r := RunMonitor(t, s); len(r.Broken) > 0 {
			t.Errorf("seed %d:\n  %s", s.Seed, strings.Join(r.Broken[:min(5, len(r.Broken))], "\n  "))
		}
	}
}

// TestMonitorSeeds replays the seeds that once failed, with why.
func TestMonitorSeeds(t *testing.T) {
	for _, seed := range seeds(t, "testdata/monitor_seeds.txt") {
		checkMonitor(t, seed)
	}
}

// TestMonitorSimulationCatches proves the checks: each broken monitor is caught, and
// for what it is.
func TestMonitorSimulationCatches(t *testing.T) {
	const most = 60 // seeds
	for i := range MonitorTwins() {
		t.Run(MonitorTwins()[i].Name, func(t *testing.T) {
			t.Parallel()
			for n := range uint64(most) {
				twin := MonitorTwins()[i]
				seed := tellingSeeds[twin.Name] + n
				s := DrawMonitor(seed)
				if s.Twin = twin; twin.Need != nil {
					twin.Need(&s)
				}
				for _, broken := range RunMonitor(t, s).Broken {
					if strings.Contains(broken, twin.Caught) {
						t.Logf("caught at seed %d: %s", seed, broken)
						return
					}
				}
			}
			t.Errorf("not caught in %d seeds", most)
		})
	}
}
