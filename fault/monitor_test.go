//go:build linux

package fault_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/fault"
	"github.com/understudy-ha/understudy/internal/testkit/realserver"
)

// hb is the event name under which most sources beat, and how long they may be quiet.
const (
	hb       = "hb"
	hbEvery  = 400 * time.Millisecond
	hbLimit  = 1200 * time.Millisecond
	hbConfig = hb + ",interval=400ms,missed=3"
)

// monitorCase is one fault of the monitor. Those named after a defect of the original show that
// understudy does not have it.
type monitorCase struct {
	name string
	run  func(t *testing.T, p fault.Programs, db fault.Database)
	// stores that it is tried on, in every run, and more of them under
	// UNDERSTUDY_PROVE=1; server: PostgreSQL's own server is hurt, steps: and its clock.
	stores, more  []string
	server, steps bool
}

var (
	both   = []string{"sqlite", "postgres"}
	light  = []string{"sqlite"}
	server = []string{"postgres"}
)

// TestFaultMonitor runs whole monitors through faults.
func TestFaultMonitor(t *testing.T) {
	t.Parallel()
	programs := fault.Build(t)
	shared := realserver.Postgres(t, realserver.PostgresOptions{})
	for _, c := range slices.Concat(monitorProcesses, monitorIntake, monitorOutside) {
		stores := c.stores
		if prove {
			stores = slices.Concat(stores, c.more)
		}
		for _, s := range stores {
			t.Run(c.name+"/"+s, func(t *testing.T) {
				t.Parallel()
				db := fault.Database{}
				switch {
				case s == "sqlite":
					db = fault.SQLite(t)
				case c.server || c.steps:
					db = fault.Postgres(t, c.steps)
				default:
					db = fault.SharedPostgres(t, shared)
				}
				c.run(t, programs, db)
			})
		}
	}
}

// sinksOf starts sinks.
func sinksOf(t *testing.T, n int) (all []*fault.AlarmSink) {
	for i := range n {
		all = append(all, fault.NewAlarmSink(t, uint64(i)))
	}
	return all
}

func instances(n int) (names []string) {
	for i := range n {
		names = append(names, fmt.Sprintf("m%d", i+1))
	}
	return names
}

// monitorsOf makes n instances with so many sinks, which expect [hb].
func monitorsOf(t *testing.T, p fault.Programs, db fault.Database, n, sinks int, options ...string) *fault.Monitors {
	t.Helper()
	return fault.NewMonitors(t, fault.MonitorsConfig{Programs: p, Database: db, Sinks: sinksOf(t, sinks), Seed: 1,
		Options: append([]string{"--event", hbConfig}, options...)}, instances(n)...)
}

// beaterOf makes sources that beat under [hb].
func beaterOf(m *fault.Monitors, steady, sick int) *fault.Beater {
	return &fault.Beater{Monitors: m, Event: hb, Interval: hbEvery, Limit: hbLimit, Steady: steady, Sick: sick}
}

// monitorJudged tells of a run, and fails for every rule that was broken.
func monitorJudged(t *testing.T, v fault.MonitorVerdict) {
	t.Helper()
	t.Logf("%d beats stored, %d attempts failed, %d outages, %d messages came again, the latest ONSET came %v after its limit",
		v.Beats, v.Failed, v.Outages, v.Again, v.Late.Round(time.Millisecond))
	for _, violation := range v.Violations {
		t.Errorf("VIOLATION %s", violation)
	}
}

// monitorChaos kills, stops, pauses and restarts instances, links and servers at
// random, under sinks that fail in all ways.
func monitorChaos(t *testing.T, p fault.Programs, db fault.Database) {
	seed := givenSeed()
	length := 8 * time.Second
	if prove {
		length = 3 * time.Minute
	}
	t.Logf("UNDERSTUDY_SEED=%d", seed)
	m := fault.NewMonitors(t, fault.MonitorsConfig{Programs: p, Database: db, Sinks: sinksOf(t, 2), Seed: seed,
		Options: []string{"--event", hbConfig}}, instances(3)...)
	b := &fault.Beater{Monitors: m, Event: hb, Interval: hbEvery, Limit: hbLimit, Steady: 6, Sick: 8, Edgy: 4, Seed: seed}
	chaos := fault.MonitorChaos{Beater: b, Seed: seed, For: length, Longest: 3 * time.Second, Servers: 1 + int(length/(10*time.Second))}
	did, cycles, v := chaos.Run(t)
	t.Logf("did %v; in it, %d outages were waited for from end to end", did, cycles)
	tried(t, did)
	monitorJudged(t, v)
	if len(did) == 0 || v.Beats < 50 {
		t.Error("nothing was tried")
	}
}

// monitorCaughtInTrouble has sinks take nothing before all is well: what comes of outages then, too late, must not hide that.
func monitorCaughtInTrouble(t *testing.T, p fault.Programs, db fault.Database) {
	b := beaterOf(monitorsOf(t, p, db, 2, 1), 1, 2)
	chaos := fault.MonitorChaos{Beater: b, Seed: 1, For: 2 * time.Second, Longest: time.Second, Mood: fault.Away, Overtime: 3 * time.Second}
	_, cycles, v := chaos.Run(t)
	if cycles != 0 || len(v.Violations) != b.Sick || slices.ContainsFunc(v.Violations, func(v fault.Violation) bool { return v.Rule != fault.Lost }) {
		t.Errorf("%d outages came to their end while the sinks took nothing; the judge says %v", cycles, v.Violations)
	}
}

// monitorCaught shows the judge a real run that was tampered with.
func monitorCaught(t *testing.T, p fault.Programs, db fault.Database) {
	m := monitorsOf(t, p, db, 1, 1)
	m.Start()
	b := beaterOf(m, 2, 0)
	stop := inBackground(b)
	realserver.Eventually(t, patience, "all are heard", func() error {
		if n := len(m.Sources(hb)); n < 2 {
			return fmt.Errorf("%d of 2", n)
		}
		return nil
	})
	stop()
	e := b.RollCall(t, 2*patience)
	monitorJudged(t, fault.JudgeMonitor(e))
	for _, c := range []struct {
		want  fault.Rule
		spoil func(e *fault.MonitorEvidence)
	}{
		{fault.False, func(e *fault.MonitorEvidence) { e.Limit = time.Hour }},
		{fault.Ghost, func(e *fault.MonitorEvidence) { e.Beats = nil }},
		{fault.Lost, func(e *fault.MonitorEvidence) { e.Sinks = [][]fault.Told{nil} }},
		{fault.Ghost, func(e *fault.MonitorEvidence) { e.Alarms = nil }},
		{fault.Lost, func(e *fault.MonitorEvidence) { e.Quiet = b.Names() }},
		{fault.Order, func(e *fault.MonitorEvidence) {
			e.Sinks = [][]fault.Told{slices.Clone(e.Sinks[0])}
			slices.Reverse(e.Sinks[0])
		}},
	} {
		spoilt := e
		c.spoil(&spoilt)
		if v := fault.JudgeMonitor(spoilt); !slices.ContainsFunc(v.Violations, func(v fault.Violation) bool { return v.Rule == c.want }) {
			t.Errorf("the judge does not see %s: %v", c.want, v.Violations)
		}
	}
}
