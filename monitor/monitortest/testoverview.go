package monitortest

import (
	"errors"
	"fmt"
	"slices"

	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/monitor"
)

func overviewTests() map[string]func(*bench) {
	return map[string]func(*bench){
		"overview/of nothing":                       testEmptyOverview,
		"overview/counts by state":                  testCounts,
		"overview/alarms that stand":                testStanding,
		"enlist/sinks are registered":               testSinks,
		"enlist/what a member says is shown":        testMember,
		"D1 enlist/members whose sessions are over": testDeadMember,
		"settings/generation changes with the rest": testGenerations,
	}
}

func viewTests() map[string]func(*bench) {
	return map[string]func(*bench){
		"view/vnf_table_1":     testTable1,
		"view/vnf_table_2":     testTable2,
		"D17 view/hb_common":   testCommon,
		"view/hostile content": testHostileViews,
	}
}

func (b *bench) overview() monitor.Overview {
	b.Helper()
	o, err := b.Overview(b.ctx)
	if err != nil {
		b.Fatalf("Overview: %v", err)
	}
	return o
}

func testEmptyOverview(b *bench) {
	o := b.overview()
	if len(o.Checks)+len(o.Paths)+len(o.Sinks)+len(o.Members) != 0 || o.Standing != 0 || !o.Configured.IsZero() || o.Error != "" || o.Origin != "" || o.Now.IsZero() {
		b.Errorf("%+v", o)
	}
	if s := b.settings(); len(s.Checks)+len(s.Sinks) != 0 {
		b.Errorf("%+v", s)
	}
	if l := b.look(); len(l.Candidates) != 0 || l.Next != monitor.Never || l.Now == 0 || l.Wall.IsZero() {
		b.Errorf("%+v", l)
	}
	b.wantNoneHeld()
	if _, err := b.Sweep(b.ctx, wideGap, 10); err != nil {
		b.Errorf("Sweep: %v", err)
	}
}

// lately reads the overview until it is as wanted: its counts may be some time old.
func (b *bench) lately(want string, tell func(monitor.Overview) string) {
	b.Helper()
	got := tell(b.overview())
	for range 10 {
		if got == want {
			return
		}
		if _, err := b.Sweep(b.ctx, wideGap, 10); err != nil {
			b.Fatalf("Sweep: %v", err)
		}
		b.step(slack)
		got = tell(b.overview())
	}
	if got != want {
		b.Errorf("overview: %s, want %s", got, want)
	}
}

func testCounts(b *bench) {
	ids := b.ready("up", "down", "paused", "retired", "up too")
	b.onset(ids[1])
	b.act(monitor.Action{Type: monitor.ActionPause, Check: "e", Source: "paused", Who: "ops"})
	b.apply(b.change(b.candidate(ids[3]), monitor.Retire))
	b.configure(each("e"), each("f"))
	b.resolve("f", "x", "y", "z")
	b.beat(b.resolve("f", "x")...)
	tell := func(o monitor.Overview) (out string) {
		slices.SortFunc(o.Checks, func(a, b monitor.CheckCount) int { return int(a.Name[0]) - int(b.Name[0]) })
		for _, e := range o.Checks {
			out += fmt.Sprintf("%s %d %d %d %d, unseen %d; ", e.Name, e.Up, e.Down, e.Paused, e.Retired, e.NeverSeen)
		}
		return out
	}
	b.lately("e 2 1 1 1, unseen 0; f 3 0 0 0, unseen 2; ", tell)
	b.abate(ids[1])
	b.beat(b.resolve("f", "y")...)
	b.lately("e 3 0 1 1, unseen 0; f 3 0 0 0, unseen 1; ", tell)
}

func testStanding(b *bench) {
	ids := b.ready("a", "b", "c")
	b.onset(ids[0])
	b.mustReport("e/7", lease.NewID(), b.hold("e/7", ids[1], ids[2])...)
	tell := func(o monitor.Overview) string { return fmt.Sprint(o.Standing) }
	b.lately("3", tell) // and not that of the group
	b.abate(ids[0])
	b.lately("2", tell)
}

func testSinks(b *bench) {
	if s := b.settings(); len(s.Sinks) != 0 {
		b.Fatalf("%+v", s)
	}
	b.enlist("one", "two")
	before := b.settings()
	b.enlist("two", "three")
	after := b.settings()
	if !slices.Equal(before.Sinks, []string{"one", "two"}) || !slices.Equal(after.Sinks, []string{"one", "three", "two"}) || after.Generation == before.Generation {
		b.Errorf("%+v, then %+v", before, after)
	}
	b.enlist("two", "three")
	if s := b.settings(); s.Generation != after.Generation {
		b.Errorf("the same again: generation %d, before %d", s.Generation, after.Generation)
	}
	if o := b.overview(); !slices.Equal(o.Sinks, after.Sinks) {
		b.Errorf("overview: %q", o.Sinks)
	}
	for _, bad := range []string{"", "'; --", "a/b", "abcdefghijklmnopqrstuvwxyz"} {
		m := monitor.Member{Session: b.session, Instance: lease.NewInstance("x", ""), Sinks: []string{bad}}
		if err := b.RegisterMember(b.ctx, m); !errors.Is(err, lease.ErrInvalid) {
			b.Errorf("sink %q: %v", bad, err)
		}
	}
}

