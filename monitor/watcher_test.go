package monitor_test

import (
	"context"
	"regexp"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/understudy-ha/understudy/claim"
	"github.com/understudy-ha/understudy/internal/memstore/claims"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/monitor"
)

const (
	onset  = monitor.Onset
	abated = monitor.Abated
)

// each3 expects a beat each second, and is patient for three.
var each3 = monitor.Check{Name: "E", Interval: time.Second, Missed: 3, Severity: "major", Labels: map[string]string{"site": "7"}}

func TestWatcherOneOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, each3)
		a := w.start("a")
		steady, stop := a.beating("well"), a.beating("x")
		time.Sleep(10 * time.Second)
		stop()
		last := time.Now()
		time.Sleep(2 * time.Second)
		w.want("x")
		time.Sleep(1300 * time.Millisecond)
		w.want("x", onset)
		time.Sleep(time.Minute)
		w.want("x", onset)
		back := time.Now()
		a.beat(t.Context(), monitor.SignalSuccess, "x")
		time.Sleep(300 * time.Millisecond)
		w.want("x", onset, abated)
		w.want("well")
		told := w.told()
		on, off := told[0], told[1]
		if on.Reason != monitor.Silent || on.Severity != "major" || on.Labels["site"] != "7" || on.Limit != "3s" || on.Ended != nil {
			t.Errorf("ONSET: %+v", on)
		}
		if !regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`).MatchString(on.RequestID) {
			t.Errorf("%q is no UUID of version 4", on.RequestID)
		}
		near := func(what string, got, want time.Time) {
			t.Helper()
			if d := got.Sub(want).Abs(); d > 1100*time.Millisecond {
				t.Errorf("%s at %v; want %v", what, got, want)
			}
		}
		near("started", on.Started, last.Add(3*time.Second))
		near("raised", on.Raised, last.Add(3*time.Second))
		near("last beat", *on.LastBeat, last)
		near("ended", *off.Ended, back)
		if !off.Started.Equal(on.Started) || off.Raised.Sub(on.Raised).Abs() > time.Second || off.End != "" {
			t.Errorf("ABATED: %+v after %+v", off, on)
		}
		steady()
		if st := a.Watcher.Stats(); st.Transitions[onset] != 1 || st.Transitions[abated] != 1 || st.Partitions != monitor.Partitions || !st.Sweeper {
			t.Errorf("%+v", st)
		}
	})
}

func TestWatcherFailAndRecover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, each3)
		a := w.start("a")
		a.beating("x")
		time.Sleep(3500 * time.Millisecond)
		a.beat(t.Context(), monitor.SignalFail, "x")
		time.Sleep(200 * time.Millisecond)
		w.want("x", onset)
		time.Sleep(3 * time.Second)
		w.want("x", onset, abated)
		if m := w.told()[0]; m.Reason != monitor.Failed {
			t.Errorf("%+v", m)
		}
	})
}

// TestWatcherWhatEndedAnAlarm: a heartbeat that was sent before the ONSET and came after it ends the alarm as any other does; a
// longer limit says that it was the configuration.
func TestWatcherWhatEndedAnAlarm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		check := monitor.Check{Name: "E", Interval: time.Second, Missed: 1, SenderClock: true}
		w := newWorld(t, check)
		a := w.start("a")
		time.Sleep(time.Second)
		first := time.Now()
		send := func(sent time.Time) {
			t.Helper()
			if _, err := a.flow.Record(t.Context(), []monitor.Heartbeat{{Check: "E", Source: "x", Sent: sent}}); err != nil {
				t.Fatal(err)
			}
		}
		send(first)
		time.Sleep(1500 * time.Millisecond)
		w.want("x", onset)
		send(first.Add(900 * time.Millisecond))
		time.Sleep(200 * time.Millisecond)
		w.want("x", onset, abated)
		time.Sleep(800 * time.Millisecond)
		w.want("x", onset, abated, onset)
		check.Missed = 100
		w.configure(false, check)
		time.Sleep(2 * time.Minute)
		w.want("x", onset, abated, onset, abated, onset)
		if told := w.told(); told[1].End != "" || told[3].End != monitor.EndByConfiguration {
			t.Errorf("they ended by %q and %q; want a heartbeat and the configuration", told[1].End, told[3].End)
		}
	})
}

func TestWatcherManyAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, each3)
		a, b := w.start("a"), w.start("b")
		sources := names(3000)
		time.Sleep(5 * time.Second)
		stop := a.beating(sources...)
		time.Sleep(5 * time.Second)
		stop()
		time.Sleep(5 * time.Second)
		b.beat(t.Context(), monitor.SignalSuccess, sources...)
		time.Sleep(time.Second)
		told := map[string][]monitor.Transition{}
		for _, m := range w.told() {
			told[m.Source] = append(told[m.Source], m.Status)
		}
		for _, s := range sources {
			if got := told[s]; len(got) != 2 || got[0] != onset || got[1] != abated {
				t.Fatalf("%s: %v", s, got)
			}
		}
		for _, i := range []*instance{a, b} {
			if st := i.Watcher.Stats(); st.Transitions[onset] < 1000 || st.Partitions < 31 {
				t.Errorf("the work is not divided: %+v", st)
			}
		}
	})
}

func TestWatcherTakeover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, each3)
		a, b := w.start("a"), w.start("b")
		sources := names(200)
		stop := b.beating(sources...)
		time.Sleep(10 * time.Second)
		stop()
		a.dead.Store(true)
		time.Sleep(b.WorstTakeover() + time.Second)
		for _, s := range sources {
			w.want(s, onset)
		}
		a.dead.Store(false) // it comes back, and takes its share
		time.Sleep(10 * time.Second)
		if n := a.Watcher.Stats().Partitions; n < 30 {
			t.Errorf("%d partitions", n)
		}
		b.stop() // in order: nobody waits
		time.Sleep(500 * time.Millisecond)
		if st := a.Watcher.Stats(); st.Partitions != monitor.Partitions || !st.Sweeper {
			t.Errorf("%+v", st)
		}
		a.beat(t.Context(), monitor.SignalSuccess, sources...)
		time.Sleep(300 * time.Millisecond)
		for _, s := range sources {
			w.want(s, onset, abated)
		}
	})
}

// TestWatcherClockSteppedBack: keys of claims that became ready by a clock that was stepped back since are taken over all the same.
func TestWatcherClockSteppedBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, each3)
		var back atomic.Int64
		w.claims = claims.NewMemory(w.memory, func() time.Time { return time.Now().Add(-time.Duration(back.Load())) })
		a, b := w.start("a"), w.start("b") // the second gets half, released now
		time.Sleep(20 * time.Second)
		back.Store(int64(time.Hour))
		time.Sleep(time.Minute + time.Second)
		a.dead.Store(true)
		time.Sleep(b.WorstTakeover() + time.Second)
		if st := b.Stats(); st.Partitions != monitor.Partitions || !st.Sweeper {
			t.Errorf("%d of %d partitions were taken over, the sweep too: %v", st.Partitions, monitor.Partitions, st.Sweeper)
		}
	})
}

// Whoever is woken because sources change hands looks at once, and again when it would
// have: it is not late for each time that it was early.
func TestWatcherWokenOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, each3)
		w.poll = 2 * time.Second
		a := w.start("a")
		time.Sleep(time.Second)
		for range 20 { // sources go to another and come back
			b := w.start("b")
			time.Sleep(1100 * time.Millisecond)
			b.stop()
			time.Sleep(300 * time.Millisecond)
		}
		a.beat(t.Context(), monitor.SignalSuccess, "x")
		time.Sleep(3*time.Second + w.poll + time.Second)
		w.want("x", onset)
	})
}

// Nothing is told of ten minutes in which nobody could look.
func TestWatcherStoreAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, each3)
		a, b := w.start("a"), w.start("b")
		sources := names(50)
		for n := range 5 { // they do not beat all at once
			a.beating(sources[10*n : 10*n+10]...)
			time.Sleep(200 * time.Millisecond)
		}
		stop := b.beating("x")
		time.Sleep(10 * time.Second)
		w.away.Store(true)
		time.Sleep(5 * time.Minute)
		stop()
		time.Sleep(5 * time.Minute)
		w.away.Store(false)
		time.Sleep(20 * time.Second)
		w.want("x", onset)
		for _, m := range w.told() {
			if m.Source != "x" {
				t.Errorf("a false alarm: %+v", m)
			}
		}
		if st := a.Watcher.Stats(); st.Failures == 0 || st.Failures > 2000 {
			t.Errorf("%d requests failed in ten minutes", st.Failures)
		}
	})
}

func TestWatcherConfiguration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, each3)
		a := w.start("a")
		a.beat(t.Context(), monitor.SignalSuccess, "x", "y")
		stop := a.beating("z")
		time.Sleep(time.Second)
		longer := each3
		longer.Missed = 60
		w.configure(false, longer)
		time.Sleep(30 * time.Second)
		w.want("x")
		w.configure(false, each3)
		time.Sleep(5 * time.Second)
		w.want("x", onset)
		w.want("z")
		other := each3
		other.Name = "F"
		stop()
		w.configure(false, other) // E is gone, and its alarms with it
		time.Sleep(2 * time.Second)
		w.want("x", onset, abated)
		w.want("z")
		for _, m := range w.told() {
			if m.Status == abated && m.End != monitor.Forget {
				t.Errorf("%+v", m)
			}
		}
		if got, err := w.ref.Sources(t.Context(), monitor.SourceQuery{}); err != nil || len(got) != 0 {
			t.Errorf("sources that are left: %v, %v", got, err)
		}
	})
}

// TestWatcherFirstConfiguration: an instance knows whether there is anything to receive heartbeats for, with sources to
// watch or without.
func TestWatcherFirstConfiguration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a, b := w.start("a"), w.start("b")
		configured := func() (n int) {
			for _, i := range []*instance{a, b} {
				select {
				case <-i.Configured():
					n++
				default:
				}
			}
			return n
		}
		time.Sleep(10 * time.Second)
		if n := configured(); n != 0 {
			t.Fatalf("%d of two instances see a check where there is none", n)
		}
		w.configure(false, each3)
		time.Sleep(2 * time.Second)
		if n := configured(); n != 2 {
			t.Errorf("%d of two instances see the first check", n)
		}
		a.SetSinks([]string{"hook", "late"})
		if err := a.Register(t.Context()); err != nil {
			t.Fatal(err)
		}
		if s, err := w.ref.Settings(t.Context()); err != nil || !slices.Contains(s.Sinks, "late") {
			t.Errorf("a sink that was added is not registered: %v, %v", s.Sinks, err)
		}
	})
}

func TestWatcherPausedAndRetired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, each3)
		a := w.start("a")
		a.beat(t.Context(), monitor.SignalSuccess, "x", "y", "z")
		w.act(monitor.Action{Type: monitor.ActionPause, Check: "E", Source: "x", For: time.Minute, Who: "me"})
		time.Sleep(30 * time.Second)
		w.want("x")
		w.want("y", onset)
		time.Sleep(30*time.Second + 2*time.Second) // resumed, with a whole limit
		w.want("x")
		time.Sleep(2 * time.Second)
		w.want("x", onset)
		w.act(monitor.Action{Type: monitor.ActionRetire, Check: "E", Source: "y", Who: "me"})
		time.Sleep(time.Second)
		w.want("y", onset, abated)
		if all := w.told(); all[len(all)-1].End != monitor.Retire {
			t.Errorf("%+v", all[len(all)-1])
		}
		time.Sleep(time.Minute)
		w.want("y", onset, abated)
		a.beat(t.Context(), monitor.SignalSuccess, "y") // it is back, and watched again
		time.Sleep(5 * time.Second)
		w.want("y", onset, abated, onset)
	})
}

func TestWatcherFlaps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := each3
		e.Flaps, e.FlapWindow, e.Steady = 3, time.Hour, time.Minute
		w := newWorld(t, e)
		a := w.start("a")
		for range 6 {
			a.beat(t.Context(), monitor.SignalSuccess, "x")
			time.Sleep(5 * time.Second)
		}
		w.want("x", onset, abated, onset, abated, onset)
		a.beating("x")
		time.Sleep(58 * time.Second)
		w.want("x", onset, abated, onset, abated, onset)
		time.Sleep(4 * time.Second)
		w.want("x", onset, abated, onset, abated, onset, abated)
	})
}

func TestWatcherRefuses(t *testing.T) {
	if _, err := monitor.NewWatcher(monitor.WatcherConfig{}); err == nil {
		t.Error("a watcher of nothing")
	}
	if _, err := monitor.NewIntake(monitor.IntakeConfig{}); err == nil {
		t.Error("an inlet into nothing")
	}
}

// slow is a table that a watcher reaches late once it has judged. With old, it
// takes what was judged for what is.
type slow struct {
	monitor.Store
	old bool
}

func (s slow) ApplyChanges(ctx context.Context, cs []monitor.SourceChange) ([]bool, error) {
	cs = slices.Clone(cs)
	if slices.ContainsFunc(cs, func(c monitor.SourceChange) bool { return c.Transition == onset }) {
		time.Sleep(2 * time.Second)
	}
	if s.old {
		all := make([]int, monitor.Partitions)
		for p := range all {
			all[p] = p
		}
		l, err := s.DueSources(ctx, all, monitor.MaxSources)
		if err != nil {
			return nil, err
		}
		for _, c := range l.Candidates {
			for i := range cs {
				if cs[i].ID == c.ID {
					cs[i].Rev, cs[i].BeatRev = c.Rev, c.BeatRev
				}
			}
		}
	}
	return s.Store.ApplyChanges(ctx, cs)
}

// A watcher that was paused after it had judged raises no alarm about what has
// beaten since.
func TestWatcherPausedAfterJudging(t *testing.T) {
	for _, old := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, each3)
			w.table = slow{w.ref, old}
			a := w.start("a")
			time.Sleep(time.Second)
			a.beat(t.Context(), monitor.SignalSuccess, "x")
			time.Sleep(4 * time.Second) // it is overdue, and judged
			a.beating("x")
			time.Sleep(10 * time.Second)
			if wrong := len(w.about("x")) > 0; wrong != old {
				t.Errorf("what was judged is taken for what is: %t; a false alarm: %t", old, wrong)
			}
		})
	}
}

// late is a table whose answers come at full fifths of a second: those who ask in between judge the
// same at the same time.
type late struct{ monitor.Store }

func (l late) DueSources(ctx context.Context, ps []int, n int) (monitor.Scan, error) {
	const beat = 200 * time.Millisecond
	defer func() { time.Sleep(time.Until(time.Now().Truncate(beat).Add(beat))) }()
	return l.Store.DueSources(ctx, ps, n)
}

// Several that judge the same at once raise one alarm.
func TestWatcherTwoOfThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, each3)
		w.table = late{w.ref}
		var all []*instance
		for range 3 { // each with claims of its own: all hold everything
			all = append(all, w.start("i"))
			w.claims = claims.NewMemory(w.memory, nil)
		}
		stop := all[0].beating(names(20)...)
		time.Sleep(5 * time.Second)
		stop()
		time.Sleep(10 * time.Second)
		all[1].beat(t.Context(), monitor.SignalSuccess, names(20)...)
		time.Sleep(time.Second)
		for _, s := range names(20) {
			w.want(s, onset, abated)
		}
		undone := int64(0)
		for _, i := range all {
			st := i.Watcher.Stats()
			undone += st.Conflicts
			if st.Partitions != monitor.Partitions {
				t.Errorf("%+v", st)
			}
		}
		if undone < 20 {
			t.Errorf("%d changes were undone: they do not judge at once", undone)
		}
	})
}

// TestSinkRegisteredMeanwhile: a sink that is registered after a watcher has read the configuration, and before it stores
// an ONSET, gets that ONSET.
func TestSinkRegisteredMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, each3)
		w.first = sync.OnceFunc(func() {
			session := lease.Session{ID: lease.NewID(), Instance: lease.NewInstance("b", ""), Timing: claim.Windows{First: 5 * time.Second, Second: 5 * time.Second}.Timing()}
			if _, err := w.memory.StartSession(t.Context(), session); err != nil {
				t.Error(err)
			}
			if err := w.ref.RegisterMember(t.Context(), monitor.Member{Session: session.ID, Sinks: []string{"pager"}}); err != nil {
				t.Error(err)
			}
		})
		a := w.start("a")
		stop := a.beating("x")
		time.Sleep(10 * time.Second)
		stop()
		time.Sleep(5 * time.Second)
		a.beat(t.Context(), monitor.SignalSuccess, "x")
		time.Sleep(time.Second)
		w.want("x", onset, abated)
		if got := len(w.ref.SentTo("pager")); got != 2 {
			t.Errorf("the new sink was sent %d of 2", got)
		}
	})
}
