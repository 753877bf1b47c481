package sim

import (
	"os"
	"testing"
	"time"
)

var monitors = histories[MonitorResult]{
	few: 8, many: 8000,
	run: func(t *testing.T, seed uint64, trace func(string, ...any)) (MonitorResult, []string) {
		s := DrawMonitor(seed)
		s.Trace = trace
		r := RunMonitor(t, s)
		return r, r.Broken
	},
	sum: func(all *MonitorResult, r MonitorResult) {
		all.Beats += r.Beats
		all.Onsets += r.Onsets
		all.Abated += r.Abated
		all.Blind += r.Blind
		all.Groups += r.Groups
	},
	idle: func(all MonitorResult, runs int) bool {
		return all.Beats < 50*runs || all.Onsets < 2*runs || runs > 100 && all.Abated*all.Blind*all.Groups == 0
	},
}

// TestMonitorSimulation is TestSimulation for monitors.
func TestMonitorSimulation(t *testing.T) { monitors.explore(t) }

// TestMonitorSQLite is TestMonitorSimulation on the store that is a file.
func TestMonitorSQLite(t *testing.T) {
	onFile := monitors
	onFile.few, onFile.many = 1, 200
	onFile.run = func(t *testing.T, seed uint64, trace func(string, ...any)) (MonitorResult, []string) {
		s := DrawMonitor(seed)
		s.SQLite, s.Steps, s.Trace = true, false, trace
		if os.Getenv("UNDERSTUDY_PROVE") != "1" {
			s.Length = min(s.Length, 25*time.Second) // a file takes its time
		}
		r := RunMonitor(t, s)
		return r, r.Broken
	}
	onFile.idle = func(all MonitorResult, _ int) bool { return all.Beats == 0 }
	onFile.explore(t)
}

// TestMonitorSeeds replays the seeds that once failed, with why.
func TestMonitorSeeds(t *testing.T) { monitors.again(t, "testdata/monitor_seeds.txt") }

// TestMonitorSimulationCatches proves the checks: each broken monitor is caught, and
// for what it is.
func TestMonitorSimulationCatches(t *testing.T) {
	for i := range MonitorTwins() {
		name, want := MonitorTwins()[i].Name, MonitorTwins()[i].Caught
		catches(t, name, want, 60, 60, func(t *testing.T, seed uint64) []string {
			s, twin := DrawMonitor(seed), MonitorTwins()[i] // which keeps something of a run
			if s.Twin = twin; twin.Need != nil {
				twin.Need(&s)
			}
			return RunMonitor(t, s).Broken
		})
	}
}
