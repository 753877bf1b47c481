package monitortest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/monitor"
)

func applyTests() map[string]func(*bench) {
	return map[string]func(*bench){
		"apply/a beat in between undoes it":             testBeatBetween,
		"apply/a signal in between undoes it":           testSignalBetween,
		"apply/a person in between undoes it":           testPersonBetween,
		"apply/a change of its event undoes it":         testEventBetween,
		"apply/another's turn undoes it":                testTurnBetween,
		"apply/a mere look undoes nothing":              testLookBetween,
		"apply/a beat after a beat's undoing":           testJudgedAgain,
		"apply/of two at once one is made":              testApplyRace,
		"apply/beat and onset at once":                  testBeatRace,
		"apply/those that cannot be harm no others":     testSomeApply,
		"apply/a thousand, none, too many":              testApplyMany,
		"apply/what cannot be is refused":               testApplyRefused,
		"apply/notices are enqueued if it is made":      testNotices,
		"apply/notices for all sinks":                   testNoticeForAll,
		"apply/notices of one id are enqueued once":     testNoticeOnce,
		"apply/notices keep their order":                testNoticeOrder,
		"apply/a sink that was dropped holds nobody up": testNoticeDropped,
		"apply/payloads and keys are exact":             testPayloads,
		"apply/a payload that names a thousand":         testLargePayload,
	}
}

func testBeatBetween(b *bench) {
	for i, turn := range []monitor.Transition{monitor.Onset, monitor.Retire, monitor.NoTransition} {
		id := b.ready("a", "b", "c")[i]
		c := b.change(b.candidate(id), turn)
		b.beat(id)
		b.refused(c, "a beat came before "+string(turn))
		b.wantDue(id, true)
	}
	if all, err := b.Alarms(b.ctx, monitor.AlarmQuery{}); err != nil || len(all) != 0 {
		b.Errorf("alarms: %+v, %v", all, err)
	}
	// The other way round: it beats when the alarm is to end.
	id := b.ready("d")[0]
	b.onset(id)
	b.beat(id)
	c := b.change(b.candidate(id), monitor.Abated)
	b.beat(id)
	b.refused(c, "a beat came before ABATED")
	b.wantDue(id, true)
	if s := b.source("e", "d"); s.State != monitor.Down {
		b.Errorf("%+v", s)
	}
}

func testSignalBetween(b *bench) {
	for i, signal := range []monitor.Signal{monitor.SignalStart, monitor.SignalFail} {
		id := b.ready("a", "b")[i]
		c := b.change(b.candidate(id), monitor.Onset)
		b.signal(signal, id)
		b.refused(c, "a signal came before")
		b.wantDue(id, true)
	}
}

func testPersonBetween(b *bench) {
	for i, verb := range []monitor.ActionType{monitor.ActionPause, monitor.ActionRetire} {
		name := []string{"a", "b"}[i]
		id := b.ready("a", "b")[i]
		c := b.change(b.candidate(id), monitor.Onset)
		b.act(monitor.Action{Type: verb, Check: "e", Source: name, Who: "ops"})
		b.refused(c, "a person did "+string(verb))
	}
}

func testEventBetween(b *bench) {
	id := b.ready("a")[0]
	c := b.change(b.candidate(id), monitor.Onset)
	changed := each("e")
	changed.Missed = 50
	b.configure(changed)
	b.refused(c, "the event was changed")
	b.wantDue(id, true)
	c = b.change(b.candidate(id), monitor.Onset)
	b.act(monitor.Action{Type: monitor.ActionPause, Check: "e", Who: "ops"})
	b.refused(c, "the event was paused")
	c = b.change(b.candidate(id), monitor.Onset)
	b.configure(each("other"))
	b.refused(c, "the event was removed")
}

