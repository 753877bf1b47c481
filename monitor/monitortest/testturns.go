package monitortest

import (
	"maps"
	"slices"
	"time"

	"github.com/understudy-ha/understudy/monitor"
)

func turnTests() map[string]func(*bench) {
	return map[string]func(*bench){
		"turn/onset and abated":                          testOutage,
		"turn/the next outage is another alarm":          testNextOutage,
		"turn/onsets within the flap window":             testOnsets,
		"turn/well since":                                testWell,
		"turn/a pause ends by itself":                    testPauseEnds,
		"turn/an alarm of a paused source":               testPausedAlarm,
		"turn/retire and return":                         testRetire,
		"turn/forget ends the alarm and the source":      testForget,
		"D15 turn/a removed event ends standing alarms":  testRemovedAlarms,
		"D15 turn/a name that comes back keeps its own":  testRevived,
		"turn/each is an event of the history":           testHistory,
		"turn/the real rule: silent, back, silent again": testRealRule,
	}
}

func testOutage(b *bench) {
	b.enlist(hook)
	b.configure(each("e"))
	labels := map[string]string{"site": "7"}
	if _, err := b.Declare(b.ctx, []monitor.Declaration{{Check: "e", Source: "a", Labels: labels}}); err != nil {
		b.Fatal(err)
	}
	id := b.resolve("e", "a")[0]
	b.beat(id)
	b.step(limit + slack)
	b.prove()
	c := b.change(b.candidate(id), monitor.Onset)
	c.At = b.now().Add(-slack)
	b.apply(c)
	b.wantDue(id, false)
	want := monitor.Alarm{ID: c.Alarm, Check: "e", Source: "a", Reason: monitor.Silent}
	a := b.alarm(c.Alarm)
	if !sameAlarm(a, want) || !maps.Equal(a.Labels, labels) || !a.Ended.IsZero() {
		b.Errorf("the alarm is %+v, want %+v", a, want)
	}
	if a.Started.Sub(c.At).Abs() > time.Millisecond || !near(a.Raised, b.now()) {
		b.Errorf("started %v, want %v; raised %v, now %v", a.Started, c.At, a.Raised, b.now())
	}
	s := b.source("e", "a")
	if s.State != monitor.Down || s.Alarm != c.Alarm || s.Reason != monitor.Silent || !s.Since.Equal(a.Started) {
		b.Errorf("the source is %+v", s)
	}
	b.step(time.Hour)
	b.signal(monitor.SignalStart, id)
	if b.candidate(id).BeatSinceOnset {
		b.Error("the start of a run counts as a heartbeat since the onset")
	}
	b.beat(id)
	back := b.candidate(id)
	if !back.BeatSinceOnset {
		b.Error("a heartbeat came since the onset, and the candidate does not say so")
	}
	if back.Alarm != c.Alarm || back.Reason != monitor.Silent || !near(back.Now.Sub(back.OnsetAt), time.Hour) || !back.Started.Equal(a.Started) || back.State != monitor.Down || back.AlarmHeld || back.Group != "" {
		b.Errorf("candidate %+v", back)
	}
	end := b.change(back, monitor.Abated)
	end.At = b.now().Add(-time.Second)
	b.apply(end)
	a = b.alarm(c.Alarm)
	want.End = monitor.Abated
	if !sameAlarm(a, want) || a.Ended.Sub(end.At).Abs() > time.Millisecond {
		b.Errorf("the alarm is %+v, want %+v", a, want)
	}
	if s := b.source("e", "a"); s.State != monitor.Up || s.Alarm != "" || s.Reason != "" || !s.Since.IsZero() {
		b.Errorf("the source is %+v", s)
	}
}

// sameAlarm compares what is no time.
func sameAlarm(a, b monitor.Alarm) bool {
	return a.ID == b.ID && a.Check == b.Check && a.Source == b.Source && a.Group == b.Group && a.Reason == b.Reason && a.End == b.End && a.Members == b.Members
}

