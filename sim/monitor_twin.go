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
	Table  func(monitor.Table) monitor.Table
	Intake func(monitor.Intake) monitor.Intake
	// Need makes sure that a run has what the fault needs to show.
	Need func(*MonitorSetup)
}

// brokenMonitor is a table of which some methods do something else; nil ones do not.
type brokenMonitor struct {
	monitor.Table
	store  func(monitor.Table, monitor.Delivery) (monitor.Stored, error)
	look   func(monitor.Table, *monitor.Look)
	apply  func(monitor.Table, []monitor.Change) ([]bool, error)
	report func(monitor.Table, monitor.Report) (bool, error)
	sweep  func(monitor.Table) (monitor.Look, error)
}

func (b brokenMonitor) Store(ctx context.Context, d monitor.Delivery) (monitor.Stored, error) {
	if b.store == nil || ctx.Err() != nil {
		return b.Table.Store(ctx, d)
	}
	return b.store(b.Table, cloneDelivery(d))
}

func (b brokenMonitor) Due(ctx context.Context, ps []int, limit int) (monitor.Look, error) {
	l, err := b.Table.Due(ctx, ps, limit)
	if b.look != nil && err == nil {
		b.look(b.Table, &l)
	}
	return l, err
}

func (b brokenMonitor) Sweep(ctx context.Context, keep time.Duration, limit int) (monitor.Look, error) {
	if b.sweep != nil {
		return b.sweep(b.Table)
	}
	return b.Table.Sweep(ctx, keep, limit)
}

func (b brokenMonitor) Apply(ctx context.Context, cs []monitor.Change) ([]bool, error) {
	if b.apply == nil || ctx.Err() != nil {
		return b.Table.Apply(ctx, cs)
	}
	return b.apply(b.Table, slices.Clone(cs))
}

func (b brokenMonitor) Report(ctx context.Context, r monitor.Report) (bool, error) {
	if b.report == nil || ctx.Err() != nil {
		return b.Table.Report(ctx, r)
	}
	return b.report(b.Table, r)
}

// MonitorTwins returns every one that the simulation must catch.
func MonitorTwins() []MonitorTwin {
	return slices.Concat(intakeTwins(), ruleTwins(), turningTwins())
}

// stores breaks deliveries on their way into the table.
func stores(f func(*monitor.Delivery)) func(monitor.Table) monitor.Table {
	return func(t monitor.Table) monitor.Table {
		return brokenMonitor{Table: t, store: func(t monitor.Table, d monitor.Delivery) (monitor.Stored, error) {
			f(&d)
			return t.Store(context.Background(), d)
		}}
	}
}

