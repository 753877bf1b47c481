package api

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/api/apitype"
	"github.com/understudy-ha/understudy/internal/memstore/checks"
	"github.com/understudy-ha/understudy/monitor"
	"github.com/understudy-ha/understudy/store/memory"
)

// monitorStore is a store of leases and sources in memory.
type monitorStore struct {
	*memory.Store
	table monitor.Store
}

func (s *monitorStore) Monitor() monitor.Store { return monitor.Validated(s.table) }

// monitorRig is a server with a monitor, without a network, at which nobody looks
// after the sources but the test.
type monitorRig struct {
	rig
	table *checks.Memory
	ids   int
}

func newMonitorRig(t *testing.T, events ...monitor.Check) *monitorRig {
	t.Helper()
	clock := newStepped()
	st := memory.New(clock.storeNow)
	table := checks.NewMemory(checks.Options{Clock: clock.storeNow, History: st})
	s, err := New(Config{Store: &monitorStore{st, table}, Clock: clock})
	if err != nil {
		t.Fatal(err)
	}
	g := &monitorRig{rig: rig{t: t, store: st, clock: clock, s: s}, table: table}
	if len(events) > 0 {
		if _, err := table.Configure(t.Context(), monitor.Configuration{Checks: events, Origin: "test"}); err != nil {
			t.Fatal(err)
		}
	}
	return g
}

// every expects a beat each second, of which three may be missed.
func every(name string) monitor.Check {
	return monitor.Check{Name: name, Interval: time.Second, Missed: 3}
}

// beat stores one, by the path "test".
func (g *monitorRig) beat(event, source string, signal monitor.Signal) {
	g.t.Helper()
	found, err := g.table.ResolveSources(g.t.Context(), []monitor.SourceRef{{Check: event, Source: source}})
	if err != nil || found[0].ID == 0 {
		g.t.Fatalf("%s of %s: %+v, %v", source, event, found, err)
	}
	g.store1(monitor.HeartbeatUpdate{Source: found[0].ID, Signal: signal, Count: 1})
}

// store1 stores a beat, or with none only that the path works.
func (g *monitorRig) store1(beats ...monitor.HeartbeatUpdate) {
	g.t.Helper()
	d := monitor.HeartbeatBatch{Probes: []monitor.Probe{{Path: "test", TrustFor: time.Second, MaxGap: time.Hour}}, Beats: beats}
	if _, err := g.table.RecordHeartbeats(g.t.Context(), d); err != nil {
		g.t.Fatal(err)
	}
}

// pass lets time pass in which the path works, and judges what is due.
func (g *monitorRig) pass(d time.Duration) {
	g.t.Helper()
	g.clock.pass(d)
	g.store1()
	ctx := context.Background()
	settings, err := g.table.Settings(ctx)
	if err != nil {
		g.t.Fatal(err)
	}
	var all []int
	for i := range monitor.Partitions {
		all = append(all, i)
	}
	look, err := g.table.DueSources(ctx, all, monitor.MaxSources)
	if err != nil {
		g.t.Fatal(err)
	}
	var changes []monitor.SourceChange
	for _, c := range look.Candidates {
		i := slices.IndexFunc(settings.Checks, func(e monitor.StoredCheck) bool { return e.ID == c.CheckID })
		v := settings.Checks[i].Evaluate(c.Facts)
		change := monitor.SourceChange{
			ID: c.ID, Rev: c.Rev, BeatRev: c.BeatRev, CheckRev: c.CheckRev, Transition: v.Transition, Due: v.Due, WellSince: v.WellSince, ExpectedFrom: look.Now,
			Alarm: c.Alarm, Reason: v.Reason, At: look.Wall,
		}
		if v.Transition == monitor.Onset {
			g.ids++
			change.Alarm = fmt.Sprintf("alarm-%03d", g.ids)
		}
		changes = append(changes, change)
	}
	if _, err := g.table.ApplyChanges(ctx, changes); err != nil {
		g.t.Fatal(err)
	}
	g.s.monitor.snapshot.invalidate()
}

// down leaves sources of an event with a standing alarm.
func (g *monitorRig) down(event string, sources ...string) {
	g.t.Helper()
	for _, s := range sources {
		g.beat(event, s, monitor.SignalFail)
	}
	g.pass(time.Millisecond)
}

func sourcePath(event, source string) string {
	return "/v1/sources/" + url.PathEscape(event) + "/" + url.PathEscape(source)
}

func (g *monitorRig) source(event, source string) (out struct {
	apitype.Source
	Alarms []apitype.Alarm
}) {
	g.t.Helper()
	a := g.do("GET", sourcePath(event, source), "")
	a.want(200, "")
	a.into(&out)
	return out
}

// look shows the monitor as it is now.
func (g *monitorRig) look() (out struct {
	apitype.Monitor
	Instance *apitype.MonitorInstance
}) {
	g.t.Helper()
	g.s.monitor.snapshot.invalidate()
	g.do("GET", "/v1/monitor", "").into(&out)
	return out
}