func testNextOutage(b *bench) {
	id := b.ready("a")[0]
	one := b.onset(id)
	b.beat(id)
	b.apply(b.change(b.candidate(id), monitor.Abated))
	b.makeDue(id)
	if c := b.candidate(id); c.Alarm != "" || c.OnsetAt != 0 || c.Reason != "" || !c.Started.IsZero() || c.WellSince != 0 {
		b.Errorf("between outages: %+v", c)
	}
	b.step(time.Minute)
	two := b.onset(id)
	b.stamp(monitor.HeartbeatUpdate{Source: id, Signal: monitor.SignalStart})
	if b.candidate(id).BeatSinceOnset {
		b.Error("a heartbeat of the outage before counts for this one")
	}
	b.stamp(monitor.HeartbeatUpdate{Source: id, BySender: true, Sent: b.now().Add(-time.Hour)})
	if c := b.candidate(id); !c.BeatSinceOnset || c.LastBeat >= c.OnsetAt {
		b.Errorf("a heartbeat that was sent before the onset: %+v", c)
	}
	if first, second := b.alarm(one), b.alarm(two); first.End != monitor.Abated || second.End != "" {
		b.Errorf("alarms %+v and %+v", first, second)
	}
}

func testOnsets(b *bench) {
	e := each("e")
	e.Flaps, e.FlapWindow, e.Steady = 3, 10*time.Hour, time.Hour
	b.enlist(hook)
	b.configure(e)
	id := b.resolve("e", "a")[0]
	b.prove()
	b.step(limit + slack)
	for i, want := range []int{1, 2, 3, 3, 3} {
		b.beat(id)
		b.makeDue(id)
		b.onset(id)
		b.beat(id)
		c := b.candidate(id)
		if c.RecentOnsets != want {
			b.Errorf("outage %d: %d onsets in the window, want %d", i, c.RecentOnsets, want)
		}
		b.apply(b.change(c, monitor.Abated))
		b.step(4 * time.Hour)
	}
}

func testWell(b *bench) {
	id := b.ready("a")[0]
	b.onset(id)
	b.beat(id)
	c := b.candidate(id)
	keep := b.change(c, monitor.NoTransition)
	keep.WellSince, keep.Due = c.LastBeat, c.Now
	b.apply(keep)
	if got := b.candidate(id); got.WellSince != keep.WellSince || got.State != monitor.Down {
		b.Fatalf("well since %d, want %d: %+v", got.WellSince, keep.WellSince, got)
	}
	keep = b.change(b.candidate(id), monitor.NoTransition)
	keep.Due = c.Now
	b.apply(keep)
	if got := b.candidate(id); got.WellSince != 0 {
		b.Errorf("it is not well any more, and well since %d", got.WellSince)
	}
	keep = b.change(b.candidate(id), monitor.NoTransition)
	keep.WellSince, keep.Due = c.LastBeat, c.Now
	b.apply(keep)
	b.act(monitor.Action{Type: monitor.ActionPause, Check: "e", Source: "a", For: time.Hour, Who: "ops"})
	b.step(2 * time.Hour)
	resume := b.change(b.candidate(id), monitor.Resume)
	resume.Due = c.Now
	b.apply(resume)
	if got := b.candidate(id); got.WellSince != 0 {
		b.Errorf("its pause is over, and it has been well since %d, before it", got.WellSince)
	}
}

func testPauseEnds(b *bench) {
	ids := b.ready("a", "b")
	b.act(monitor.Action{Type: monitor.ActionPause, Check: "e", Source: "a", For: time.Hour, Who: "ops", Note: "works"})
	b.act(monitor.Action{Type: monitor.ActionPause, Check: "e", Source: "b", Who: "ops"})
	s := b.source("e", "a")
	if s.State != monitor.Paused || !near(s.Until, b.now().Add(time.Hour)) || s.Note != "works" {
		b.Errorf("%+v", s)
	}
	if s := b.source("e", "b"); s.State != monitor.Paused || !s.Until.IsZero() {
		b.Errorf("%+v", s)
	}
	b.wantDue(ids[0], false)
	b.step(time.Hour + slack)
	b.prove()
	b.wantDue(ids[1], false)
	c := b.candidate(ids[0])
	if c.State != monitor.Paused || c.PausedUntil == 0 || c.PausedUntil > c.Now {
		b.Fatalf("%+v", c)
	}
	resume := b.change(c, monitor.Resume)
	resume.Due = c.Now
	b.apply(resume)
	c = b.candidate(ids[0])
	if c.State != monitor.Up || c.ExpectedFrom != resume.ExpectedFrom || c.PausedUntil != 0 {
		b.Errorf("resumed: %+v", c)
	}
	if s := b.source("e", "a"); s.Note != "" {
		b.Errorf("the note of a pause that has ended is shown: %+v", s)
	}
}

