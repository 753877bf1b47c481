package monitortest

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/understudy-ha/understudy/history"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/monitor"
)

func groupTests() map[string]func(*bench) {
	return map[string]func(*bench){
		"group/held alarms are listed":                testHeld,
		"group/reported as one":                       testReported,
		"group/reported each by itself":               testReportedAlone,
		"group/who joined later":                      testJoined,
		"group/only while all members are held":       testReportUndone,
		"group/ends when none stands, and not before": testGroupEnds,
		"group/of two reports one is made":            testReportTwice,
		"group/groups are apart":                      testGroupsApart,
		"group/of more than a report takes":           testHuge,
	}
}

// hold raises alarms that are held for a group.
func (b *bench) hold(group string, ids ...int64) (alarms []string) {
	b.Helper()
	for _, id := range ids {
		c := b.change(b.candidate(id), monitor.Onset)
		c.Group, c.Notifications = group, nil
		b.apply(c)
		alarms = append(alarms, c.Alarm)
	}
	return alarms
}

func (b *bench) held() []monitor.AlarmGroup {
	b.Helper()
	got, err := b.HeldGroups(b.ctx)
	if err != nil {
		b.Fatalf("Held: %v", err)
	}
	return got
}

// wantHeld checks that this group alone is listed, with these members held.
func (b *bench) wantHeld(group, alarm string, standing int, members ...string) monitor.AlarmGroup {
	b.Helper()
	got := b.held()
	if len(got) != 1 {
		b.Fatalf("groups %+v, want %s", got, group)
	}
	var ids []string
	for _, m := range got[0].Members {
		ids = append(ids, m.ID)
	}
	if g := got[0]; g.Group != group || g.Alarm != alarm || g.Check != "e" || g.Standing != standing || g.Count != len(members) || !slices.Equal(slices.Sorted(slices.Values(ids)), slices.Sorted(slices.Values(members))) {
		b.Fatalf("group %+v, want %s with the alarm %q, %d standing and %q held", g, group, alarm, standing, members)
	}
	return got[0]
}

func (b *bench) wantNoneHeld() {
	b.Helper()
	if got := b.held(); len(got) != 0 {
		b.Fatalf("groups %+v, want none", got)
	}
}

// report reports a group's alarm, and reports whether it was made. Its notice has the
// id of the alarm.
func (b *bench) report(group, alarm string, members ...string) bool {
	b.Helper()
	n := notice("group", alarm, monitor.Onset)
	if alarm == "" {
		n.ID = "alone " + members[0]
	}
	made, err := b.ReportGroup(b.ctx, monitor.GroupReport{Group: group, Alarm: alarm, Members: members, At: b.now(), Notifications: []monitor.Notification{n}})
	if err != nil {
		b.Fatalf("Report: %v", err)
	}
	return made
}

func (b *bench) mustReport(group, alarm string, members ...string) {
	b.Helper()
	if !b.report(group, alarm, members...) {
		b.Fatalf("the report of %q as %q was not made", members, alarm)
	}
}

func (b *bench) endGroup(group, alarm string, why monitor.Transition) bool {
	b.Helper()
	made, err := b.ReportGroup(b.ctx, monitor.GroupReport{Group: group, Alarm: alarm, End: why, At: b.now(), Notifications: []monitor.Notification{notice("group", alarm, monitor.Abated)}})
	if err != nil {
		b.Fatalf("Report: %v", err)
	}
	return made
}

// abate ends the alarms of sources.
func (b *bench) abate(ids ...int64) {
	b.Helper()
	for _, id := range ids {
		b.beat(id)
		b.apply(b.change(b.candidate(id), monitor.Abated))
	}
}

func testHeld(b *bench) {
	ids := b.ready("a", "b", "c")
	b.wantNoneHeld()
	one := b.hold("e/site 7", ids[0])
	b.step(time.Hour)
	two := b.hold("e/site 7", ids[1])
	b.onset(ids[2])
	g := b.wantHeld("e/site 7", "", 0, one[0], two[0])
	if g.Members[0].ID != one[0] || g.Members[0].Source != "a" || !near(g.Oldest, time.Hour) {
		b.Errorf("%+v", g)
	}
	// A wall clock that is set back makes none wait for longer.
	b.step(-2 * time.Hour)
	b.wantHeld("e/site 7", "", 0, one[0], two[0]) // the store notices at its next call
	b.step(time.Minute)
	if g := b.wantHeld("e/site 7", "", 0, one[0], two[0]); !near(g.Oldest, time.Hour+time.Minute) {
		b.Errorf("after a step back the oldest has waited for %v", g.Oldest)
	}
	b.beat(ids...)
	if c := b.candidate(ids[0]); !c.AlarmHeld || c.Group != "" {
		b.Errorf("a held one: %+v", c)
	}
	if c := b.candidate(ids[2]); c.AlarmHeld || c.Group != "" {
		b.Errorf("one that is not: %+v", c)
	}
	b.abate(ids[0])
	b.wantHeld("e/site 7", "", 0, two[0])
	b.abate(ids[1])
	b.wantNoneHeld()
}

