package monitortest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/monitor"
)

func raceTests() map[string]func(*bench) {
	return map[string]func(*bench){
		"race/everything at once":                  testEverything,
		"race/a group's report and a member's end": testReportRace,
		"race/a signal and a mere look":            testLookRace,
		"race/late proofs count a gap once":        testProofRace,
		"race/the first of many":                   testFirstRace,
		"errors/a context that is over":            testOver,
	}
}

// testEverything: nothing that one does may make the others fail, whatever the
// order in which the store locks what they need; and what is left is whole.
func testEverything(b *bench) {
	ids := b.ready("a", "b", "c", "d", "f", "g", "h", "i")
	tables := []monitor.Store{b.Store, b.other()}
	var g sync.WaitGroup
	for i := range 2 {
		x := &chaos{Store: tables[i], b: b, ids: ids, own: i}
		for what, do := range map[string]func(round int) error{
			"Store": x.beats, "Apply": x.judge, "Configure": x.configure, "Act": x.act, "Sweep": x.sweep, "Report": x.groups, "lists": x.lists,
		} {
			g.Go(func() {
				for round := range 12 {
					if err := do(round); err != nil {
						b.Errorf("%s, round %d: %v", what, round, err)
						return
					}
				}
			})
		}
	}
	g.Wait()
	b.whole()
}

// chaos is one of those who do all things at once.
type chaos struct {
	monitor.Store
	b   *bench
	ids []int64
	own int
}

func (x *chaos) beats(round int) error {
	refs := []monitor.SourceRef{{Check: "e", Source: "a"}, {Check: "come and go", Source: fmt.Sprint(round % 5)}, {Check: "e", Source: fmt.Sprint("new ", round)}}
	found, err := x.ResolveSources(x.b.ctx, refs)
	if err != nil {
		return err
	}
	d := monitor.HeartbeatBatch{Probes: []monitor.Probe{proof("p"), proof(fmt.Sprint("own ", x.own)), {Path: "named", NameOnly: true}}}
	for i, id := range x.ids {
		d.Beats = append(d.Beats, monitor.HeartbeatUpdate{Source: id, Path: (i + round) % 3, Signal: monitor.Signal((i + round) % 3), Count: 1})
	}
	for _, r := range found[1:] {
		if r.ID > x.ids[len(x.ids)-1] && (len(d.Beats) == 0 || d.Beats[len(d.Beats)-1].Source < r.ID) {
			d.Beats = append(d.Beats, monitor.HeartbeatUpdate{Source: r.ID, Count: 1})
		}
	}
	_, err = x.RecordHeartbeats(x.b.ctx, d)
	return err
}

func (x *chaos) judge(round int) error {
	l, err := x.DueSources(x.b.ctx, everywhere(), monitor.MaxSources)
	if err != nil {
		return err
	}
	var changes []monitor.SourceChange
	for i, c := range l.Candidates {
		turn := monitor.Onset
		switch {
		case c.Removed:
			turn = monitor.Forget
		case c.State == monitor.Retired:
			turn = monitor.Return
		case c.RetireRequested:
			turn = monitor.Retire
		case c.Alarm != "":
			turn = monitor.Abated
		case c.State == monitor.Paused:
			turn = monitor.Resume
		}
		v := verdict(l, c, monitor.Evaluation{Transition: turn, Reason: monitor.Silent, At: c.Now, Due: c.Now})
		if turn == monitor.Onset && (i+round)%2 == 0 {
			v.Group = "e/7"
		}
		changes = append(changes, v)
	}
	_, err = x.ApplyChanges(x.b.ctx, changes)
	return err
}

func (x *chaos) configure(round int) error {
	e := each("e")
	e.Severity, e.Interval = fmt.Sprint(round), interval*time.Duration(1+round%2)
	c := monitor.Configuration{Checks: []monitor.Check{each("come and go"), e}[round%2:], Declared: []monitor.Declaration{{Check: "e", Source: "c"}, {Check: "e", Source: "declared"}}}
	if _, err := x.Configure(x.b.ctx, c); err != nil {
		return err
	}
	_, err := x.Declare(x.b.ctx, []monitor.Declaration{{Check: "e", Source: "d"}, {Check: "e", Source: "a"}})
	return err
}

func (x *chaos) act(round int) error {
	actions := []monitor.Action{
		{Type: monitor.ActionPause, Check: "e", Source: "a"}, {Type: monitor.ActionPause, Check: "e"}, {Type: monitor.ActionRetire, Check: "e", Source: "b"},
		{Type: monitor.ActionResume, Check: "e"}, {Type: monitor.ActionResume, Check: "e", Source: "a"}, {Type: monitor.ActionPause, Check: "e", Source: "c", For: time.Hour},
	}
	if err := x.ApplyAction(x.b.ctx, actions[(round+x.own)%len(actions)]); err != nil {
		return err
	}
	return x.RegisterMember(x.b.ctx, monitor.Member{Session: x.b.session, Instance: lease.NewInstance("x", ""), Sinks: []string{hook, fmt.Sprint("sink", round%3)}, Partitions: round})
}