func testPausedAlarm(b *bench) {
	ids := b.ready("a", "b")
	for i, name := range []string{"a", "b"} {
		b.onset(ids[i])
		b.act(monitor.Action{Type: monitor.ActionPause, Check: "e", Source: name, For: time.Hour, Who: "ops"})
		if s := b.source("e", name); s.State != monitor.Paused || s.Alarm == "" {
			b.Fatalf("paused with an alarm: %+v", s)
		}
	}
	b.beat(ids[0])
	b.apply(b.change(b.candidate(ids[0]), monitor.Abated))
	if s := b.source("e", "a"); s.State != monitor.Paused || s.Alarm != "" {
		b.Errorf("its alarm ended while it is paused: %+v", s)
	}
	b.step(2 * time.Hour)
	b.apply(b.change(b.candidate(ids[1]), monitor.Resume))
	if s := b.source("e", "b"); s.State != monitor.Down || s.Alarm == "" {
		b.Errorf("resumed with its alarm: %+v", s)
	}
}

func testRetire(b *bench) {
	ids := b.ready("a", "b")
	alarm := b.onset(ids[0])
	b.act(monitor.Action{Type: monitor.ActionRetire, Check: "e", Source: "a", Who: "ops", Note: "scrapped"})
	c := b.candidate(ids[0])
	if !c.RetireRequested {
		b.Fatalf("a person asked for it: %+v", c)
	}
	b.apply(b.change(c, monitor.Retire), b.change(b.candidate(ids[1]), monitor.Retire))
	if a := b.alarm(alarm); a.End != monitor.Retire || a.Ended.IsZero() {
		b.Errorf("its alarm is %+v", a)
	}
	for i, name := range []string{"a", "b"} {
		if s := b.source("e", name); s.State != monitor.Retired || s.Alarm != "" {
			b.Errorf("%+v", s)
		}
		b.wantDue(ids[i], false)
	}
	if again := b.resolve("e", "a", "b"); !slices.Equal(again, ids) {
		b.Errorf("retired sources %v are found as %v", ids, again)
	}
	b.step(time.Hour)
	b.beat(ids[0])
	c = b.candidate(ids[0])
	if c.State != monitor.Retired || c.LastBeat <= c.RetiredAt || c.RetiredAt == 0 || c.RetireRequested {
		b.Fatalf("it beats again: %+v", c)
	}
	back := b.change(c, monitor.Return)
	back.Due = c.Now
	b.apply(back)
	c = b.candidate(ids[0])
	if c.State != monitor.Up || c.ExpectedFrom != back.ExpectedFrom || c.RetiredAt != 0 || c.RetireRequested {
		b.Errorf("it has returned: %+v", c)
	}
	b.wantDue(ids[1], false)
}

func testForget(b *bench) {
	ids := b.ready("a", "b")
	alarm := b.onset(ids[0])
	b.configure(each("other"))
	b.forgetAll()
	if a := b.alarm(alarm); a.End != monitor.Forget || a.Ended.IsZero() || a.Check != "e" || a.Source != "a" {
		b.Errorf("its alarm is %+v", a)
	}
	if all, err := b.Sources(b.ctx, monitor.SourceQuery{}); err != nil || len(all) != 0 {
		b.Errorf("sources %+v, %v", all, err)
	}
	if out := b.stamp(monitor.HeartbeatUpdate{Source: ids[0]}, monitor.HeartbeatUpdate{Source: ids[1]}); len(out.Unknown) != 2 {
		b.Errorf("beats of what is forgotten: %+v", out)
	}
	if b.rig.Sent != nil {
		b.wantSent("a", alarm+"/ONSET", alarm+"/forget")
	}
}

