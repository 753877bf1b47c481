package sim

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/understudy-ha/understudy/monitor"
)

// MonitorTwin is a monitor that is broken on purpose, in one way: see [Twin].
type MonitorTwin struct {
	Name string
	// Caught is what the judge has to say of it.
	Caught string
	// Table breaks what the store does, Intake what an instance has for it.
	Table  func(monitor.Store) monitor.Store
	Intake func(monitor.HeartbeatStore) monitor.HeartbeatStore
	// Need makes sure that a run has what the fault needs to show.
	Need func(*MonitorSetup)
}

// brokenMonitor is a table of which some methods do something else; nil ones do not.
type brokenMonitor struct {
	monitor.Store
	store  func(monitor.Store, monitor.HeartbeatBatch) (monitor.BatchResult, error)
	look   func(monitor.Store, *monitor.Scan)
	apply  func(monitor.Store, []monitor.SourceChange) ([]bool, error)
	report func(monitor.Store, monitor.GroupReport) (bool, error)
	sweep  func(monitor.Store) (monitor.Scan, error)
}

func (b brokenMonitor) RecordHeartbeats(ctx context.Context, d monitor.HeartbeatBatch) (monitor.BatchResult, error) {
	if b.store == nil || ctx.Err() != nil {
		return b.Store.RecordHeartbeats(ctx, d)
	}
	return b.store(b.Store, cloneDelivery(d))
}

func (b brokenMonitor) DueSources(ctx context.Context, ps []int, limit int) (monitor.Scan, error) {
	l, err := b.Store.DueSources(ctx, ps, limit)
	if b.look != nil && err == nil {
		b.look(b.Store, &l)
	}
	return l, err
}

func (b brokenMonitor) Sweep(ctx context.Context, keep time.Duration, limit int) (monitor.Scan, error) {
	if b.sweep != nil {
		return b.sweep(b.Store)
	}
	return b.Store.Sweep(ctx, keep, limit)
}

func (b brokenMonitor) ApplyChanges(ctx context.Context, cs []monitor.SourceChange) ([]bool, error) {
	if b.apply == nil || ctx.Err() != nil {
		return b.Store.ApplyChanges(ctx, cs)
	}
	return b.apply(b.Store, slices.Clone(cs))
}

func (b brokenMonitor) ReportGroup(ctx context.Context, r monitor.GroupReport) (bool, error) {
	if b.report == nil || ctx.Err() != nil {
		return b.Store.ReportGroup(ctx, r)
	}
	return b.report(b.Store, r)
}

// MonitorTwins returns every one that the simulation must catch.
func MonitorTwins() []MonitorTwin {
	return slices.Concat(intakeTwins(), ruleTwins(), turningTwins())
}

// stores breaks deliveries on their way into the table.
func stores(f func(*monitor.HeartbeatBatch)) func(monitor.Store) monitor.Store {
	return func(t monitor.Store) monitor.Store {
		return brokenMonitor{Store: t, store: func(t monitor.Store, d monitor.HeartbeatBatch) (monitor.BatchResult, error) {
			f(&d)
			return t.RecordHeartbeats(context.Background(), d)
		}}
	}
}

func intakeTwins() []MonitorTwin {
	var lost every
	return []MonitorTwin{
		{Name: "beats are acknowledged and lost", Caught: "were acknowledged, and", Table: stores(func(d *monitor.HeartbeatBatch) {
			d.Beats = slices.DeleteFunc(d.Beats, func(monitor.HeartbeatUpdate) bool { return lost.of(10) })
		})},
		{Name: "blind time is not noticed", Caught: "a false alarm: silent", Table: stores(func(d *monitor.HeartbeatBatch) {
			for i := range d.Probes {
				d.Probes[i].MaxGap = 24 * time.Hour
			}
		})},
		{Name: "a replay is a sign of life", Caught: "no alarm, and it is overdue", Table: stores(func(d *monitor.HeartbeatBatch) {
			for i := range d.Beats {
				d.Beats[i].Sent, d.Beats[i].Seq = time.Time{}, 0
			}
		}), Need: func(s *MonitorSetup) { s.Replays = true }},
		{Name: "the sender's clock decides", Caught: "a false alarm: silent", Table: stores(func(d *monitor.HeartbeatBatch) {
			for i := range d.Beats {
				d.Beats[i].BySender = true
			}
		})},
		{Name: "nothing is proven", Caught: "no alarm, and it is overdue", Table: stores(func(d *monitor.HeartbeatBatch) {
			for i := range d.Probes {
				d.Probes[i].NameOnly = true
			}
		})},
		{Name: "the router's path is proven by others", Caught: "its router is down",
			Intake: func(i monitor.HeartbeatStore) monitor.HeartbeatStore { return provesAll{i} },
			Need:   throughRouter},
		{Name: "failures are not told", Caught: "no alarm, and it failed", Table: stores(func(d *monitor.HeartbeatBatch) {
			for i := range d.Beats {
				if d.Beats[i].Signal == monitor.SignalFail {
					d.Beats[i].Signal = monitor.SignalSuccess
				}
			}
		})},
	}
}

