package monitortest

import (
	"errors"
	"strings"
	"time"

	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/monitor"
)

func actTests() map[string]func(*bench) {
	return map[string]func(*bench){
		"act/pause and resume a source":   testPause,
		"act/a pause over a pause":        testPauseAgain,
		"act/pause and resume an event":   testPauseEvent,
		"act/retire what is up":           testPutAway,
		"act/pause what is to be retired": testPutAwayAndPause,
		"act/remove a source":             testRemoveSource,
		"act/remove a check":              testRemoveCheck,
		"act/acknowledge":                 testAcknowledge,
		"act/drop a sink":                 testDropSink,
		"act/on what is not there":        testActNothing,
		"act/is recorded":                 testActRecorded,
	}
}

func contains(s string, parts ...string) bool {
	for _, p := range parts {
		if !strings.Contains(s, p) {
			return false
		}
	}
	return true
}

func testPause(b *bench) {
	id := b.ready("a")[0]
	b.act(monitor.Action{Type: monitor.ActionPause, Check: "e", Source: "a", Who: "ops", Note: "works"})
	b.wantDue(id, false)
	b.step(10 * limit)
	b.beat(id)
	b.wantDue(id, false)
	if s := b.source("e", "a"); s.State != monitor.Paused || s.Note != "works" || s.Beats != 2 {
		b.Errorf("%+v", s)
	}
	b.step(limit)
	b.act(monitor.Action{Type: monitor.ActionResume, Check: "e", Source: "a", Who: "ops", Note: "done"})
	c := b.candidate(id)
	if c.State != monitor.Up || !near(c.ExpectedFrom, c.Now) {
		b.Errorf("resumed, it has a whole limit: %+v", c)
	}
	b.act(monitor.Action{Type: monitor.ActionResume, Check: "e", Source: "a", Who: "ops", Note: "nothing to resume"})
	if s := b.source("e", "a"); s.Note != "" {
		b.Errorf("the note of a pause that has ended is shown: %+v", s)
	}
}

func testPauseAgain(b *bench) {
	id := b.ready("a")[0]
	b.act(monitor.Action{Type: monitor.ActionPause, Check: "e", Source: "a", For: time.Hour, Who: "ops"})
	b.act(monitor.Action{Type: monitor.ActionPause, Check: "e", Source: "a", For: 3 * time.Hour, Who: "ops"})
	b.step(2 * time.Hour)
	b.wantDue(id, false)
	b.step(time.Hour + slack)
	if c := b.candidate(id); c.PausedUntil > c.Now || c.State != monitor.Paused {
		b.Errorf("%+v", c)
	}
	b.act(monitor.Action{Type: monitor.ActionPause, Check: "e", Source: "a", Who: "ops"})
	b.wantDue(id, false)
	if s := b.source("e", "a"); !s.Until.IsZero() {
		b.Errorf("%+v", s)
	}
}

func testPauseEvent(b *bench) {
	b.ready("a")
	before := b.expected("e")
	b.act(monitor.Action{Type: monitor.ActionPause, Check: "e", Who: "ops"})
	paused, generation := b.expected("e"), b.settings().Generation
	if !paused.Paused || paused.Rev == before.Rev || before.Paused {
		b.Errorf("before %+v, paused %+v", before, paused)
	}
	if s := b.source("e", "a"); s.State != monitor.Up || !s.CheckPaused {
		b.Errorf("its source: %+v", s)
	}
	b.step(10 * limit)
	b.act(monitor.Action{Type: monitor.ActionResume, Check: "e", Who: "ops"})
	if s := b.source("e", "a"); s.CheckPaused {
		b.Errorf("its source, when it is resumed: %+v", s)
	}
	if e := b.expected("e"); e.Paused || e.Rev == paused.Rev || b.settings().Generation == generation {
		b.Errorf("resumed %+v", e)
	}
	b.sweep(wideGap, 10)
	id := b.resolve("e", "a")[0]
	if c := b.candidate(id); !near(c.CheckChanged, c.Now) {
		b.Errorf("resumed, its sources have a whole limit: %+v", c)
	}
}

func testPutAway(b *bench) {
	id := b.ready("a")[0]
	b.later(id)
	b.act(monitor.Action{Type: monitor.ActionRetire, Check: "e", Source: "a", Who: "ops", Note: "sold"})
	c := b.candidate(id)
	if !c.RetireRequested || c.State != monitor.Up {
		b.Errorf("%+v", c)
	}
	b.wantTurns("asked for", monitor.Retire)
	if s := b.source("e", "a"); s.State != monitor.Retired || s.Note != "sold" {
		b.Errorf("%+v", s)
	}
	b.step(time.Hour)
	b.beat(id)
	b.wantTurns("it beats again", monitor.Return)
	if s := b.source("e", "a"); s.State != monitor.Up || s.Note != "" {
		b.Errorf("%+v", s)
	}
}