func testRemovedAlarms(b *bench) {
	ids := b.ready("a", "b", "c")
	b.onset(ids[0])
	b.later(ids[1])
	b.configure(each("other"))
	if e := b.expected("e"); !e.Removed {
		b.Errorf("%+v", e)
	}
	for _, c := range b.look().Candidates {
		if !c.Removed {
			b.Errorf("the event is removed: %+v", c)
		}
	}
	l, err := b.Sweep(b.ctx, wideGap, monitor.MaxSources)
	if err != nil || len(l.Candidates) != 3 || !near(l.Wall, b.now()) {
		b.Fatalf("Sweep: %+v, %v", l, err)
	}
	for _, c := range l.Candidates {
		other := monitor.Check{}
		if v := other.Evaluate(c.Facts); v.Transition != monitor.Forget || (c.Alarm != "") != (c.ID == ids[0]) {
			b.Errorf("the rule says %+v of %+v", v, c)
		}
	}
	b.forgetAll()
	if all, err := b.Alarms(b.ctx, monitor.AlarmQuery{Standing: true}); err != nil || len(all) != 0 {
		b.Errorf("alarms stand: %+v, %v", all, err)
	}
	if _, err := b.Sweep(b.ctx, wideGap, monitor.MaxSources); err != nil {
		b.Fatal(err)
	}
	for _, e := range b.settings().Checks {
		if e.Name == "e" {
			b.Errorf("all its sources are forgotten, and it is still there: %+v", e)
		}
	}
}

func testRevived(b *bench) {
	ids := b.ready("a", "b")
	alarm := b.onset(ids[0])
	b.configure(each("other"))
	if out := b.configure(each("e"), each("other")); !slices.Equal(out.Added, []string{"e"}) {
		b.Errorf("%+v", out)
	}
	if again := b.resolve("e", "a", "b"); !slices.Equal(again, ids) {
		b.Errorf("sources %v are now %v", ids, again)
	}
	if s := b.source("e", "a"); s.Alarm != alarm || s.State != monitor.Down {
		b.Errorf("%+v", s)
	}
	if l, err := b.Sweep(b.ctx, wideGap, monitor.MaxSources); err != nil || len(l.Candidates) != 0 {
		b.Errorf("to be forgotten: %+v, %v", l.Candidates, err)
	}
}

// judge does what a watcher does, with the real rule, until nobody has to turn.
func (b *bench) judge() (turns []monitor.Transition) {
	b.Helper()
	events := map[int64]monitor.StoredCheck{}
	for _, e := range b.settings().Checks {
		events[e.ID] = e
	}
	for range 20 {
		l := b.look()
		var changes []monitor.SourceChange
		turned := false
		for _, c := range l.Candidates {
			e := events[c.CheckID]
			ch := verdict(l, c, e.Evaluate(c.Facts))
			if ch.Transition != monitor.NoTransition {
				turned, turns = true, append(turns, ch.Transition)
			}
			changes = append(changes, ch)
		}
		b.apply(changes...)
		if !turned {
			break
		}
	}
	return turns
}

func (b *bench) wantTurns(what string, want ...monitor.Transition) {
	b.Helper()
	if got := b.judge(); !slices.Equal(got, want) {
		b.Fatalf("%s: turns %q, want %q", what, got, want)
	}
}

func testRealRule(b *bench) {
	b.enlist(hook)
	b.configure(each("e"))
	id := b.resolve("e", "a")[0]
	b.beat(id)
	b.wantTurns("just learned")
	for range 5 {
		b.step(2 * interval)
		b.beat(id)
		b.wantTurns("it beats in time")
	}
	for range 3 {
		b.step(limit - slack)
		b.prove()
		b.wantTurns("within the limit")
		b.step(3 * slack)
		b.prove()
		b.wantTurns("silent", monitor.Onset)
		b.step(5 * limit)
		b.prove()
		b.wantTurns("still silent")
		b.beat(id)
		b.wantTurns("back", monitor.Abated)
	}
	if b.rig.Sent != nil {
		sent := b.sent("a")
		if len(sent) != 6 {
			b.Errorf("notices: %q", sent)
		}
	}
}