func testMember(b *bench) {
	m := monitor.Member{
		Session: b.session, Instance: lease.NewInstance("one", "127.0.0.1:80"), Process: 4711, Host: "h'ost", Service: "hb \"a\"",
		Active: true, Partitions: 17, Sinks: []string{"b", "a"},
	}
	for i := range 3 {
		m.Partitions, m.Active = i, i == 1
		if err := b.RegisterMember(b.ctx, m); err != nil {
			b.Fatal(err)
		}
		o := b.overview()
		if len(o.Members) != 1 {
			b.Fatalf("members %+v", o.Members)
		}
		got := o.Members[0]
		slices.Sort(got.Sinks)
		if got.Session != m.Session || got.Process != m.Process || got.Host != m.Host || got.Service != m.Service || got.Active != m.Active || got.Partitions != i || !slices.Equal(got.Sinks, []string{"a", "b"}) {
			b.Errorf("member %+v, want %+v", got, m)
		}
	}
}

func testDeadMember(b *bench) {
	if b.rig.Sessions == nil {
		b.Skip("this rig has no sessions")
	}
	one, two := b.begin("one"), b.begin("two")
	for _, s := range []string{one, two} {
		if err := b.RegisterMember(b.ctx, monitor.Member{Session: s, Instance: lease.NewInstance("x", ""), Process: 7, Host: "same", Active: s == one}); err != nil {
			b.Fatal(err)
		}
	}
	if err := b.rig.Sessions.EndSession(b.ctx, one, "test"); err != nil {
		b.Fatal(err)
	}
	if o := b.overview(); len(o.Members) != 1 || o.Members[0].Session != two {
		b.Errorf("members %+v", o.Members)
	}
	for _, s := range []string{one, "never was"} {
		if err := b.RegisterMember(b.ctx, monitor.Member{Session: s, Instance: lease.NewInstance("x", ""), Sinks: []string{"late"}}); !errors.Is(err, lease.ErrLapsed) {
			b.Errorf("Enlist of a session that is over: %v", err)
		}
	}
	if s := b.settings(); len(s.Sinks) != 0 {
		b.Errorf("its sinks: %+v", s)
	}
	// The next that takes part has the same process id and host, and is another.
	if err := b.RegisterMember(b.ctx, monitor.Member{Session: two, Instance: lease.NewInstance("x", ""), Process: 7, Host: "same", Active: true}); err != nil {
		b.Fatal(err)
	}
	if o := b.overview(); len(o.Members) != 1 || !o.Members[0].Active {
		b.Errorf("members %+v", o.Members)
	}
}

func testGenerations(b *bench) {
	var seen []int64
	note := func(what string) {
		b.Helper()
		s := b.settings()
		if slices.Contains(seen, s.Generation) {
			b.Errorf("%s left generation %d, of %v", what, s.Generation, seen)
		}
		seen = append(seen, s.Generation)
	}
	note("nothing")
	b.configure(each("e"))
	note("a new event")
	e := each("e")
	e.Severity = "low"
	b.configure(e)
	note("a change of an event")
	b.enlist("one")
	note("a new sink")
	b.act(monitor.Action{Type: monitor.ActionPause, Check: "e", Who: "ops"})
	note("a pause of an event")
	b.act(monitor.Action{Type: monitor.ActionResume, Check: "e", Who: "ops"})
	note("its end")
	b.act(monitor.Action{Type: monitor.ActionRemoveSink, Source: "one", Who: "ops"})
	note("a dropped sink")
	b.configure(each("f"))
	note("a removed event")
	last := b.settings().Generation
	b.beat(b.resolve("f", "a")...)
	b.look()
	if got := b.settings().Generation; got != last {
		b.Errorf("a beat moved the generation from %d to %d", last, got)
	}
}

// view reads one, whose columns must be these.
func (b *bench) view(name string, columns ...string) (rows []map[string]string) {
	b.Helper()
	if b.rig.View == nil {
		b.Skip("this store has no views")
	}
	got, all := b.rig.View(b.t, name)
	if !slices.Equal(got, columns) {
		b.Fatalf("%s has the columns %q, want %q", name, got, columns)
	}
	for _, row := range all {
		m := map[string]string{}
		for i, c := range columns {
			m[c] = row[i]
		}
		rows = append(rows, m)
	}
	return rows
}

// row finds the one with that value.
func (b *bench) row(rows []map[string]string, column, value string) map[string]string {
	b.Helper()
	i := slices.IndexFunc(rows, func(r map[string]string) bool { return r[column] == value })
	if i < 0 {
		b.Fatalf("no row with %s %q in %v", column, value, rows)
	}
	return rows[i]
}