func (x *chaos) sweep(round int) error {
	l, err := x.Sweep(x.b.ctx, wideGap, 3+round)
	if err != nil {
		return err
	}
	var changes []monitor.SourceChange
	for _, c := range l.Candidates {
		changes = append(changes, verdict(l, c, monitor.Evaluation{Transition: monitor.Forget, At: c.Now, Due: monitor.Never}))
	}
	_, err = x.ApplyChanges(x.b.ctx, changes)
	return err
}

func (x *chaos) groups(int) error {
	held, err := x.HeldGroups(x.b.ctx)
	if err != nil {
		return err
	}
	for _, g := range held {
		r := monitor.GroupReport{Group: g.Group, Alarm: g.Alarm, At: time.Unix(1_800_000_000, 0)}
		for _, m := range g.Members {
			r.Members = append(r.Members, m.ID)
		}
		if len(r.Members) == 0 {
			r.End = monitor.Abated
		} else if r.Alarm == "" {
			r.Alarm = lease.NewID()
		}
		r.Notifications = []monitor.Notification{notice("group", r.Alarm+fmt.Sprint(len(r.Members)), monitor.Onset)}
		if _, err := x.ReportGroup(x.b.ctx, r); err != nil {
			return err
		}
	}
	return nil
}

func (x *chaos) lists(int) error {
	_, err1 := x.Overview(x.b.ctx)
	_, err2 := x.Sources(x.b.ctx, monitor.SourceQuery{})
	_, err3 := x.Alarms(x.b.ctx, monitor.AlarmQuery{})
	_, err4 := x.Settings(x.b.ctx)
	return errors.Join(err1, err2, err3, err4)
}

// whole checks that sources and alarms say the same of each other.
func (b *bench) whole() {
	b.Helper()
	alarms, err := b.Alarms(b.ctx, monitor.AlarmQuery{Standing: true})
	if err != nil {
		b.Fatal(err)
	}
	standing := map[string]monitor.Alarm{}
	for _, a := range alarms {
		if a.Source != "" {
			standing[a.ID] = a
		}
	}
	sources, err := b.Sources(b.ctx, monitor.SourceQuery{})
	if err != nil {
		b.Fatal(err)
	}
	for _, s := range sources {
		a, found := standing[s.Alarm]
		delete(standing, s.Alarm)
		switch {
		case s.Alarm != "" && (!found || a.Check != s.Check || a.Source != s.Source):
			b.Errorf("source %+v has the alarm %+v", s, a)
		case (s.State == monitor.Down) != (s.Alarm != "") && s.State != monitor.Paused:
			b.Errorf("it is %s, with the alarm %q: %+v", s.State, s.Alarm, s)
		}
	}
	for _, a := range standing {
		b.Errorf("an alarm of nobody stands: %+v", a)
	}
}

// testReportRace: a member's alarm ends while its group is reported. Whichever comes
// first, the group has the members that it was reported with, or was not.
func testReportRace(b *bench) {
	ids := b.ready("a", "b", "c")
	other := b.other()
	for range 8 {
		alarms := b.hold("e/7", ids...)
		b.beat(ids...)
		end := b.change(b.candidate(ids[1]), monitor.Abated)
		group, made := lease.NewID(), false
		var g sync.WaitGroup
		g.Go(func() { made = b.report("e/7", group, alarms...) })
		g.Go(func() {
			if _, err := other.ApplyChanges(b.ctx, []monitor.SourceChange{end}); err != nil {
				b.Errorf("Apply: %v", err)
			}
		})
		g.Wait()
		if a := b.alarm(alarms[1]); a.End != monitor.Abated {
			// The report changed the source's alarm, and so undid what was judged.
			b.abate(ids[1])
		}
		if made {
			if a := b.alarm(group); a.Members != len(ids) {
				b.Fatalf("the group's alarm: %+v", a)
			}
			b.wantNoneHeld()
			b.abate(ids[0], ids[2])
			b.wantHeld("e/7", group, 0)
			if !b.endGroup("e/7", group, monitor.Abated) {
				b.Fatal("the group does not end")
			}
		} else {
			b.wantHeld("e/7", "", 0, alarms[0], alarms[2])
			b.abate(ids[0], ids[2])
		}
		b.wantNoneHeld()
		b.makeDue(ids...)
	}
}

// testLookRace: a signal makes its source due, and a look that was judged before it
// must not put that off, whichever comes first.
func testLookRace(b *bench) {
	ids := b.ready("a", "b", "c", "d", "f", "g", "h", "i")
	other := b.other()
	for round := range 20 {
		var g sync.WaitGroup
		for _, c := range b.look().Candidates { // all at once, so that some meet
			g.Go(func() { b.tryApply(b.change(c, monitor.NoTransition)) })
			g.Go(func() {
				d := monitor.HeartbeatBatch{Probes: []monitor.Probe{proof("p")}}
				d.Beats = []monitor.HeartbeatUpdate{{Source: c.ID, Signal: []monitor.Signal{monitor.SignalFail, monitor.SignalStart}[round%2], Count: 1}}
				if _, err := other.RecordHeartbeats(b.ctx, d); err != nil {
					b.Errorf("Store: %v", err)
				}
			})
		}
		g.Wait()
		for _, id := range ids {
			if _, due := b.find(id); !due {
				b.Fatalf("source %d sent a signal while somebody looked, and nobody will look again", id)
			}
		}
		b.beat(ids...)
	}
}

