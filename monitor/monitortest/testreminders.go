package monitortest

import (
	"fmt"
	"time"

	"github.com/understudy-ha/understudy/monitor"
)

func reminderTests() map[string]func(*bench) {
	return map[string]func(*bench){
		"remind/until someone acknowledges":  testRemind,
		"remind/what is due":                 testRemindDue,
		"remind/groups, not their members":   testRemindGroup,
		"parents/what is known of them":      testParents,
		"parents/held back until it returns": testHeldBack,
	}
}

// remind makes a reminder, and reports whether that was done.
func (b *bench) remind(alarm string, number int) bool {
	b.Helper()
	n := monitor.Notification{Sink: hook, Key: "e/" + alarm, ID: fmt.Sprint(alarm, "/ONSET/", number), Payload: []byte(`{}`)}
	made, err := b.Remind(b.ctx, monitor.Reminder{Alarm: alarm, Number: number, Notifications: []monitor.Notification{n}})
	if err != nil {
		b.Fatalf("Remind: %v", err)
	}
	return made
}

// toRemindOf are the alarms of the check of which sinks were last notified longer ago.
func (b *bench) toRemindOf(ago time.Duration) (ids []string) {
	b.Helper()
	found, err := b.Alarms(b.ctx, monitor.AlarmQuery{Check: "e", Standing: true, NotifiedBefore: b.now().Add(-ago)})
	if err != nil {
		b.Fatal(err)
	}
	for _, a := range found {
		ids = append(ids, a.ID)
	}
	return ids
}

// standing is the alarm that stands of a source of check e.
func (b *bench) standing(source string) string {
	b.Helper()
	s := b.source("e", source)
	if s.Alarm == "" {
		b.Fatalf("no alarm of %s stands: %+v", source, s)
	}
	return s.Alarm
}

func testRemind(b *bench) {
	b.ready("a", "b")
	b.step(limit + slack)
	b.prove()
	b.wantTurns("silent", monitor.Onset, monitor.Onset)
	one, two := b.standing("a"), b.standing("b")
	for _, c := range []struct {
		number int
		made   bool
	}{{2, false}, {1, true}, {1, false}, {2, true}} {
		if made := b.remind(one, c.number); made != c.made {
			b.Errorf("reminder %d is made: %v", c.number, made)
		}
	}
	if found, err := b.Alarms(b.ctx, monitor.AlarmQuery{ID: one}); err != nil || len(found) != 1 || found[0].Reminders != 2 {
		b.Errorf("%+v, %v", found, err)
	}
	b.act(monitor.Action{Type: monitor.ActionAcknowledge, Alarm: one, Who: "ops"})
	if b.remind(one, 3) {
		b.Error("an alarm that was acknowledged")
	}
	b.beat(b.resolve("e", "b")...)
	b.wantTurns("back", monitor.Abated)
	if b.remind(two, 1) || b.remind("none", 1) {
		b.Error("an alarm that has ended, or is none")
	}
	if b.rig.Sent != nil {
		n := 0
		for _, s := range b.rig.Sent(b.t, hook) {
			if s.Key == "e/"+one {
				n++
			}
		}
		if n != 2 {
			b.Errorf("%d reminders were sent, not 2", n)
		}
	}
}

func testRemindDue(b *bench) {
	b.ready("a")
	b.step(limit + slack)
	b.prove()
	b.wantTurns("silent", monitor.Onset)
	id := b.standing("a")
	want := func(what string, ago time.Duration, want ...string) {
		b.Helper()
		if got := b.toRemindOf(ago); fmt.Sprint(got) != fmt.Sprint(want) {
			b.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	want("just raised", interval)
	b.step(interval + slack)
	want("raised an interval ago", interval, id)
	b.remind(id, 1)
	want("just reminded of", interval)
	b.step(interval + slack)
	want("reminded of an interval ago", interval, id)
	b.act(monitor.Action{Type: monitor.ActionAcknowledge, Alarm: id, Who: "ops"})
	want("acknowledged", interval)
}

func testRemindGroup(b *bench) {
	ids := b.ready("a", "b")
	alarms := b.hold("e/north", ids...)
	b.step(limit)
	if ids := b.toRemindOf(interval); len(ids) != 0 {
		b.Errorf("held alarms, of which no sink was notified: %v", ids)
	}
	if !b.report("e/north", "lead", alarms...) {
		b.Fatal("not reported")
	}
	b.step(limit)
	if ids := b.toRemindOf(interval); fmt.Sprint(ids) != "[lead]" || !b.remind("lead", 1) {
		b.Errorf("to remind of: %v", ids)
	}
}

func testParents(b *bench) {
	ids := b.ready("up", "down", "paused", "retired")
	b.act(monitor.Action{Type: monitor.ActionPause, Check: "e", Source: "paused", Who: "ops"})
	b.act(monitor.Action{Type: monitor.ActionRetire, Check: "e", Source: "retired", Who: "ops"})
	b.wantTurns("retired", monitor.Retire)
	b.step(limit + slack)
	b.beat(ids[0])
	b.wantTurns("silent", monitor.Onset)
	if _, err := b.Declare(b.ctx, []monitor.Declaration{{Check: "e", Source: "paused", Labels: map[string]string{"host": "ü"}}}); err != nil {
		b.Fatal(err)
	}
	of := []monitor.SourceRef{{Check: "e", Source: "up"}, {Check: "e", Source: "nobody"}, {Check: "e", Source: "down"}, {Check: "e", Source: "paused"}, {Check: "e", Source: "retired"},
		{Check: "none", Source: "up"}, {}, {Check: "e", Source: "up"}, {Check: "\x00", Source: "\xff"}}
	got, err := b.Parents(b.ctx, of)
	if err != nil || len(got) != len(of) {
		b.Fatalf("%d answers, %v", len(got), err)
	}
	for i, want := range []monitor.Parent{{State: monitor.Up}, {}, {State: monitor.Down, Alarm: true}, {State: monitor.Paused}, {State: monitor.Retired}, {}, {}, {State: monitor.Up}, {}} {
		if got[i].State != want.State || got[i].Alarm != want.Alarm || (got[i].LastBeat == 0) != (want.State == "") ||
			(got[i].ExpectedFrom == 0) != (want.State == "") || (got[i].Labels["host"] == "ü") != (want.State == monitor.Paused) {
			b.Errorf("%q: %+v, want %+v", of[i], got[i], want)
		}
	}
	if later := got[0].LastBeat.Sub(got[2].LastBeat); !near(later, limit+slack) {
		b.Errorf("one was heard %v after the other", later)
	}
}

// testHeldBack: a source without an alarm keeps since when it waits for its parent, and is expected anew after that.
func testHeldBack(b *bench) {
	id := b.ready("a")[0]
	b.step(limit + slack)
	b.prove()
	hold := b.change(b.candidate(id), monitor.NoTransition)
	hold.WellSince, hold.Due = b.candidate(id).Now, b.candidate(id).Now
	b.apply(hold)
	held := b.candidate(id)
	if held.WellSince != hold.WellSince || held.State != monitor.Up {
		b.Fatalf("waits since %d, want %d: %+v", held.WellSince, hold.WellSince, held)
	}
	resume := b.change(held, monitor.Resume)
	resume.Due = held.Now
	b.apply(resume)
	if got := b.candidate(id); got.WellSince != 0 || got.State != monitor.Up || got.ExpectedFrom < held.Now {
		b.Errorf("after its parent's return: %+v", got)
	}
}
