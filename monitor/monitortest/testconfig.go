package monitortest

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/monitor"
)

func configTests() map[string]func(*bench) {
	return map[string]func(*bench){
		"configure/added, changed, removed":           testConfigure,
		"configure/what is kept":                      testKeep,
		"configure/every field":                       testFields,
		"configure/hostile text is only data":         testHostileEvent,
		"configure/a shorter limit begins now":        testShorterBase,
		"configure/declared sources":                  testConfigDeclared,
		"configure/a person's pause survives":         testPauseSurvives,
		"configure/at once by many: names stand once": testConfigureRace,
		"D18 configure/whole or not at all":           testWholeOrNothing,
		"D18 configure/an empty one is refused":       testEmptyConfig,
		"D22 configure/under load":                    testUnderLoad,
		"D22 configure/nobody sees half of one":       testNoHalf,
		"declare/new and known":                       testDeclare,
		"declare/it depends on another":               testDeclareMoved,
		"declare/all or none":                         testDeclareNone,
		"refuse/is shown until one is applied":        testRefuse,
	}
}

func testConfigure(b *bench) {
	one := b.configure(each("b"), each("a"), each("c"))
	if !slices.Equal(one.Added, []string{"a", "b", "c"}) || len(one.Changed)+len(one.Removed) != 0 {
		b.Errorf("the first: %+v", one)
	}
	s := b.settings()
	if len(s.Checks) != 3 || s.Generation != one.Generation {
		b.Fatalf("%+v", s)
	}
	changed := each("b")
	changed.Severity = "high"
	ids, revs := map[string]int64{}, map[string]int64{}
	for _, e := range s.Checks {
		ids[e.Name], revs[e.Name] = e.ID, e.Rev
	}
	b.resolve("c", "x") // so that it is not forgotten at once
	two := b.configure(each("a"), changed, each("d"))
	if !slices.Equal(two.Added, []string{"d"}) || !slices.Equal(two.Changed, []string{"b"}) || !slices.Equal(two.Removed, []string{"c"}) || two.Generation == one.Generation {
		b.Errorf("the second: %+v", two)
	}
	for _, e := range b.settings().Checks {
		if old, known := ids[e.Name]; known && (e.ID != old || (e.Rev == revs[e.Name]) != (e.Name == "a")) || e.Removed != (e.Name == "c") {
			b.Errorf("%+v, before id %d, rev %d", e, old, revs[e.Name])
		}
	}
	three := b.configure(each("a"), changed, each("d"))
	if len(three.Added)+len(three.Changed)+len(three.Removed) != 0 || three.Generation != two.Generation {
		b.Errorf("the same again: %+v, before %+v", three, two)
	}
	o, err := b.Overview(b.ctx)
	if err != nil || !near(o.Configured, o.Now) || o.Origin != "suite" {
		b.Errorf("configured %v from %q, %v", o.Configured, o.Origin, err)
	}
}

func testKeep(b *bench) {
	b.configure(each("a"), each("b"))
	out, err := b.Configure(b.ctx, monitor.Configuration{Checks: []monitor.Check{each("c")}, Keep: true})
	if err != nil || !slices.Equal(out.Added, []string{"c"}) || len(out.Removed) != 0 {
		b.Fatalf("%+v, %v", out, err)
	}
	if _, err := b.Configure(b.ctx, monitor.Configuration{Keep: true, Declared: []monitor.Declaration{{Check: "a", Source: "x"}}}); err != nil {
		b.Errorf("only declared sources: %v", err)
	}
	var names []string
	for _, e := range b.settings().Checks {
		names = append(names, e.Name)
	}
	if slices.Sort(names); !slices.Equal(names, []string{"a", "b", "c"}) {
		b.Errorf("events %q", names)
	}
}