func testTurnBetween(b *bench) {
	id := b.ready("a")[0]
	one, two := b.change(b.candidate(id), monitor.Onset), b.change(b.candidate(id), monitor.Onset)
	b.apply(one)
	b.refused(two, "another raised the alarm")
	b.refused(one, "the same change again")
	if all, err := b.Alarms(b.ctx, monitor.AlarmQuery{}); err != nil || len(all) != 1 || all[0].ID != one.Alarm {
		b.Errorf("alarms: %+v, %v", all, err)
	}
	if b.rig.Sent != nil {
		b.wantSent("a", one.Alarm+"/ONSET")
	}
	three := b.change(monitor.Candidate{ID: id, Rev: one.Rev, BeatRev: one.BeatRev, CheckRev: one.CheckRev}, monitor.Retire)
	b.refused(three, "judged before the alarm")
	if made := b.tryApply(b.change(b.reread(id), monitor.NoTransition), b.change(b.reread(id), monitor.Abated), b.change(b.reread(id), monitor.Abated)); !made[1] || made[2] {
		b.Errorf("the same source three times in a call: %v", made)
	}
}

// reread makes a source whose alarm stands due, and reads it.
func (b *bench) reread(id int64) monitor.Candidate {
	b.Helper()
	if c, ok := b.find(id); ok {
		return c
	}
	b.beat(id)
	return b.candidate(id)
}

// testLookBetween: two instances look, and only one of them has something to do.
func testLookBetween(b *bench) {
	id := b.ready("a")[0]
	c := b.candidate(id)
	b.apply(b.change(c, monitor.NoTransition))
	b.apply(b.change(c, monitor.Onset))
	if s := b.source("e", "a"); s.State != monitor.Down {
		b.Errorf("%+v", s)
	}
}

func testJudgedAgain(b *bench) {
	id := b.ready("a")[0]
	c := b.change(b.candidate(id), monitor.Onset)
	b.beat(id)
	b.refused(c, "a beat came before")
	b.onset(id)
	b.beat(id)
	b.apply(b.change(b.candidate(id), monitor.Abated))
	if s := b.source("e", "a"); s.State != monitor.Up {
		b.Errorf("%+v", s)
	}
}

func testApplyRace(b *bench) {
	ids := b.ready("a", "b", "c", "d")
	handles := []monitor.Store{b.Store, b.other()}
	for range 5 {
		var g sync.WaitGroup
		var made [4]atomic.Int64
		look := b.look().Candidates
		for i := range 4 {
			var changes []monitor.SourceChange
			for _, c := range look {
				turn := monitor.Onset
				if c.Alarm != "" {
					turn = monitor.Abated
				}
				changes = append(changes, b.change(c, turn))
			}
			if i%2 == 1 {
				slices.Reverse(changes)
			}
			g.Go(func() {
				got, err := handles[i%2].ApplyChanges(b.ctx, changes)
				if err != nil {
					b.Errorf("Apply: %v", err)
				}
				for k, ok := range got {
					if ok {
						made[slices.Index(ids, changes[k].ID)].Add(1)
					}
				}
			})
		}
		g.Wait()
		for i := range made {
			if n := made[i].Load(); n != 1 {
				b.Fatalf("four judged source %d at once: %d changes were made", i, n)
			}
		}
		b.beat(ids...)
		b.makeDue(ids...)
	}
}

// makeDue has sources that stay up be due.
func (b *bench) makeDue(ids ...int64) {
	b.Helper()
	b.signal(monitor.SignalStart, ids...)
	b.beat(ids...)
}

// testBeatRace: whichever comes first, an alarm that was raised before a beat is
// looked at again after it, and none is raised on what was before it.
func testBeatRace(b *bench) {
	ids := b.ready("a", "b", "c", "d", "f", "g")
	other := b.other()
	for round := range 8 {
		var changes []monitor.SourceChange
		before := map[int64]monitor.StoreTime{}
		for _, id := range ids {
			c := b.candidate(id)
			before[id] = c.LastBeat
			changes = append(changes, b.change(c, monitor.Onset))
		}
		var g sync.WaitGroup
		var made []bool
		g.Go(func() { made = b.tryApply(changes...) })
		g.Go(func() {
			for i := range ids {
				d := monitor.HeartbeatBatch{Probes: []monitor.Probe{proof("p")}, Beats: []monitor.HeartbeatUpdate{{Source: ids[(i+round)%len(ids)], Count: 1}}}
				if _, err := other.RecordHeartbeats(b.ctx, d); err != nil {
					b.Errorf("Store: %v", err)
				}
			}
		})
		g.Wait()
		for i, id := range ids {
			c, due := b.find(id)
			switch {
			case !due:
				b.Fatalf("source %d beat while its alarm was raised (made: %v), and nobody will look", i, made[i])
			case made[i] && c.Alarm == "", !made[i] && c.Alarm != "":
				b.Fatalf("source %d: made %v, alarm %q", i, made[i], c.Alarm)
			case made[i]:
				b.apply(b.change(c, monitor.Abated))
			}
		}
		b.makeDue(ids...)
	}
}

