package monitor

import (
	"testing"
	"time"
)

// TestMaintenance: no alarm in a window, and a whole limit after it.
func TestMaintenance(t *testing.T) {
	c := Check{Name: "e", Interval: time.Minute, Missed: 3, Maintenance: "TZ=Europe/Berlin 0 2 * * 6", MaintenanceFor: 2 * time.Hour}.WithDefaults()
	opens := time.Date(2026, time.November, 21, 1, 0, 0, 0, time.UTC) // a Saturday, 2 o'clock in Berlin
	const boot = 1_000_000_000
	at := func(wall time.Time, last time.Duration) Facts {
		now := StoreTime(boot) + StoreTime(wall.Sub(opens).Microseconds()) + 1e12
		return Facts{Now: now, Wall: wall, State: Up, ExpectedFrom: 1, LastBeat: now.Add(-last), Path: PathStatus{LastSeen: now, TrustFor: time.Second}}
	}
	for _, w := range []struct {
		after time.Duration // the opening
		last  time.Duration // since the last heartbeat
		want  Transition
		due   time.Duration // after the opening
	}{
		{-time.Minute, 4 * time.Minute, Onset, 0},
		{0, 4 * time.Minute, NoTransition, 2 * time.Hour},
		{time.Hour, time.Hour, NoTransition, 2 * time.Hour},
		{2*time.Hour + time.Minute, time.Hour, NoTransition, 2*time.Hour + 3*time.Minute},
		{2*time.Hour + 3*time.Minute + 2*time.Second, time.Hour, Onset, 0},
		{5 * time.Hour, 4 * time.Minute, Onset, 0},
	} {
		f := at(opens.Add(w.after), w.last)
		v := c.Evaluate(f)
		if v.Transition != w.want || w.want == NoTransition && f.Wall.Add(v.Due.Sub(f.Now)) != opens.Add(w.due) {
			t.Errorf("%v after the opening, silent for %v: %q, due %v later; want %q at %v", w.after, w.last, v.Transition, v.Due.Sub(f.Now), w.want, w.due)
		}
	}
	failed := at(opens.Add(time.Hour), time.Second)
	failed.Failing = true
	if v := c.Evaluate(failed); v.Transition != NoTransition {
		t.Errorf("a failure in a window: %+v", v)
	}
	later := at(opens.Add(2*time.Hour+time.Minute), 90*time.Second)
	later.Failing = true
	if v := c.Evaluate(later); v.Transition != NoTransition {
		t.Errorf("a failure of a window, after it: %+v", v)
	}
	later.LastBeat = later.Now.Add(-time.Second)
	if v := c.Evaluate(later); v.Transition != Onset || v.Reason != Failed {
		t.Errorf("a failure after a window: %+v", v)
	}
	standing := at(opens.Add(time.Hour), time.Second)
	standing.State, standing.Alarm, standing.Reason, standing.OnsetAt = Down, "id", Silent, standing.Now.Add(-time.Minute)
	if v := c.Evaluate(standing); v.Transition != Abated {
		t.Errorf("an alarm ends in a window, too: %+v", v)
	}
}