// A pause has nobody look at a source before it ends: one that is to be retired is looked at nevertheless.
func testPutAwayAndPause(b *bench) {
	b.ready("a")
	b.act(monitor.Action{Type: monitor.ActionRetire, Check: "e", Source: "a", Who: "ops"})
	b.act(monitor.Action{Type: monitor.ActionPause, Check: "e", Source: "a", Who: "ops"})
	b.wantTurns("asked for", monitor.Retire)
	if s := b.source("e", "a"); s.State != monitor.Retired {
		b.Errorf("%+v", s)
	}
}

func testRemoveSource(b *bench) {
	ids := b.ready("a", "b", "c")
	alarm := b.onset(ids[0])
	remove := monitor.Action{Type: monitor.ActionRemove, Check: "e", Source: "a", Who: "ops"}
	if err := b.ApplyAction(b.ctx, remove); !errors.Is(err, monitor.ErrAlarmOpen) || errors.Is(err, lease.ErrUnavailable) {
		b.Errorf("with an open alarm: %v, want ErrAlarmOpen", err)
	}
	if a := b.alarm(alarm); a.End != "" {
		b.Errorf("the refusal ended the alarm: %+v", a)
	}
	b.abate(ids[0])
	b.act(remove)
	b.act(monitor.Action{Type: monitor.ActionPause, Check: "e", Source: "c", Who: "ops"})
	remove.Source = "c"
	b.act(remove)
	left, err := b.Sources(b.ctx, monitor.SourceQuery{Check: "e"})
	if err != nil || len(left) != 1 || left[0].Source != "b" {
		b.Errorf("left are %+v, %v; want b alone", left, err)
	}
	b.wantDue(ids[0], false)
	b.sweep(wideGap, 10)
	o, err := b.Overview(b.ctx)
	if err != nil || len(o.Checks) != 1 || o.Checks[0].Up+o.Checks[0].Down+o.Checks[0].Paused != 1 || o.Standing != 0 {
		b.Errorf("the overview: %+v, %v", o, err)
	}
	// A heartbeat for its id finds none, and the name is learned anew.
	if again := b.resolve("e", "a")[0]; again == 0 || again == ids[0] {
		b.Errorf("the name is learned as %d, was %d", again, ids[0])
	}
}

func testRemoveCheck(b *bench) {
	ids := b.ready("a")
	alarm := b.onset(ids[0])
	b.configure(each("e"), each("kept"))
	before := b.settings().Generation
	b.act(monitor.Action{Type: monitor.ActionRemove, Check: "e", Who: "ops"})
	if s := b.settings(); s.Generation == before {
		b.Error("other instances are not told")
	}
	if got := b.resolved(monitor.SourceRef{Check: "e", Source: "new"}); got[0].ID != 0 {
		b.Errorf("a source of a removed check was learned: %+v", got)
	}
	b.sweep(wideGap, 10)
	if a := b.alarm(alarm); a.End != monitor.Forget {
		b.Errorf("its alarm: %+v", a)
	}
	if o, err := b.Overview(b.ctx); err != nil || len(o.Checks) != 1 || o.Checks[0].Name != "kept" {
		b.Errorf("the overview: %+v, %v", o, err)
	}
}

func testAcknowledge(b *bench) {
	ids := b.ready("a")
	alarm := b.onset(ids[0])
	b.act(monitor.Action{Type: monitor.ActionAcknowledge, Alarm: alarm, Who: "ops"})
	if a := b.alarm(alarm); a.Acknowledged != "ops" || a.End != "" {
		b.Errorf("%+v", a)
	}
	b.abate(ids[0])
	if a := b.alarm(alarm); a.Acknowledged != "ops" || a.End != monitor.Abated {
		b.Errorf("%+v", a)
	}
}

func testDropSink(b *bench) {
	b.enlist("one", "two")
	before := b.settings()
	b.act(monitor.Action{Type: monitor.ActionRemoveSink, Source: "one", Who: "ops"})
	if s := b.settings(); len(s.Sinks) != 1 || s.Sinks[0] != "two" || s.Generation == before.Generation {
		b.Errorf("%+v, before %+v", s, before)
	}
	b.enlist("one", "two")
	if s := b.settings(); len(s.Sinks) != 2 {
		b.Errorf("registered again: %+v", s)
	}
}