func testSomeApply(b *bench) {
	ids := b.ready("a", "b", "c")
	one, two, three := b.change(b.candidate(ids[0]), monitor.Onset), b.change(b.candidate(ids[1]), monitor.Onset), b.change(b.candidate(ids[2]), monitor.Onset)
	b.beat(ids[1])
	stranger := one
	stranger.ID = max(ids[0], ids[1], ids[2]) + 1000
	stranger.Alarm = lease.NewID()
	if made := b.tryApply(stranger, one, two, three); !slices.Equal(made, []bool{false, true, false, true}) {
		b.Errorf("made %v", made)
	}
	if b.rig.Sent != nil {
		b.wantSent("a", one.Alarm+"/ONSET")
		b.wantSent("b")
		b.wantSent("c", three.Alarm+"/ONSET")
	}
}

func testApplyMany(b *bench) {
	if made := b.tryApply(); len(made) != 0 {
		b.Errorf("none: %v", made)
	}
	names := make([]string, monitor.MaxSources)
	for i := range names {
		names[i] = fmt.Sprint("s", i)
	}
	b.ready(names...)
	var changes []monitor.SourceChange
	for _, c := range b.look().Candidates {
		changes = append(changes, b.change(c, monitor.Onset))
	}
	if len(changes) != len(names) {
		b.Fatalf("%d are due", len(changes))
	}
	b.apply(changes...)
	if b.rig.Sent != nil {
		if got := b.rig.Sent(b.t, hook); len(got) != len(names) {
			b.Errorf("%d notices, want %d", len(got), len(names))
		}
	}
	if _, err := b.ApplyChanges(b.ctx, make([]monitor.SourceChange, monitor.MaxSources+1)); !errors.Is(err, lease.ErrInvalid) {
		b.Errorf("more than MaxSources: %v", err)
	}
}

// testApplyRefused: what cannot be a change is refused, and what comes with it.
func testApplyRefused(b *bench) {
	ids := b.ready("a", "b")
	whole := b.change(b.candidate(ids[0]), monitor.Onset)
	for what, spoil := range map[string]func(*monitor.SourceChange){
		"an ONSET without an id":   func(c *monitor.SourceChange) { c.Alarm = "" },
		"an ONSET without a time":  func(c *monitor.SourceChange) { c.At = time.Time{} },
		"an unknown transition":    func(c *monitor.SourceChange) { c.Transition = "explode" },
		"a notification of no key": func(c *monitor.SourceChange) { c.Notifications[0].Key = "" },
	} {
		spoiled := b.change(b.candidate(ids[1]), monitor.Onset)
		spoil(&spoiled)
		if made, err := b.ApplyChanges(b.ctx, []monitor.SourceChange{whole, spoiled}); !errors.Is(err, lease.ErrInvalid) {
			b.Errorf("%s: %v, %v; want ErrInvalid", what, made, err)
		}
	}
	b.apply(whole)
	spoiled := []monitor.Notification{{Sink: hook, Key: "k", ID: strings.Repeat("i", 1000)}}
	if made, err := b.Remind(b.ctx, monitor.Reminder{Alarm: whole.Alarm, Number: 1, Notifications: spoiled}); !errors.Is(err, lease.ErrInvalid) {
		b.Errorf("a reminder whose id is too long: %v, %v; want ErrInvalid", made, err)
	}
	if a := b.alarm(whole.Alarm); a.Reminders != 0 {
		b.Errorf("%+v", a)
	}
}