// full has every field set.
func full(name string) monitor.Check {
	return monitor.Check{
		Name: name, Interval: 1500 * time.Millisecond, Missed: 7, Grace: 123456 * time.Microsecond, MaxRun: time.Hour,
		Fixed: true, MaxLearned: 9, RetireAfter: 24 * time.Hour, SenderClock: true, AnyDomain: true, Flaps: 4, FlapWindow: time.Hour, Steady: time.Minute,
		GroupBy: "site", GroupWait: 3 * time.Second, GroupMin: 5, DependsOn: "plain", DependsLabel: "ü", Maintenance: "@weekly", MaintenanceFor: time.Hour, Remind: 90 * time.Second, Severity: "critical", Tags: []string{"b", "a", "ü"},
		Labels: map[string]string{"team": "'x'", "empty": ""}, Paused: true,
		ControlLoop: monitor.ControlLoop{
			Name: "CL", PolicyName: "p", PolicyScope: "s", PolicyVersion: "1.0", TargetType: "VM", Target: "t", Version: "v",
		},
	}
}

func testFields(b *bench) {
	e := full("full")
	if v := reflect.ValueOf(e); v.NumField() != 27 { // of them only Schedule is not in full
		b.Errorf("an event has %d fields: have full set the new ones", v.NumField())
	}
	b.configure(e, each("plain"))
	if got := b.expected("full"); !reflect.DeepEqual(got.Check, e) {
		b.Errorf("configured %+v, read %+v", e, got.Check)
	}
	plain := each("plain").WithDefaults()
	if got := b.expected("plain"); !reflect.DeepEqual(got.Check, plain) {
		b.Errorf("with defaults %+v, read %+v", plain, got.Check)
	}
	if out := b.configure(e, each("plain")); len(out.Changed) != 0 {
		b.Errorf("the same again: %+v", out)
	}
}

func testHostileEvent(b *bench) {
	var events []monitor.Check
	for _, text := range hostileNames() {
		e := each(text)
		e.Severity, e.Tags, e.Labels, e.ControlLoop.Name = text, []string{text}, map[string]string{"x": text}, text
		events = append(events, e)
	}
	b.configure(events...)
	for _, e := range events {
		if got := b.expected(e.Name); !reflect.DeepEqual(got.Check, e.WithDefaults()) {
			b.Errorf("configured %+v, read %+v", e, got.Check)
		}
	}
	if out := b.configure(events...); len(out.Changed)+len(out.Added)+len(out.Removed) != 0 {
		b.Errorf("the same again: %+v", out)
	}
}

func testShorterBase(b *bench) {
	id := b.ready("a")[0]
	before := b.candidate(id)
	b.step(limit)
	short := each("e")
	short.Missed = 1
	b.configure(short)
	if c := b.candidate(id); !near(c.CheckChanged, c.Now) || c.CheckRev == before.CheckRev {
		b.Errorf("a shorter limit: %+v", c)
	}
	daily := monitor.Check{Name: "e", Schedule: "0 0 * * *", Missed: 3}
	b.configure(daily)
	b.step(limit)
	daily.Missed = 2
	if b.configure(daily); !near(b.candidate(id).CheckChanged, b.candidate(id).Now) {
		b.Errorf("fewer times of a schedule may be missed: %+v", b.candidate(id))
	}
	b.configure(short)
	held := short
	held.Maintenance, held.MaintenanceFor, held.DependsOn = "0 2 * * 6", 2*time.Hour, "host"
	for _, w := range []struct {
		what     string
		change   func(*monitor.Check)
		stricter bool
	}{
		{"a window of maintenance, and a check that it depends on", func(c *monitor.Check) { *c = held }, false},
		{"a longer window", func(c *monitor.Check) { c.MaintenanceFor = 3 * time.Hour }, false},
		{"a shorter window", func(c *monitor.Check) { c.MaintenanceFor = time.Hour }, true},
		{"windows at another time", func(c *monitor.Check) { c.Maintenance = "0 3 * * 6" }, true},
		{"no window", func(c *monitor.Check) { c.Maintenance, c.MaintenanceFor = "", 0 }, true},
		{"it depends on another source", func(c *monitor.Check) { c.DependsLabel = "rack" }, true},
		{"that source, for all of its own", func(c *monitor.Check) { c.Labels = map[string]string{"rack": "r1"} }, false},
		{"another label", func(c *monitor.Check) { c.Labels = map[string]string{"rack": "r1", "site": "7"} }, false},
		{"another source, for all of its own", func(c *monitor.Check) { c.Labels = map[string]string{"rack": "r2"} }, true},
		{"it depends on nothing", func(c *monitor.Check) { c.DependsOn, c.DependsLabel = "", "" }, true},
	} {
		before := b.candidate(id).CheckChanged
		b.step(limit)
		w.change(&held)
		b.configure(held)
		if c := b.candidate(id); near(c.CheckChanged, c.Now) != w.stricter || !w.stricter && c.CheckChanged != before {
			b.Errorf("%s: the check changed at %d, before %d, now %d", w.what, c.CheckChanged, before, c.Now)
		}
	}
	b.configure(short)
	base := b.candidate(id).CheckChanged
	b.step(limit)
	labelled := short
	labelled.Severity = "high"
	b.configure(labelled)
	if c := b.candidate(id); c.CheckChanged != base {
		b.Errorf("another severity moved the base from %d to %d", base, c.CheckChanged)
	}
}