// every tells of one in n.
type every struct {
	mu sync.Mutex
	n  int
}

func (e *every) of(n int) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.n++
	return e.n%n == 0
}

// provesAll is an inlet that takes a router's path for one that is steady.
type provesAll struct{ monitor.HeartbeatStore }

func (p provesAll) RecordHeartbeats(ctx context.Context, d monitor.HeartbeatBatch) (monitor.BatchResult, error) {
	d = cloneDelivery(d)
	if !slices.ContainsFunc(d.Probes, func(v monitor.Probe) bool { return v.Path == "router" }) {
		d.Probes = append(d.Probes, monitor.Probe{Path: "router", TrustFor: steadyGap, MaxGap: routerGap})
	}
	return p.HeartbeatStore.RecordHeartbeats(ctx, d)
}

// looks breaks what the rule is told.
func looks(f func(*monitor.Candidate)) func(monitor.Store) monitor.Store {
	return func(t monitor.Store) monitor.Store {
		return brokenMonitor{Store: t, look: func(_ monitor.Store, l *monitor.Scan) {
			for i := range l.Candidates {
				f(&l.Candidates[i])
			}
		}}
	}
}

func ruleTwins() []MonitorTwin {
	return []MonitorTwin{
		{Name: "blind time counts", Caught: "a false alarm: silent", Table: looks(func(c *monitor.Candidate) { c.BlindAtBeat = c.Path.BlindTotal })},
		{Name: "no time after blindness", Caught: "a false alarm: silent", Table: looks(func(c *monitor.Candidate) {
			c.Path.BlindUntil = min(c.Path.BlindUntil, c.LastBeat)
		})},
		{Name: "the base is forgotten", Caught: "a false alarm: silent", Need: operatedLong, Table: looks(func(c *monitor.Candidate) {
			if c.LastBeat != 0 {
				c.ExpectedFrom, c.CheckChanged = 0, 0
			}
		})},
		{Name: "the path is trusted for ever", Caught: "its path was last seen to work", Need: throughRouter, Table: looks(func(c *monitor.Candidate) {
			c.Path.TrustFor, c.Path.MaxGap = 24*time.Hour, 24*time.Hour
		})},
		{Name: "a pause is not seen", Caught: "an alarm of what is not judged", Need: operated, Table: looks(func(c *monitor.Candidate) {
			if c.State == monitor.Paused {
				c.State = monitor.Up
			}
		})},
		{Name: "a pause does not end", Caught: "its pause was over at", Need: operated, Table: looks(func(c *monitor.Candidate) { c.PausedUntil = 0 })},
		{Name: "a return is not seen", Caught: "its alarm stands, and it is well", Table: looks(func(c *monitor.Candidate) {
			if c.Alarm != "" {
				c.LastBeat = min(c.LastBeat, c.OnsetAt-1)
			}
		})},
		{Name: "what failed as it was learned is not told", Caught: "no alarm, and it failed", Need: bySenders, Table: looks(func(c *monitor.Candidate) {
			if c.Failing && c.LastBeat == c.ExpectedFrom {
				c.ExpectedFrom++
			}
		})},
		{Name: "what is late passes for a configuration", Caught: "by a configuration, and none came", Need: bySenders, Table: looks(func(c *monitor.Candidate) {
			c.BeatSinceOnset = c.LastBeat >= c.OnsetAt
		})},
		{Name: "alarms are raised twice", Caught: "a second", Table: looks(func(c *monitor.Candidate) {
			c.Alarm = ""
		})},
	}
}

// throughRouter has sources that may be quiet for longer than a router's gap.
func throughRouter(s *MonitorSetup) {
	s.Router = true
	s.Length += 90 * time.Second
	for i := range s.Checks {
		if s.Checks[i].Interval > 0 {
			s.Checks[i].Missed = 5
		}
	}
}

// bySenders has many sources whose own clocks count, and whose heartbeats are late.
func bySenders(s *MonitorSetup) {
	s.Checks = []monitor.Check{{Name: "sender", Interval: 2 * time.Second, Missed: 3, SenderClock: true}}
	s.Sources, s.Router, s.Steps, s.First = 40, true, false, 2*time.Second
}

func operated(s *MonitorSetup) { s.Operators = true }

func operatedLong(s *MonitorSetup) {
	s.Operators = true
	s.Length += 90 * time.Second
}

