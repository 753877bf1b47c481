package sqlite_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/monitor"
	"github.com/understudy-ha/understudy/store/sqlite"
)

// now is the monitor's clock as a watcher reads it.
func now(t testing.TB, table monitor.Store) monitor.StoreTime {
	t.Helper()
	l, err := table.DueSources(t.Context(), nil, 1)
	if err != nil {
		t.Fatal(err)
	}
	return l.Now
}

// After a reboot the boot-time clock starts again. Moments continue by what the wall
// clock has counted, and all of that was blind.
func TestMomentsGoOnAfterAReboot(t *testing.T) {
	for _, c := range []struct {
		name   string
		passed time.Duration // on the wall clock, while the host was down
		want   time.Duration
	}{
		{"ten minutes", 10 * time.Minute, 10 * time.Minute},
		{"a wall clock that was set back", -time.Hour, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "store.db")
			old, fresh := newTwoClocks(), newTwoClocks()
			before := open(t, sqlite.Config{Path: path, BootID: "before", Clock: old, Wall: old.Wall}).Monitor()
			event := monitor.Check{Name: "e", Interval: time.Minute, Missed: 2}
			if _, err := before.Configure(t.Context(), monitor.Configuration{Checks: []monitor.Check{event}}); err != nil {
				t.Fatal(err)
			}
			found, err := before.ResolveSources(t.Context(), []monitor.SourceRef{{Check: "e", Source: "s"}})
			if err != nil {
				t.Fatal(err)
			}
			d := monitor.HeartbeatBatch{
				Probes: []monitor.Probe{{Path: "p", TrustFor: time.Second, MaxGap: time.Second}},
				Beats:  []monitor.HeartbeatUpdate{{Source: found[0].ID, Count: 1}},
			}
			if _, err := before.RecordHeartbeats(t.Context(), d); err != nil {
				t.Fatal(err)
			}
			last := now(t, before)

			fresh.boot = time.Second
			fresh.wall = old.Wall().Add(c.passed)
			after := open(t, sqlite.Config{Path: path, BootID: "after", Clock: fresh, Wall: fresh.Wall}).Monitor()
			if got := now(t, after).Sub(last); got != c.want {
				t.Errorf("%v have passed, want %v", got, c.want)
			}
			fresh.step(2 * time.Second)
			d.Beats = nil
			if _, err := after.RecordHeartbeats(t.Context(), d); err != nil {
				t.Fatal(err)
			}
			fresh.step(time.Minute)
			l, err := after.DueSources(t.Context(), partitions(), 10)
			if err != nil {
				t.Fatal(err)
			}
			blind := c.want + 2*time.Second
			if c.want == 0 {
				blind -= 2 * time.Second // the wall clock is still behind
			}
			o, err := after.Overview(t.Context())
			if err != nil || len(o.Paths) != 1 || o.Paths[0].BlindTotal != blind {
				t.Errorf("paths %+v, %v; want %v blind", o.Paths, err, blind)
			}
			if got := l.Now.Sub(last); got != blind+time.Minute {
				t.Errorf("%v have passed in all, want %v", got, blind+time.Minute)
			}
			for _, candidate := range l.Candidates {
				e := event.WithDefaults()
				if v := e.Evaluate(candidate.Facts); v.Transition != monitor.NoTransition {
					t.Errorf("the reboot counts against a source: %+v", v)
				}
			}
		})
	}
}

// The view that tells who is active follows the sessions, and what reads it sees the
// configuration's state.
func TestD17_ActiveInstanceIsShown(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	c := newTwoClocks()
	s := open(t, sqlite.Config{Path: path, Clock: c, Wall: c.Wall})
	m := s.Monitor()
	shown := func() []string {
		t.Helper()
		_, rows := view(t, path, "hb_common")
		if len(rows) != 1 {
			t.Fatalf("hb_common has %d rows: %v", len(rows), rows)
		}
		return rows[0]
	}
	enlist := func(host string, active bool) lease.Session {
		t.Helper()
		n := session(t, s, host, patient)
		// Processes of two containers have one number.
		if err := m.RegisterMember(t.Context(), monitor.Member{Session: n.ID, Process: 7, Host: host, Service: "hb", Active: active}); err != nil {
			t.Fatal(err)
		}
		return n
	}
	a := enlist("a", true)
	if got := shown(); got[0] != "7" || got[1] != "a-hb" || got[3] != "RECONFIGURATION" {
		t.Errorf("hb_common: %v", got)
	}
	if _, err := m.Configure(t.Context(), monitor.Configuration{Checks: []monitor.Check{{Name: "e", Interval: time.Second}}}); err != nil {
		t.Fatal(err)
	}
	enlist("b", false)
	c.step(time.Second)
	if got := shown(); got[1] != "a-hb" || got[3] != "RUNNING" {
		t.Errorf("hb_common: %v", got)
	}
	if err := s.EndSession(t.Context(), a.ID, "test"); err != nil {
		t.Fatal(err)
	}
	enlist("c", true)
	if got := shown(); got[1] != "c-hb" {
		t.Errorf("hb_common after a takeover: %v", got)
	}
	o, err := m.Overview(t.Context())
	if err != nil || len(o.Members) != 2 {
		t.Errorf("members: %+v, %v; want those that live", o.Members, err)
	}
}

// A retired source cannot be paused: a beat brings it back.
func TestAPauseLeavesTheRetiredAlone(t *testing.T) {
	c := &clock{Clock: lease.BootClock()}
	f := newFleetAt(t, sqlite.Config{Path: filepath.Join(t.TempDir(), "store.db"), Clock: c, Wall: c.Wall}, 1)
	act := func(verb monitor.ActionType) {
		t.Helper()
		if err := f.ApplyAction(t.Context(), monitor.Action{Type: verb, Check: ticker, Source: "source-0000000"}); err != nil {
			t.Fatal(err)
		}
	}
	act(monitor.ActionRetire)
	l, err := f.DueSources(t.Context(), partitions(), 10)
	if err != nil || len(l.Candidates) != 1 {
		t.Fatalf("Due = %+v, %v", l, err)
	}
	changes := f.changes(l, monitor.Retire)
	changes[0].Due = monitor.Never
	if made, err := f.ApplyChanges(t.Context(), changes); err != nil || !made[0] {
		t.Fatalf("Apply = %v, %v", made, err)
	}
	act(monitor.ActionPause)
	act(monitor.ActionResume)
	c.step(time.Second)
	f.beat(f.ids, 1)
	l, err = f.DueSources(t.Context(), partitions(), 10)
	if err != nil || len(l.Candidates) != 1 || l.Candidates[0].State != monitor.Retired {
		t.Fatalf("after a beat: %+v, %v; want the source, which is due", l, err)
	}
}