// TestParent: whose alarm it is when a source and the one that it depends on are silent.
func TestParent(t *testing.T) {
	c := Check{Name: "e", Interval: time.Second, Missed: 3, DependsOn: "h"}.WithDefaults()
	const now = StoreTime(1e12)
	at := now.Add(-2 * time.Second) // since when it is overdue
	h := &Check{Name: "h", Interval: 20 * time.Second}
	*h = h.WithDefaults()
	for name, w := range map[string]struct {
		parent  Parent
		failing bool
		held    bool
	}{
		"no such parent":           {Parent{Check: h}, false, false},
		"retired":                  {Parent{State: Retired, Check: h}, false, false},
		"heard since":              {Parent{State: Up, LastBeat: at + 1, Check: h}, false, false},
		"not heard since":          {Parent{State: Up, LastBeat: at, Check: h}, false, true},
		"never seen":               {Parent{State: Up, Check: h}, false, true},
		"not heard beyond limit":   {Parent{State: Up, LastBeat: 1, Check: &Check{Interval: -waitMost}}, false, false},
		"its alarm stands":         {Parent{State: Down, Alarm: true, LastBeat: now, Check: h}, false, true},
		"paused":                   {Parent{State: Paused, LastBeat: 1, Check: h}, false, true},
		"paused and heard":         {Parent{State: Paused, LastBeat: now, Check: h}, false, false},
		"failed, parent not heard": {Parent{State: Up, LastBeat: 1, Check: h}, true, false},
		"failed, parent failed":    {Parent{State: Down, Alarm: true, LastBeat: now, Check: h}, true, true},
	} {
		f := Facts{Now: now, State: Up, ExpectedFrom: 1, LastBeat: now.Add(-5 * time.Second), Failing: w.failing, Path: PathStatus{LastSeen: now, TrustFor: time.Second}, Parent: &w.parent}
		v := c.Evaluate(f)
		if (v.Transition == NoTransition) != w.held {
			t.Errorf("%s: %+v", name, v)
		}
		if w.held && ((v.WellSince == now) != (w.parent.Alarm || w.parent.State == Paused) || v.Due <= now || v.Due > now.Add(waitMost)) {
			t.Errorf("%s: it is evaluated again %v later: %+v", name, v.Due.Sub(now), v)
		}
	}
	// The parent was heard again while its alarm stood, and the source was evaluated in between: that is its return all the same.
	back := Parent{State: Down, Alarm: true, LastBeat: now.Add(-time.Second), Check: h}
	silent := Facts{Now: now, State: Up, ExpectedFrom: 1, LastBeat: now.Add(-time.Hour), WellSince: now.Add(-5 * time.Second), Path: PathStatus{LastSeen: now, TrustFor: time.Second}, Parent: &back}
	silent.WellSince = c.Evaluate(silent).WellSince
	back.State, back.Alarm = Up, false
	if v := c.Evaluate(silent); v.Transition != Resume {
		t.Errorf("after the end of its parent's alarm: %+v", v)
	}
	// Its parent was paused and silent until now: that one has its limit to report, and this one waits for it.
	unpaused := Parent{State: Up, LastBeat: now.Add(-time.Hour), Check: h}
	silent.WellSince, silent.Parent = now.Add(-time.Second), &unpaused
	if v := c.Evaluate(silent); v.Transition != NoTransition || v.WellSince != silent.WellSince {
		t.Errorf("after the end of its parent's pause: %+v", v)
	}
	silent.WellSince = now.Add(-2 * time.Minute)
	if v := c.Evaluate(silent); v.Transition != Onset {
		t.Errorf("long after the end of its parent's pause: %+v", v)
	}
	// The parent was down until a second ago: a whole limit from then on, but a failure counts.
	f := Facts{Now: now, State: Up, ExpectedFrom: 1, LastBeat: now.Add(-time.Hour), WellSince: now.Add(-time.Second), Path: PathStatus{LastSeen: now, TrustFor: time.Second},
		Parent: &Parent{State: Up, LastBeat: now, Check: h}}
	if v := c.Evaluate(f); v.Transition != Resume || v.At != now || v.Due != now.Add(3*time.Second) {
		t.Errorf("after its return: %+v", v)
	}
	f.Failing = true
	if v := c.Evaluate(f); v.Transition != Onset || v.Reason != Failed {
		t.Errorf("a failure that was held back: %+v", v)
	}
}