func testActNothing(b *bench) {
	b.ready("a")
	b.configure(each("e"), each("gone"))
	b.resolve("gone", "a")
	b.configure(each("e"))
	for _, c := range []struct {
		a    monitor.Action
		want error
	}{
		{monitor.Action{Type: monitor.ActionPause, Check: "e", Source: "x"}, monitor.ErrNoSource},
		{monitor.Action{Type: monitor.ActionResume, Check: "e", Source: "x"}, monitor.ErrNoSource},
		{monitor.Action{Type: monitor.ActionRetire, Check: "e", Source: "x"}, monitor.ErrNoSource},
		{monitor.Action{Type: monitor.ActionRemove, Check: "e", Source: "x"}, monitor.ErrNoSource},
		{monitor.Action{Type: monitor.ActionRemove, Check: "x", Source: "a"}, monitor.ErrNoCheck},
		{monitor.Action{Type: monitor.ActionRemove, Check: "gone"}, monitor.ErrNoCheck},
		{monitor.Action{Type: monitor.ActionPause, Check: "x"}, monitor.ErrNoCheck},
		{monitor.Action{Type: monitor.ActionResume, Check: "x"}, monitor.ErrNoCheck},
		{monitor.Action{Type: monitor.ActionPause, Check: "gone"}, monitor.ErrNoCheck},
		{monitor.Action{Type: monitor.ActionRetire, Check: "e"}, lease.ErrInvalid},
		{monitor.Action{Type: monitor.ActionPause, Check: "e", For: time.Hour}, lease.ErrInvalid},
		{monitor.Action{Type: monitor.ActionAcknowledge, Alarm: "x"}, monitor.ErrNoAlarm},
		{monitor.Action{Type: monitor.ActionRemoveSink, Source: "x"}, lease.ErrInvalid},
		{monitor.Action{Type: monitor.ActionRemovePath, Source: "x"}, lease.ErrInvalid},
		{monitor.Action{Type: "explode", Check: "e", Source: "a"}, lease.ErrInvalid},
		{monitor.Action{Check: "e", Source: "a"}, lease.ErrInvalid},
	} {
		before := b.settings().Generation
		if err := b.ApplyAction(b.ctx, c.a); !errors.Is(err, c.want) {
			b.Errorf("%+v: %v, want %v", c.a, err, c.want)
		}
		if after := b.settings().Generation; after != before {
			b.Errorf("%+v: the generation is %d, and was %d", c.a, after, before)
		}
	}
	if s := b.source("e", "a"); s.State != monitor.Up {
		b.Errorf("%+v", s)
	}
}

func testActRecorded(b *bench) {
	id := b.ready("a", "b")[0]
	alarm := b.onset(id)
	for _, c := range []struct {
		subject string
		a       monitor.Action
	}{
		{"e/a", monitor.Action{Type: monitor.ActionPause, Check: "e", Source: "a"}},
		{"e/a", monitor.Action{Type: monitor.ActionResume, Check: "e", Source: "a"}},
		{"e/a", monitor.Action{Type: monitor.ActionRetire, Check: "e", Source: "a"}},
		{"e", monitor.Action{Type: monitor.ActionPause, Check: "e"}},
		{"e", monitor.Action{Type: monitor.ActionResume, Check: "e"}},
		{"e/b", monitor.Action{Type: monitor.ActionRemove, Check: "e", Source: "b"}},
		{alarm, monitor.Action{Type: monitor.ActionAcknowledge, Alarm: alarm}},
		{"p", monitor.Action{Type: monitor.ActionRemovePath, Source: "p"}},
		{hook, monitor.Action{Type: monitor.ActionRemoveSink, Source: hook}},
	} {
		c.a.Who, c.a.Note = "o'ps", "because '; --"
		b.act(c.a)
		all := b.events(c.subject)
		if len(all) == 0 || !contains(all[len(all)-1], string(c.a.Type), c.a.Who, c.a.Note) {
			b.Errorf("%+v: history of %s: %q", c.a, c.subject, all)
		}
	}
	// Without a name too, and an acknowledgement without one still counts.
	b.act(monitor.Action{Type: monitor.ActionPause, Check: "e"})
	b.act(monitor.Action{Type: monitor.ActionAcknowledge, Alarm: alarm})
	for subject, want := range map[string]string{"e": "pause by somebody", alarm: "acknowledge by somebody"} {
		if all := b.events(subject); all[len(all)-1] != want {
			b.Errorf("without a name: history of %s: %q, want %q at its end", subject, all, want)
		}
	}
	if a := b.alarm(alarm); a.Acknowledged != "somebody" {
		b.Errorf("acknowledged without a name: %+v", a)
	}
}