func testPauseSurvives(b *bench) {
	e := each("e")
	b.configure(e)
	b.act(monitor.Action{Type: monitor.ActionPause, Check: "e", Who: "ops"})
	if out := b.configure(e); !b.expected("e").Paused || len(out.Changed) != 0 {
		b.Errorf("the same configuration again: %+v, paused %v", out, b.expected("e").Paused)
	}
	e.Severity = "high"
	if out := b.configure(e); !b.expected("e").Paused || !slices.Equal(out.Changed, []string{"e"}) {
		b.Errorf("another severity: %+v, paused %v", out, b.expected("e").Paused)
	}
	e.Paused = true
	b.configure(e)
	e.Paused = false
	if b.configure(e); b.expected("e").Paused {
		b.Error("the configuration ended a pause of its own, and it goes on")
	}
}

func testConfigureRace(b *bench) {
	handles := []monitor.Store{b.Store, b.other()}
	var g sync.WaitGroup
	for i := range 12 {
		g.Go(func() {
			c := monitor.Configuration{
				Checks: []monitor.Check{each("a"), each("b"), each("c")}, Declared: []monitor.Declaration{{Check: "a", Source: "x"}, {Check: "b", Source: "x"}},
			}
			if i%2 == 1 {
				slices.Reverse(c.Checks)
				slices.Reverse(c.Declared)
			}
			if _, err := handles[i%2].Configure(b.ctx, c); err != nil {
				b.Errorf("Configure: %v", err)
			}
		})
	}
	g.Wait()
	if s := b.settings(); len(s.Checks) != 3 {
		b.Errorf("%+v", s)
	}
	if all, err := b.Sources(b.ctx, monitor.SourceQuery{}); err != nil || len(all) != 2 {
		b.Errorf("%+v, %v", all, err)
	}
}

func testWholeOrNothing(b *bench) {
	b.configure(each("a"), each("b"))
	before := b.settings()
	bad := each("bad")
	bad.Interval = -time.Second
	changed := each("a")
	changed.Missed = 9
	for what, c := range map[string]monitor.Configuration{
		"a bad event":            {Checks: []monitor.Check{changed, each("new"), bad}},
		"one that stands twice":  {Checks: []monitor.Check{changed, changed}},
		"a bad source":           {Checks: []monitor.Check{changed}, Declared: []monitor.Declaration{{Check: "a", Source: "\x00"}}},
		"a source of none":       {Checks: []monitor.Check{changed}, Declared: []monitor.Declaration{{Check: "new", Source: "x"}}},
		"a name that cannot be":  {Checks: []monitor.Check{changed, each("a\nb")}},
		"an interval and a cron": {Checks: []monitor.Check{{Name: "a", Interval: interval, Schedule: "* * * * *"}}},
	} {
		if _, err := b.Configure(b.ctx, c); !errors.Is(err, lease.ErrInvalid) {
			b.Errorf("%s: %v", what, err)
		}
		if now := b.settings(); !reflect.DeepEqual(now, before) {
			b.Errorf("%s: settings %+v, before %+v", what, now, before)
		}
	}
}