func (b *bench) wantRow(row, want map[string]string) {
	b.Helper()
	for c, v := range want {
		if row[c] != v {
			b.Errorf("%s is %q, want %q: %v", c, row[c], v, row)
		}
	}
}

func (b *bench) table1() []map[string]string {
	b.Helper()
	return b.view("vnf_table_1", "event_name", "heartbeat_missed_count", "heartbeat_interval", "closed_control_loop_name", "policy_version",
		"policy_name", "policy_scope", "target_type", "target", "version", "source_name_count", "validity_flag")
}

func (b *bench) table2() []map[string]string {
	b.Helper()
	return b.view("vnf_table_2", "event_name", "source_name_key", "last_epo_time", "source_name", "cl_flag")
}

func testTable1(b *bench) {
	e := full("full")
	e.Interval, e.Fixed = 90*1e9, false
	b.configure(e, each("gone"))
	b.resolve("full", "a", "b", "c")
	b.resolve("gone", "a")
	b.configure(e)
	rows := b.table1()
	b.wantRow(b.row(rows, "event_name", "full"), map[string]string{
		"heartbeat_missed_count": "7", "heartbeat_interval": "90", "closed_control_loop_name": "CL", "policy_version": "1.0", "policy_name": "p",
		"policy_scope": "s", "target_type": "VM", "target": "t", "version": "v", "source_name_count": "3", "validity_flag": "1",
	})
	b.wantRow(b.row(rows, "event_name", "gone"), map[string]string{"source_name_count": "1", "validity_flag": "0", "target_type": "VNF"})
}

func testTable2(b *bench) {
	ids := b.ready("a", "b")
	b.onset(ids[0])
	rows := b.table2()
	one, two := b.row(rows, "source_name", "a"), b.row(rows, "source_name", "b")
	b.wantRow(one, map[string]string{"event_name": "e", "cl_flag": "1"})
	b.wantRow(two, map[string]string{"event_name": "e", "cl_flag": "0"})
	keys := slices.Sorted(slices.Values([]string{one["source_name_key"], two["source_name_key"]}))
	if !slices.Equal(keys, []string{"1", "2"}) {
		b.Errorf("source_name_key: %q, want 1 and 2", keys)
	}
	var ms int64
	if _, err := fmt.Sscan(one["last_epo_time"], &ms); err != nil || !near(b.source("e", "a").Last, b.now()) || ms < b.now().Add(-slack).UnixMilli() || ms > b.now().Add(slack).UnixMilli() {
		b.Errorf("last_epo_time %q, now %d, %v", one["last_epo_time"], b.now().UnixMilli(), err)
	}
}

func testCommon(b *bench) {
	columns := []string{"process_id", "source_name", "last_accessed_time", "current_state"}
	if b.rig.Sessions == nil {
		b.Skip("this rig has no sessions")
	}
	other := b.begin("other")
	for _, m := range []monitor.Member{
		{Session: b.session, Instance: lease.NewInstance("x", ""), Process: 7, Host: "host-a", Service: "hb"},
		{Session: other, Instance: lease.NewInstance("y", ""), Process: 7, Host: "host-b", Service: "hb", Active: true},
	} {
		if err := b.RegisterMember(b.ctx, m); err != nil {
			b.Fatal(err)
		}
	}
	want := map[string]string{"process_id": "7", "source_name": "host-b-hb", "current_state": "RECONFIGURATION"}
	rows := b.view("hb_common", columns...)
	if len(rows) != 1 {
		b.Fatalf("rows %v", rows)
	}
	b.wantRow(rows[0], want)
	b.configure(each("e"))
	want["current_state"] = "RUNNING"
	rows = b.view("hb_common", columns...)
	if len(rows) != 1 {
		b.Fatalf("rows %v", rows)
	}
	b.wantRow(rows[0], want)
	var at int64
	if _, err := fmt.Sscan(rows[0]["last_accessed_time"], &at); err != nil || at < b.now().Add(-slack).Unix() || at > b.now().Add(slack).Unix() {
		b.Errorf("last_accessed_time %q, now %d, %v", rows[0]["last_accessed_time"], b.now().Unix(), err)
	}
}

func testHostileViews(b *bench) {
	if b.rig.View == nil {
		b.Skip("this store has no views")
	}
	var events []monitor.Check
	for _, name := range hostileNames() {
		e := each(name)
		e.ControlLoop.Name = name
		events = append(events, e)
	}
	b.configure(events...)
	for _, name := range hostileNames() {
		b.resolve(name, name)
	}
	one, two := b.table1(), b.table2()
	for _, name := range hostileNames() {
		b.wantRow(b.row(one, "event_name", name), map[string]string{"closed_control_loop_name": name, "source_name_count": "1"})
		b.wantRow(b.row(two, "event_name", name), map[string]string{"source_name": name, "source_name_key": "1", "cl_flag": "0"})
	}
}
