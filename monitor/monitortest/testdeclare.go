package monitortest

import (
	"errors"
	"slices"

	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/monitor"
)

func testConfigDeclared(b *bench) {
	declared := []monitor.Declaration{{Check: "e", Source: "a", Labels: map[string]string{"k": "v"}}, {Check: "e", Source: "b"}}
	c := monitor.Configuration{Checks: []monitor.Check{each("e")}, Declared: declared}
	out, err := b.Configure(b.ctx, c)
	if err != nil || out.Declared != 2 {
		b.Fatalf("%+v, %v", out, err)
	}
	c.Declared = append(c.Declared, monitor.Declaration{Check: "e", Source: "c"})
	if out, err := b.Configure(b.ctx, c); err != nil || out.Declared != 1 {
		b.Errorf("one more: %+v, %v", out, err)
	}
	if s := b.source("e", "a"); !s.Declared || s.Labels["k"] != "v" || s.State != monitor.Up {
		b.Errorf("%+v", s)
	}
	c = monitor.Configuration{Keep: true, Checks: []monitor.Check{each("f")}, Declared: []monitor.Declaration{{Check: "unheard of", Source: "a"}}}
	if _, err := b.Configure(b.ctx, c); !errors.Is(err, monitor.ErrNoCheck) {
		b.Errorf("declared for an event that is not configured: %v", err)
	}
	for _, e := range b.settings().Checks {
		if e.Name == "f" {
			b.Error("half of it was put into force")
		}
	}
}

func testDeclare(b *bench) {
	b.configure(each("e"))
	b.resolve("e", "known")
	got, err := b.Declare(b.ctx, []monitor.Declaration{
		{Check: "e", Source: "known", Labels: map[string]string{"k": "1"}}, {Check: "e", Source: "new"},
		{Check: "e", Source: "new", Labels: map[string]string{"k": "2"}},
	})
	if err != nil || !slices.Equal(got, []bool{false, true, false}) {
		b.Fatalf("%v, %v", got, err)
	}
	for name, want := range map[string]string{"known": "1", "new": "2"} {
		if s := b.source("e", name); !s.Declared || s.Labels["k"] != want {
			b.Errorf("%+v", s)
		}
	}
	if got, err := b.Declare(b.ctx, nil); err != nil || len(got) != 0 {
		b.Errorf("none: %v, %v", got, err)
	}
}

// testDeclareMoved: a source that depends on another one from now on has a whole limit.
func testDeclareMoved(b *bench) {
	check := each("e")
	check.DependsOn, check.DependsLabel = "host", "host"
	b.configure(check)
	declare := func(labels map[string]string) {
		b.Helper()
		if _, err := b.Declare(b.ctx, []monitor.Declaration{{Check: "e", Source: "a", Labels: labels}}); err != nil {
			b.Fatalf("Declare: %v", err)
		}
	}
	declare(map[string]string{"host": "h1"})
	id := b.resolve("e", "a")[0]
	b.beat(id)
	b.step(limit + slack)
	before := b.candidate(id)
	declare(map[string]string{"host": "h1", "site": "7"})
	if c := b.candidate(id); c.ExpectedFrom != before.ExpectedFrom {
		b.Errorf("with another label it is expected from %d, before %d", c.ExpectedFrom, before.ExpectedFrom)
	}
	declare(map[string]string{"host": "h2", "site": "7"})
	if c := b.candidate(id); !near(c.ExpectedFrom, c.Now) || c.Labels["host"] != "h2" {
		b.Errorf("on another host it is expected from %d, now %d: %+v", c.ExpectedFrom, c.Now, c.Labels)
	}
}

func testDeclareNone(b *bench) {
	b.configure(each("e"))
	if _, err := b.Declare(b.ctx, []monitor.Declaration{{Check: "e", Source: "a"}, {Check: "f", Source: "a"}}); !errors.Is(err, monitor.ErrNoCheck) {
		b.Errorf("an event that is not configured: %v", err)
	}
	for _, bad := range []monitor.Declaration{{Check: "e"}, {Check: "e", Source: "\x00"}, {Check: "e", Source: "b", Labels: map[string]string{"a=b": "c"}}} {
		if _, err := b.Declare(b.ctx, []monitor.Declaration{{Check: "e", Source: "a"}, bad}); !errors.Is(err, lease.ErrInvalid) {
			b.Errorf("%+v: %v", bad, err)
		}
	}
	if _, err := b.Declare(b.ctx, slices.Repeat([]monitor.Declaration{{Check: "e", Source: "a"}}, monitor.MaxSources+1)); !errors.Is(err, lease.ErrInvalid) {
		b.Errorf("more than MaxSources: %v", err)
	}
	if all, err := b.Sources(b.ctx, monitor.SourceQuery{}); err != nil || len(all) != 0 {
		b.Errorf("sources %+v, %v", all, err)
	}
}

func testRefuse(b *bench) {
	b.configure(each("e"))
	if err := b.RejectConfiguration(b.ctx, "cbs", `event "x": an interval of -1s is too short`); err != nil {
		b.Fatal(err)
	}
	o, err := b.Overview(b.ctx)
	if err != nil || !contains(o.Error, "an interval of -1s is too short") || o.Origin != "suite" {
		b.Errorf("error %q, origin %q, %v", o.Error, o.Origin, err)
	}
	b.configure(each("e"))
	if o, err := b.Overview(b.ctx); err != nil || o.Error != "" {
		b.Errorf("error %q, %v", o.Error, err)
	}
}