func testReported(b *bench) {
	ids := b.ready("a", "b", "c")
	alarms := b.hold("e/site 7", ids...)
	group := lease.NewID()
	b.mustReport("e/site 7", group, alarms...)
	b.wantNoneHeld()
	a := b.alarm(group)
	if a.Check != "e" || a.Source != "" || a.Group != "e/site 7" || a.Members != 3 || a.End != "" || !near(a.Started, b.now()) || !near(a.Raised, b.now()) {
		b.Errorf("the group's alarm: %+v", a)
	}
	for _, id := range alarms {
		if m := b.alarm(id); m.Group != "e/site 7" || m.End != "" {
			b.Errorf("a member's alarm: %+v", m)
		}
	}
	b.beat(ids...)
	if c := b.candidate(ids[0]); c.AlarmHeld || c.Group != group {
		b.Errorf("a member: %+v", c)
	}
	if b.rig.Sent != nil {
		b.wantSent("group", group+"/ONSET")
	}
}

func testReportedAlone(b *bench) {
	ids := b.ready("a", "b")
	alarms := b.hold("e/site 7", ids...)
	b.mustReport("e/site 7", "", alarms...)
	b.wantNoneHeld()
	for _, id := range alarms {
		if a := b.alarm(id); a.Group != "" || a.End != "" {
			b.Errorf("reported by itself: %+v", a)
		}
	}
	b.beat(ids...)
	if c := b.candidate(ids[0]); c.AlarmHeld || c.Group != "" {
		b.Errorf("%+v", c)
	}
	if b.rig.Sent != nil {
		b.wantSent("group", "alone "+alarms[0])
	}
}

func testJoined(b *bench) {
	ids := b.ready("a", "b", "c", "d")
	first := b.hold("e/site 7", ids[:2]...)
	group := lease.NewID()
	b.mustReport("e/site 7", group, first...)
	later := b.hold("e/site 7", ids[2:]...)
	b.wantHeld("e/site 7", group, 2, later...)
	if b.report("e/site 7", lease.NewID(), later...) {
		b.Error("a second alarm for a group whose alarm stands")
	}
	b.mustReport("e/site 7", group, later...)
	b.wantNoneHeld()
	if a := b.alarm(group); a.Members != 4 {
		b.Errorf("%+v", a)
	}
	b.beat(ids[3])
	if c := b.candidate(ids[3]); c.Group != group {
		b.Errorf("%+v", c)
	}
}

func testReportUndone(b *bench) {
	ids := b.ready("a", "b", "c")
	alarms := b.hold("e/site 7", ids[:2]...)
	other := b.onset(ids[2])
	b.abate(ids[0])
	for what, members := range map[string][]string{
		"one has ended":     alarms,
		"one is not held":   {alarms[1], other},
		"one is unheard of": {alarms[1], "x"},
	} {
		if b.report("e/site 7", lease.NewID(), members...) || b.report("e/site 7", "", members...) {
			b.Errorf("%s, and the report was made", what)
		}
	}
	if b.report("e/site 8", lease.NewID(), alarms[1]) {
		b.Error("it is of another group, and the report was made")
	}
	b.wantHeld("e/site 7", "", 0, alarms[1])
	if b.rig.Sent != nil {
		b.wantSent("group")
	}
	if all, err := b.Alarms(b.ctx, monitor.AlarmQuery{Standing: true}); err != nil || len(all) != 2 {
		b.Errorf("alarms %+v, %v", all, err)
	}
}

func testGroupEnds(b *bench) {
	ids := b.ready("a", "b", "c")
	group := lease.NewID()
	b.mustReport("e/site 7", group, b.hold("e/site 7", ids[:2]...)...)
	if b.endGroup("e/site 7", group, monitor.Abated) {
		b.Fatal("it ended with two of it standing")
	}
	b.step(time.Hour)
	b.abate(ids[0])
	if b.endGroup("e/site 7", group, monitor.Abated) {
		b.Fatal("it ended with one of it standing")
	}
	b.wantNoneHeld()
	b.abate(ids[1])
	b.wantHeld("e/site 7", group, 0)
	if !b.endGroup("e/site 7", group, monitor.Abated) || b.endGroup("e/site 7", group, monitor.Abated) {
		b.Fatal("it ends once none of it stands, and once only")
	}
	if a := b.alarm(group); a.End != monitor.Abated || !near(a.Ended, b.now()) {
		b.Errorf("%+v", a)
	}
	b.wantNoneHeld()
	told := []history.Event{{Reason: "silent"}, {Reason: "ABATED", Duration: time.Hour}}
	b.wantHistory("e/site 7", told...)
	if b.rig.Sent != nil {
		b.wantSent("group", group+"/ONSET", group+"/ABATED")
	}
	next := lease.NewID()
	last := monitor.GroupReport{Group: "e/site 7", Alarm: next, Members: b.hold("e/site 7", ids[2]), At: b.now().Add(-2 * time.Hour)}
	if made, err := b.ReportGroup(b.ctx, last); !made || err != nil {
		b.Fatalf("the next alarm of the group: %v, %v", made, err)
	}
	if a := b.alarm(next); a.Members != 1 || a.End != "" {
		b.Errorf("the next alarm of the group: %+v", a)
	}
	b.act(monitor.Action{Type: monitor.ActionRetire, Check: "e", Source: "c", Who: "ops"})
	b.apply(b.change(b.candidate(ids[2]), monitor.Retire))
	if !b.endGroup("e/site 7", next, monitor.Retire) || b.alarm(next).End != monitor.Retire {
		b.Errorf("it has ended with its member, which was retired: %+v", b.alarm(next))
	}
	b.wantHistory("e/site 7", append(told, history.Event{Reason: "silent", Duration: 2 * time.Hour}, history.Event{Reason: "retire", Duration: 2 * time.Hour})...)
}