// TestParentHeldBack: a source has no alarm while that of its parent is held back, but not because of marks alone.
func TestParentHeldBack(t *testing.T) {
	c := Check{Name: "e", Interval: time.Second, Missed: 3, DependsOn: "h"}.WithDefaults()
	h := Check{Name: "h", Interval: 20 * time.Second, DependsOn: "s"}.WithDefaults()
	const now = StoreTime(1e12)
	for name, w := range map[string]struct {
		parent, above Parent
		failing, held bool
	}{
		"down":                  {Parent{LastBeat: 1}, Parent{State: Down, Alarm: true}, false, true},
		"down, a failure":       {Parent{LastBeat: 1}, Parent{State: Down, Alarm: true}, true, false},
		"down, parent heard":    {Parent{LastBeat: now}, Parent{State: Down, Alarm: true}, false, false},
		"paused":                {Parent{LastBeat: 1}, Parent{State: Paused, LastBeat: 1}, false, true},
		"paused and heard":      {Parent{LastBeat: 1}, Parent{State: Paused, LastBeat: now}, false, false},
		"retired":               {Parent{LastBeat: 1}, Parent{State: Retired}, false, false},
		"silent for long":       {Parent{LastBeat: 1}, Parent{State: Up, LastBeat: 1}, false, false},
		"heard, parent resumed": {Parent{LastBeat: 1, ExpectedFrom: now.Add(-time.Minute)}, Parent{State: Up, LastBeat: now}, false, true},
	} {
		w.parent.State, w.parent.Check, w.parent.Parent, w.above.Check = Up, &h, &w.above, &h
		f := Facts{Now: now, State: Up, ExpectedFrom: 1, LastBeat: now.Add(-time.Hour), Failing: w.failing, Path: PathStatus{LastSeen: now, TrustFor: time.Second}, Parent: &w.parent}
		if v := c.Evaluate(f); (v.Transition == NoTransition) != w.held {
			t.Errorf("%s: %+v", name, v)
		}
	}
}

// TestParentSchedule: services wait for a host that reports by a schedule, until its own alarm would be raised.
func TestParentSchedule(t *testing.T) {
	host := Check{Name: "h", Schedule: "0 * * * *", Missed: 3, Grace: 5 * time.Minute}.WithDefaults()
	service := Check{Name: "e", Interval: 10 * time.Minute, Missed: 1, DependsOn: "h"}.WithDefaults()
	died := time.Date(2026, time.November, 21, 10, 1, 0, 0, time.UTC)
	facts := func(after, last time.Duration) Facts {
		now := StoreTime(died.Add(after).UnixMicro())
		return Facts{Now: now, Wall: died.Add(after), State: Up, ExpectedFrom: 1, LastBeat: StoreTime(died.Add(last).UnixMicro()), Path: PathStatus{LastSeen: now, TrustFor: time.Second}}
	}
	for after := 11 * time.Minute; after < 185*time.Minute; after += 2 * time.Minute {
		of := facts(after, -time.Minute)
		f := facts(after, 0)
		f.Parent = &Parent{State: Up, LastBeat: of.LastBeat, Check: &host}
		if up, v := host.Evaluate(of), service.Evaluate(f); v.Transition != NoTransition && up.Transition == NoTransition {
			t.Fatalf("%v after both died, the service has its alarm (%+v) and the host has none", after, v)
		}
	}
	late := facts(4*time.Hour, 0)
	late.Parent = &Parent{State: Up, LastBeat: 1, Check: &host}
	if v := service.Evaluate(late); v.Transition != Onset {
		t.Errorf("long after the host's limit: %+v", v)
	}
}

// TestRetireAfterResume: a source with a schedule has a whole limit after it was resumed before it is retired.
func TestRetireAfterResume(t *testing.T) {
	c := Check{Name: "e", Schedule: "0 2 * * *", Grace: time.Minute, RetireAfter: time.Hour}.WithDefaults()
	wall := time.Date(2026, time.November, 21, 10, 0, 0, 0, time.UTC)
	now := StoreTime(wall.UnixMicro())
	f := Facts{Now: now, Wall: wall, State: Down, Alarm: "id", Reason: Silent, OnsetAt: now.Add(-32 * time.Hour), LastBeat: now.Add(-56 * time.Hour),
		ExpectedFrom: now.Add(-time.Hour), Path: PathStatus{LastSeen: now, TrustFor: time.Second}}
	if v := c.Evaluate(f); v.Transition != NoTransition || v.Due != now.Add(16*time.Hour+time.Minute) {
		t.Errorf("an hour after it was resumed: %+v, due in %v", v, v.Due.Sub(now))
	}
}