// changes breaks changes on their way into the table; those that are dropped count
// as made.
func changes(f func(monitor.Store, *monitor.SourceChange) (drop bool)) func(monitor.Store) monitor.Store {
	return func(t monitor.Store) monitor.Store {
		return brokenMonitor{Store: t, apply: func(t monitor.Store, cs []monitor.SourceChange) ([]bool, error) {
			made := make([]bool, len(cs))
			for i := range cs {
				if f(t, &cs[i]) {
					made[i] = true
					continue
				}
				one, err := t.ApplyChanges(context.Background(), cs[i:i+1])
				if err != nil {
					return nil, err
				}
				made[i] = one[0]
			}
			return made, nil
		}}
	}
}

func turningTwins() []MonitorTwin {
	var mute every
	return []MonitorTwin{
		{Name: "beats between are overlooked", Caught: "after it was looked at", Need: busy, Table: blindly(func(c *monitor.Candidate, to *monitor.SourceChange) { to.BeatRev = c.BeatRev })},
		{Name: "one is not told", Caught: "was not told the", Table: changes(func(_ monitor.Store, c *monitor.SourceChange) bool {
			if len(c.Notifications) > 0 && mute.of(10) {
				c.Notifications = nil
			}
			return false
		})},
		{Name: "the end has another id", Caught: "with request id", Table: changes(func(_ monitor.Store, c *monitor.SourceChange) bool {
			if c.Transition == monitor.Abated {
				for i := range c.Notifications {
					c.Notifications[i].Payload = []byte(`{"status":"ABATED","request_id":"another","ended":"2000-01-01T00:00:00Z"}`)
					c.Notifications[i].ID = "another/ABATED"
				}
			}
			return false
		})},
		{Name: "the end comes first", Caught: "stands", Table: changes(func(_ monitor.Store, c *monitor.SourceChange) bool {
			slices.Reverse(c.Notifications)
			return false
		}), Need: grouped},
		{Name: "an alarm does not end", Caught: "stuck: the alarm of", Table: changes(func(_ monitor.Store, c *monitor.SourceChange) bool {
			if c.Transition == monitor.Abated {
				c.Transition, c.Notifications, c.Due = monitor.NoTransition, nil, monitor.Never
			}
			return false
		})},
		{Name: "what is judged is not looked at again", Caught: "no alarm, and it is overdue", Table: changes(func(_ monitor.Store, c *monitor.SourceChange) bool {
			if c.Transition == monitor.NoTransition {
				c.Due = c.Due.Add(30 * time.Second)
			}
			return false
		})},
		{Name: "groups are not reported", Caught: "its alarm is held since", Need: grouped, Table: func(t monitor.Store) monitor.Store {
			return brokenMonitor{Store: t, report: func(monitor.Store, monitor.GroupReport) (bool, error) { return false, nil }}
		}},
		{Name: "nobody sweeps", Caught: "and its event was removed", Need: operated, Table: func(t monitor.Store) monitor.Store {
			return brokenMonitor{Store: t, sweep: func(t monitor.Store) (monitor.Scan, error) {
				l, err := t.DueSources(context.Background(), nil, 1)
				l.Candidates, l.Next = nil, monitor.Never
				return l, err
			}}
		}},
	}
}

// busy runs have an instance stopped between its look and what it does about it.
func busy(s *MonitorSetup) { s.Freezes, s.Hesitates, s.Nodes = true, 0.5, max(s.Nodes, 3) }

// grouped runs have an event whose alarms are reported together.
func grouped(s *MonitorSetup) {
	if !slices.ContainsFunc(s.Checks, func(e monitor.Check) bool { return e.GroupBy != "" }) {
		s.Checks = append(s.Checks, monitor.Check{Name: "together", Interval: time.Second, Missed: 2, GroupBy: "rack", GroupWait: 2 * time.Second, GroupMin: 2})
	}
}

// blindly makes changes although what they were judged on has changed: it reads
// everything before each, and says what is there.
func blindly(f func(*monitor.Candidate, *monitor.SourceChange)) func(monitor.Store) monitor.Store {
	return func(t monitor.Store) monitor.Store {
		return brokenMonitor{Store: t, apply: func(t monitor.Store, cs []monitor.SourceChange) ([]bool, error) {
			made, err := t.ApplyChanges(context.Background(), cs)
			if err != nil {
				return made, err
			}
			var again []monitor.SourceChange
			var place []int
			for i, c := range cs {
				if !made[i] && c.Transition == monitor.Onset {
					again, place = append(again, c), append(place, i)
				}
			}
			if len(again) == 0 {
				return made, nil
			}
			parts := make([]int, monitor.Partitions)
			for i := range parts {
				parts[i] = i
			}
			l, err := t.DueSources(context.Background(), parts, monitor.MaxSources)
			if err != nil {
				return made, nil
			}
			for i := range again {
				for k := range l.Candidates {
					if l.Candidates[k].ID == again[i].ID {
						f(&l.Candidates[k], &again[i])
					}
				}
			}
			more, err := t.ApplyChanges(context.Background(), again)
			for i := range more {
				made[place[i]] = more[i]
			}
			return made, err
		}}
	}
}