func testReportTwice(b *bench) {
	ids := b.ready("a", "b", "c")
	alarms := b.hold("e/site 7", ids[:2]...)
	group := lease.NewID()
	b.mustReport("e/site 7", group, alarms...)
	if b.report("e/site 7", lease.NewID(), alarms...) || b.report("e/site 7", group, alarms...) || b.report("e/site 7", "", alarms...) {
		b.Error("what was reported is reported again")
	}
	later := b.hold("e/site 7", ids[2])
	for what, r := range map[string]monitor.GroupReport{
		"a member twice":               {Alarm: group, Members: []string{later[0], later[0]}},
		"a member twice, alone":        {Members: []string{later[0], later[0]}},
		"no members":                   {Alarm: group},
		"no members, and no alarm":     {},
		"too many members":             {Alarm: group, Members: make([]string, monitor.MaxSources+1)},
		"an end without its alarm":     {End: monitor.Abated},
		"an end with members":          {Alarm: group, End: monitor.Abated, Members: later},
		"an end that ends nothing":     {Alarm: group, End: monitor.Onset},
		"a notification without a key": {Alarm: group, Members: later, Notifications: []monitor.Notification{{Sink: hook, ID: "x"}}},
	} {
		r.Group, r.At = "e/site 7", b.now()
		if r.Notifications == nil {
			r.Notifications = []monitor.Notification{notice("group", what, monitor.Onset)}
		}
		if made, err := b.ReportGroup(b.ctx, r); made || !errors.Is(err, lease.ErrInvalid) {
			b.Errorf("%s: %v, %v; want ErrInvalid", what, made, err)
		}
	}
	b.wantHeld("e/site 7", group, 2, later...)
	if a := b.alarm(group); a.Members != 2 {
		b.Errorf("%+v", a)
	}
	if b.rig.Sent != nil {
		b.wantSent("group", group+"/ONSET")
	}
}

// testHuge: of a group of any size, all are counted, and as many named as one report takes.
func testHuge(b *bench) {
	const more = 5
	b.enlist(hook)
	b.configure(each("e"))
	for _, n := range []int{monitor.MaxSources, more} {
		names := make([]string, n)
		for i := range names {
			names[i] = fmt.Sprint(n, "-", i)
		}
		b.resolve("e", names...)
	}
	b.prove()
	b.step(limit + slack)
	b.prove()
	for l := b.look(); len(l.Candidates) > 0; l = b.look() {
		var changes []monitor.SourceChange
		for _, c := range l.Candidates {
			ch := b.change(c, monitor.Onset)
			ch.Group, ch.Notifications = "e/7", nil
			changes = append(changes, ch)
		}
		b.apply(changes...)
	}
	group := lease.NewID()
	for _, want := range []int{monitor.MaxSources + more, more} {
		held := b.held()
		if len(held) != 1 || held[0].Count != want || len(held[0].Members) != min(want, monitor.MaxSources) {
			b.Fatalf("%d groups, want one of %d", len(held), want)
		}
		var members []string
		for _, m := range held[0].Members {
			members = append(members, m.ID)
		}
		b.mustReport("e/7", group, members...)
	}
	b.wantNoneHeld()
	if a := b.alarm(group); a.Members != monitor.MaxSources+more {
		b.Errorf("the group's alarm has %d members", a.Members)
	}
}

func testGroupsApart(b *bench) {
	ids := b.ready("a", "b", "c", "d")
	b.hold("e/'; --", ids[0], ids[1])
	b.hold("e/%", ids[2])
	b.hold("e/"+"日本", ids[3])
	var got []string
	for _, g := range b.held() {
		got = append(got, g.Group)
		if want := map[string]int{"e/'; --": 2}[g.Group]; len(g.Members) != max(1, want) {
			b.Errorf("%+v", g)
		}
	}
	slices.Sort(got)
	if want := []string{"e/%", "e/'; --", "e/日本"}; !slices.Equal(got, want) {
		b.Errorf("groups %q, want %q", got, want)
	}
}
