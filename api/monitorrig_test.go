package api

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/monitor"
	"github.com/understudy-ha/understudy/monitor/monitortest"
	"github.com/understudy-ha/understudy/store/memory"
)

// monitorStore is a store of leases and sources in memory.
type monitorStore struct {
	*memory.Store
	table monitor.Table
}

func (s *monitorStore) Monitor() monitor.Table { return s.table }

// monitorRig is a server with a monitor, without a network, at which nobody looks
// after the sources but the test.
type monitorRig struct {
	rig
	table *monitortest.Reference
	ids   int
}

func newMonitorRig(t *testing.T, events ...monitor.Event) *monitorRig {
	t.Helper()
	clock := newStepped()
	st := memory.New(clock.storeNow)
	table := monitortest.NewReference(monitortest.Options{Clock: clock.storeNow, History: st})
	s, err := New(Config{Store: &monitorStore{st, table}, Clock: clock})
	if err != nil {
		t.Fatal(err)
	}
	g := &monitorRig{rig: rig{t: t, store: st, clock: clock, s: s}, table: table}
	if len(events) > 0 {
		if _, err := table.Configure(t.Context(), monitor.Configuration{Events: events, Origin: "test"}); err != nil {
			t.Fatal(err)
		}
	}
	return g
}

// every expects a beat each second, of which three may be missed.
func every(name string) monitor.Event {
	return monitor.Event{Name: name, Interval: time.Second, Missed: 3}
}

// beat stores one, by the path "test".
func (g *monitorRig) beat(event, source string, signal monitor.Signal) {
	g.t.Helper()
	found, err := g.table.Resolve(g.t.Context(), []monitor.Ref{{Event: event, Source: source}})
	if err != nil || found[0].ID == 0 {
		g.t.Fatalf("%s of %s: %+v, %v", source, event, found, err)
	}
	g.store1(monitor.Stamp{Source: found[0].ID, Signal: signal, Count: 1})
}

// store1 stores a beat, or with none only that the path works.
func (g *monitorRig) store1(beats ...monitor.Stamp) {
	g.t.Helper()
	d := monitor.Delivery{Proofs: []monitor.Proof{{Path: "test", Trust: time.Second, Gap: time.Hour}}, Beats: beats}
	if _, err := g.table.Store(g.t.Context(), d); err != nil {
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
	look, err := g.table.Due(ctx, all, monitor.MaxSources)
	if err != nil {
		g.t.Fatal(err)
	}
	var changes []monitor.Change
	for _, c := range look.Candidates {
		i := slices.IndexFunc(settings.Events, func(e monitor.Expected) bool { return e.ID == c.Event })
		v := settings.Events[i].Judge(c.Facts)
		change := monitor.Change{
			ID: c.ID, Rev: c.Rev, Stamp: c.Stamp, EventRev: c.EventRev, Turn: v.Turn, Due: v.Due, Well: v.Well, Base: look.Now,
			Alarm: c.Alarm, Reason: v.Reason, At: look.Wall,
		}
		if v.Turn == monitor.Onset {
			g.ids++
			change.Alarm = fmt.Sprintf("alarm-%03d", g.ids)
		}
		changes = append(changes, change)
	}
	if _, err := g.table.Apply(ctx, changes); err != nil {
		g.t.Fatal(err)
	}
	g.s.monitor.seen.forget()
}

// down leaves sources of an event with a standing alarm.
func (g *monitorRig) down(event string, sources ...string) {
	g.t.Helper()
	for _, s := range sources {
		g.beat(event, s, monitor.Fail)
	}
	g.pass(time.Millisecond)
}

func sourcePath(event, source string) string {
	return "/v1/sources/" + url.PathEscape(event) + "/" + url.PathEscape(source)
}

func (g *monitorRig) source(event, source string) (out struct {
	SourceView
	Alarms []AlarmView
}) {
	g.t.Helper()
	a := g.do("GET", sourcePath(event, source), "")
	a.want(200, "")
	a.into(&out)
	return out
}

// look shows the monitor as it is now.
func (g *monitorRig) look() (out struct {
	MonitorView
	Instance *ownMonitorView
}) {
	g.t.Helper()
	g.s.monitor.seen.forget()
	g.do("GET", "/v1/monitor", "").into(&out)
	return out
}