// testProofRace: a gap is over with the first proof that comes after it.
func testProofRace(b *bench) {
	b.by(gap, "q")
	tables := []monitor.Store{b.Store, b.other()}
	for i := range 5 {
		b.step(2 * gap)
		var g sync.WaitGroup
		for k := range 6 {
			g.Go(func() {
				d := monitor.HeartbeatBatch{Probes: []monitor.Probe{{Path: "q", MaxGap: gap}, {Path: fmt.Sprint("new ", i), MaxGap: gap}}}
				if _, err := tables[k%2].RecordHeartbeats(b.ctx, d); err != nil {
					b.Errorf("Store: %v", err)
				}
			})
		}
		g.Wait()
		if p := b.path("q"); !near(p.BlindTotal, time.Duration(i+1)*2*gap) {
			b.Fatalf("blind for %v, want %v", p.BlindTotal, time.Duration(i+1)*2*gap)
		}
		if p := b.path(fmt.Sprint("new ", i)); p.BlindTotal > slack {
			b.Fatalf("a path that is new was blind for %v", p.BlindTotal)
		}
	}
}

// testFirstRace: instances that start at once on an empty store meet in all that is
// made by the first who needs it.
func testFirstRace(b *bench) {
	tables := []monitor.Store{b.Store, b.other()}
	var sessions []string
	for i := range 12 {
		sessions = append(sessions, b.session)
		if b.rig.Sessions != nil {
			sessions[i] = b.begin(fmt.Sprint("instance ", i))
		}
	}
	var g sync.WaitGroup
	for i, session := range sessions {
		g.Go(func() {
			m := monitor.Member{Session: session, Instance: lease.NewInstance(fmt.Sprint("instance ", i), ""), Sinks: []string{"one", hook, "two"}}
			if i%2 == 1 {
				slices.Reverse(m.Sinks)
			}
			if err := tables[i%2].RegisterMember(b.ctx, m); err != nil {
				b.Errorf("Enlist: %v", err)
			}
			if _, err := tables[i%2].RecordHeartbeats(b.ctx, monitor.HeartbeatBatch{Probes: []monitor.Probe{{Path: "http", MaxGap: gap}, {Path: "store", MaxGap: gap}}}); err != nil {
				b.Errorf("Store: %v", err)
			}
			c := monitor.Configuration{Keep: true, Checks: []monitor.Check{each("e")}, Declared: []monitor.Declaration{{Check: "e", Source: "a"}}}
			if _, err := tables[i%2].Configure(b.ctx, c); err != nil {
				b.Errorf("Configure: %v", err)
			}
			if _, err := tables[i%2].ResolveSources(b.ctx, []monitor.SourceRef{{Check: "e", Source: "a"}, {Check: "e", Source: "b"}}); err != nil {
				b.Errorf("Resolve: %v", err)
			}
		})
	}
	g.Wait()
	o := b.overview()
	members := len(o.Members)
	if b.rig.Sessions == nil {
		members = len(sessions)
	}
	if len(o.Sinks) != 3 || len(o.Paths) != 2 || len(o.Checks) != 1 || members != len(sessions) {
		b.Errorf("%+v", o)
	}
	if got := b.listSources(monitor.SourceQuery{}); !slices.Equal(got, []string{"e/a", "e/b"}) {
		b.Errorf("sources %q", got)
	}
}

func testOver(b *bench) {
	id := b.ready("a")[0]
	ctx, cancel := context.WithCancel(b.ctx)
	cancel()
	c := b.change(b.candidate(id), monitor.Onset)
	for what, do := range map[string]func() error{
		"Resolve": func() error {
			_, err := b.ResolveSources(ctx, []monitor.SourceRef{{Check: "e", Source: "b"}})
			return err
		},
		"Store": func() error {
			_, err := b.RecordHeartbeats(ctx, monitor.HeartbeatBatch{Probes: []monitor.Probe{proof("p")}})
			return err
		},
		"Due":      func() error { _, err := b.DueSources(ctx, everywhere(), 10); return err },
		"Apply":    func() error { _, err := b.ApplyChanges(ctx, []monitor.SourceChange{c}); return err },
		"Settings": func() error { _, err := b.Settings(ctx); return err },
		"Overview": func() error { _, err := b.Overview(ctx); return err },
		"Held":     func() error { _, err := b.HeldGroups(ctx); return err },
		"Configure": func() error {
			_, err := b.Configure(ctx, monitor.Configuration{Checks: []monitor.Check{each("f")}})
			return err
		},
		"Act": func() error {
			return b.ApplyAction(ctx, monitor.Action{Type: monitor.ActionPause, Check: "e", Source: "a"})
		},
	} {
		if err := do(); !errors.Is(err, lease.ErrUnavailable) && !errors.Is(err, lease.ErrUnknown) {
			b.Errorf("%s: %v", what, err)
		}
	}
}