func testEmptyConfig(b *bench) {
	b.configure(each("a"))
	if _, err := b.Configure(b.ctx, monitor.Configuration{}); !errors.Is(err, lease.ErrInvalid) {
		b.Errorf("empty: %v", err)
	}
	if e := b.expected("a"); e.Removed {
		b.Error("an empty configuration removed all")
	}
}

// testUnderLoad: intake and detection continue while names come and go.
func testUnderLoad(b *bench) {
	ids := b.ready("a", "b", "c", "d")
	slices.Sort(ids)
	other := b.other()
	ctx, stop := context.WithCancel(b.ctx)
	defer stop()
	var g sync.WaitGroup
	var stored atomic.Int64
	g.Go(func() {
		for ctx.Err() == nil {
			d := monitor.HeartbeatBatch{Probes: []monitor.Probe{proof("p")}}
			for _, id := range ids {
				d.Beats = append(d.Beats, monitor.HeartbeatUpdate{Source: id, Count: 1})
			}
			out, err := other.RecordHeartbeats(b.ctx, d)
			if err != nil || len(out.Unknown) > 0 {
				b.Errorf("Store: %+v, %v", out, err)
				return
			}
			stored.Add(1)
		}
	})
	g.Go(func() {
		for ctx.Err() == nil {
			if _, err := other.ResolveSources(b.ctx, []monitor.SourceRef{{Check: "e", Source: "a"}, {Check: "come and go", Source: fmt.Sprint(stored.Load() % 7)}}); err != nil {
				b.Errorf("Resolve: %v", err)
				return
			}
		}
	})
	for i := range 10 {
		e := each("e")
		e.Severity = fmt.Sprint(i)
		b.configure(e, each("come and go"))
		b.look()
		b.configure(e)
		l, err := b.Sweep(b.ctx, wideGap, 100)
		if err != nil {
			b.Fatal(err)
		}
		for _, c := range l.Candidates {
			b.tryApply(b.change(c, monitor.Forget))
		}
	}
	stop()
	g.Wait()
	if s := b.source("e", "a"); s.Beats != 1+stored.Load() {
		b.Errorf("%d beats were stored, %d count", 1+stored.Load(), s.Beats)
	}
}

func testNoHalf(b *bench) {
	table := b.other()
	numbered := func(i int) monitor.Configuration {
		var c monitor.Configuration
		for _, name := range []string{"a", "b", "c", "d"} {
			e := each(name)
			e.Severity = fmt.Sprint(i)
			c.Checks = append(c.Checks, e)
		}
		c.Checks = append(c.Checks, each(fmt.Sprint("only ", i)))
		return c
	}
	if _, err := b.Configure(b.ctx, numbered(0)); err != nil {
		b.Fatal(err)
	}
	ctx, stop := context.WithCancel(b.ctx)
	var g sync.WaitGroup
	g.Go(func() {
		defer stop()
		for i := range 30 {
			if _, err := table.Configure(b.ctx, numbered(i)); err != nil {
				b.Errorf("Configure: %v", err)
				return
			}
		}
	})
	defer g.Wait()
	for ctx.Err() == nil {
		seen, only := map[string]bool{}, 0
		s := b.settings()
		for _, e := range s.Checks {
			if e.Severity != "" {
				seen[e.Severity] = true
			} else if !e.Removed {
				only++
			}
		}
		if len(seen) != 1 || only != 1 {
			b.Errorf("a mix of configurations: %+v", s)
			return
		}
		yield()
	}
}