func intakeTwins() []MonitorTwin {
	var lost every
	return []MonitorTwin{
		{Name: "beats are acknowledged and lost", Caught: "were acknowledged, and", Table: stores(func(d *monitor.Delivery) {
			d.Beats = slices.DeleteFunc(d.Beats, func(monitor.Stamp) bool { return lost.of(10) })
		})},
		{Name: "blind time is not noticed", Caught: "a false alarm: silent", Table: stores(func(d *monitor.Delivery) {
			for i := range d.Proofs {
				d.Proofs[i].Gap = 24 * time.Hour
			}
		})},
		{Name: "a replay is a sign of life", Caught: "no alarm, and it is overdue", Table: stores(func(d *monitor.Delivery) {
			for i := range d.Beats {
				d.Beats[i].Sent, d.Beats[i].Seq = time.Time{}, 0
			}
		}), Need: func(s *MonitorSetup) { s.Replays = true }},
		{Name: "the sender's clock decides", Caught: "a false alarm: silent", Table: stores(func(d *monitor.Delivery) {
			for i := range d.Beats {
				d.Beats[i].BySender = true
			}
		})},
		{Name: "nothing is proven", Caught: "no alarm, and it is overdue", Table: stores(func(d *monitor.Delivery) {
			for i := range d.Proofs {
				d.Proofs[i].Unproven = true
			}
		})},
		{Name: "the router's path is proven by others", Caught: "its router is down",
			Intake: func(i monitor.Intake) monitor.Intake { return provesAll{i} },
			Need:   throughRouter},
		{Name: "failures are not told", Caught: "no alarm, and it failed", Table: stores(func(d *monitor.Delivery) {
			for i := range d.Beats {
				if d.Beats[i].Signal == monitor.Fail {
					d.Beats[i].Signal = monitor.Fine
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
type provesAll struct{ monitor.Intake }

func (p provesAll) Store(ctx context.Context, d monitor.Delivery) (monitor.Stored, error) {
	d = cloneDelivery(d)
	if !slices.ContainsFunc(d.Proofs, func(v monitor.Proof) bool { return v.Path == "router" }) {
		d.Proofs = append(d.Proofs, monitor.Proof{Path: "router", Trust: steadyGap, Gap: routerGap})
	}
	return p.Intake.Store(ctx, d)
}

// looks breaks what the rule is told.
func looks(f func(*monitor.Candidate)) func(monitor.Table) monitor.Table {
	return func(t monitor.Table) monitor.Table {
		return brokenMonitor{Table: t, look: func(_ monitor.Table, l *monitor.Look) {
			for i := range l.Candidates {
				f(&l.Candidates[i])
			}
		}}
	}
}

func ruleTwins() []MonitorTwin {
	return []MonitorTwin{
		{Name: "blind time counts", Caught: "a false alarm: silent", Table: looks(func(c *monitor.Candidate) { c.BlindThen = c.Path.Blind })},
		{Name: "no time after blindness", Caught: "a false alarm: silent", Table: looks(func(c *monitor.Candidate) {
			c.Path.Resumed = min(c.Path.Resumed, c.Beat)
		})},
		{Name: "the base is forgotten", Caught: "a false alarm: silent", Need: operatedLong, Table: looks(func(c *monitor.Candidate) {
			if c.Beat != 0 {
				c.Base, c.EventBase = 0, 0
			}
		})},
		{Name: "the path is trusted for ever", Caught: "its path was last seen to work", Need: throughRouter, Table: looks(func(c *monitor.Candidate) {
			c.Path.Trust, c.Path.Gap = 24*time.Hour, 24*time.Hour
		})},
		{Name: "a pause is not seen", Caught: "an alarm of what is not judged", Need: operated, Table: looks(func(c *monitor.Candidate) {
			if c.State == monitor.Paused {
				c.State = monitor.Up
			}
		})},
		{Name: "a pause does not end", Caught: "its pause was over at", Need: operated, Table: looks(func(c *monitor.Candidate) { c.Until = 0 })},
		{Name: "a return is not seen", Caught: "its alarm stands, and it is well", Table: looks(func(c *monitor.Candidate) {
			if c.Alarm != "" {
				c.Beat = min(c.Beat, c.Onset-1)
			}
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
	for i := range s.Events {
		if s.Events[i].Interval > 0 {
			s.Events[i].Missed = 5
		}
	}
}

func operated(s *MonitorSetup) { s.Operators = true }

func operatedLong(s *MonitorSetup) {
	s.Operators = true
	s.Length += 90 * time.Second
}

// changes breaks changes on their way into the table; those that are dropped count
// as made.
func changes(f func(monitor.Table, *monitor.Change) (drop bool)) func(monitor.Table) monitor.Table {
	return func(t monitor.Table) monitor.Table {
		return brokenMonitor{Table: t, apply: func(t monitor.Table, cs []monitor.Change) ([]bool, error) {
			made := make([]bool, len(cs))
			for i := range cs {
				if f(t, &cs[i]) {
					made[i] = true
					continue
				}
				one, err := t.Apply(context.Background(), cs[i:i+1])
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
		{Name: "beats between are overlooked", Caught: "after it was looked at", Need: busy, Table: blindly(func(c *monitor.Candidate, to *monitor.Change) { to.Stamp = c.Stamp })},
		{Name: "one is not told", Caught: "was not told the", Table: changes(func(_ monitor.Table, c *monitor.Change) bool {
			if len(c.Notices) > 0 && mute.of(10) {
				c.Notices = nil
			}
			return false
		})},
		{Name: "the end has another id", Caught: "with request id", Table: changes(func(_ monitor.Table, c *monitor.Change) bool {
			if c.Turn == monitor.Abated {
				for i := range c.Notices {
					c.Notices[i].Payload = []byte(`{"status":"ABATED","request_id":"another","ended":"2000-01-01T00:00:00Z"}`)
					c.Notices[i].ID = "another/ABATED"
				}
			}
			return false
		})},
		{Name: "the end comes first", Caught: "stands", Table: changes(func(_ monitor.Table, c *monitor.Change) bool {
			slices.Reverse(c.Notices)
			return false
		}), Need: grouped},
		{Name: "an alarm does not end", Caught: "stuck: the alarm of", Table: changes(func(_ monitor.Table, c *monitor.Change) bool {
			if c.Turn == monitor.Abated {
				c.Turn, c.Notices, c.Due = monitor.Stay, nil, monitor.Never
			}
			return false
		})},
		{Name: "what is judged is not looked at again", Caught: "no alarm, and it is overdue", Table: changes(func(_ monitor.Table, c *monitor.Change) bool {
			if c.Turn == monitor.Stay {
				c.Due = c.Due.Add(30 * time.Second)
			}
			return false
		})},
		{Name: "groups are not reported", Caught: "its alarm is held since", Need: grouped, Table: func(t monitor.Table) monitor.Table {
			return brokenMonitor{Table: t, report: func(monitor.Table, monitor.Report) (bool, error) { return false, nil }}
		}},
		{Name: "nobody sweeps", Caught: "and its event was removed", Need: operated, Table: func(t monitor.Table) monitor.Table {
			return brokenMonitor{Table: t, sweep: func(t monitor.Table) (monitor.Look, error) {
				l, err := t.Due(context.Background(), nil, 1)
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
	if !slices.ContainsFunc(s.Events, func(e monitor.Event) bool { return e.GroupBy != "" }) {
		s.Events = append(s.Events, monitor.Event{Name: "together", Interval: time.Second, Missed: 2, GroupBy: "rack", GroupWait: 2 * time.Second, GroupMin: 2})
	}
}

// blindly makes changes although what they were judged on has changed: it reads
// everything before each, and says what is there.
func blindly(f func(*monitor.Candidate, *monitor.Change)) func(monitor.Table) monitor.Table {
	return func(t monitor.Table) monitor.Table {
		return brokenMonitor{Table: t, apply: func(t monitor.Table, cs []monitor.Change) ([]bool, error) {
			made, err := t.Apply(context.Background(), cs)
			if err != nil {
				return made, err
			}
			var again []monitor.Change
			var place []int
			for i, c := range cs {
				if !made[i] && c.Turn == monitor.Onset {
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
			l, err := t.Due(context.Background(), parts, monitor.MaxSources)
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
			more, err := t.Apply(context.Background(), again)
			for i := range more {
				made[place[i]] = more[i]
			}
			return made, err
		}}
	}
}
