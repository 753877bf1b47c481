package checks

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/understudy-ha/understudy/monitor"
)

// Settings implements [monitor.Detection].
func (r *Memory) Settings(ctx context.Context) (out monitor.Settings, err error) {
	err = r.atomically(ctx, func(s step) error {
		out.Generation = s.generation
		out.Sinks, out.Secret = slices.Sorted(maps.Keys(s.sinks)), slices.Clone(s.secret)
		for _, name := range slices.Sorted(maps.Keys(s.checks)) {
			out.Checks = append(out.Checks, s.checks[name].StoredCheck)
		}
		return nil
	})
	return out, err
}

func (s step) newScan() monitor.Scan {
	return monitor.Scan{Now: s.now, Wall: s.wall, Generation: s.generation, Next: monitor.Never}
}

// DueSources implements [monitor.Detection].
func (r *Memory) DueSources(ctx context.Context, partitions []int, limit int) (out monitor.Scan, err error) {
	err = r.atomically(ctx, func(s step) error {
		out = s.newScan()
		var wanted [monitor.Partitions]bool
		for _, p := range partitions {
			wanted[p] = true
		}
		var due []*source
		for _, n := range s.sources {
			switch {
			case !wanted[n.id%monitor.Partitions]:
			case n.due <= s.now:
				due = append(due, n)
			default:
				out.Next = min(out.Next, n.due)
			}
		}
		slices.SortFunc(due, func(a, b *source) int { return cmp.Or(cmp.Compare(a.due, b.due), cmp.Compare(a.id, b.id)) })
		for i, n := range due {
			if i >= limit {
				out.Next = n.due
				break
			}
			out.Candidates = append(out.Candidates, s.candidate(n))
		}
		return nil
	})
	return out, err
}

// ApplyChanges implements [monitor.Detection].
func (r *Memory) ApplyChanges(ctx context.Context, changes []monitor.SourceChange) ([]bool, error) {
	made := make([]bool, len(changes))
	err := r.atomically(ctx, func(s step) error {
		for i, c := range changes {
			n := s.sources[c.ID]
			if n != nil && n.rev == c.Rev && n.beatRev == c.BeatRev && n.check.Rev == c.CheckRev {
				made[i] = true
				s.applyChange(n, c)
			}
		}
		return nil
	})
	return made, err
}

func (s step) applyChange(n *source, c monitor.SourceChange) {
	n.due, n.wellSince = c.Due, c.WellSince
	if c.Transition == monitor.NoTransition {
		return
	}
	n.rev++
	switch c.Transition {
	case monitor.Onset:
		n.state = monitor.Down
		s.raiseAlarm(n, c)
	case monitor.Abated:
		s.clearAlarm(n, c)
		if n.state == monitor.Down {
			n.state = monitor.Up
		}
	case monitor.Resume:
		n.state, n.expectedFrom, n.pausedUntil, n.note = monitor.Up, c.ExpectedFrom, 0, ""
		if n.alarm != nil {
			n.state = monitor.Down
		}
	case monitor.Return:
		n.state, n.expectedFrom, n.retiredAt, n.retireRequested, n.note = monitor.Up, c.ExpectedFrom, 0, false, ""
	case monitor.Retire:
		s.clearAlarm(n, c)
		n.state, n.retiredAt, n.retireRequested, n.pausedUntil = monitor.Retired, s.now, false, 0
	case monitor.Forget:
		s.clearAlarm(n, c)
		s.forgetSource(n)
	}
	s.enqueue(c.Notifications)
}

func (s step) raiseAlarm(n *source, c monitor.SourceChange) {
	n.alarm = &alarm{
		Alarm: monitor.Alarm{
			ID: c.Alarm, Check: n.check.Name, Source: n.name, Group: c.Group, Labels: maps.Clone(n.labels),
			Reason: c.Reason, Started: c.At, Raised: s.wall,
		},
		onset: s.now, beats: n.beats, held: c.Group != "",
	}
	n.onsets = append(n.onsets, s.now)
	s.alarms[c.Alarm] = n.alarm
	s.recordEvent(n.check.Name+"/"+n.name, string(c.Reason), s.wall.Sub(c.At))
}

// clearAlarm ends the open alarm of a source, if it has one.
func (s step) clearAlarm(n *source, c monitor.SourceChange) {
	if n.alarm == nil {
		return
	}
	s.endAlarm(n.alarm, n.check.Name+"/"+n.name, c.At, c.Transition)
	n.alarm, n.wellSince = nil, 0
}

func (s step) endAlarm(a *alarm, subject string, at time.Time, end monitor.Transition) {
	a.Ended, a.End, a.endedAt, a.held = at, end, s.now, false
	s.recordEvent(subject, string(end), at.Sub(a.Started))
}

// Sweep implements [monitor.Detection].
func (r *Memory) Sweep(ctx context.Context, keep time.Duration, limit int) (out monitor.Scan, err error) {
	err = r.atomically(ctx, func(s step) error {
		out = s.newScan()
		s.rescheduleChanged(&out, limit)
		left := limit
		for _, id := range slices.Sorted(maps.Keys(s.alarms)) {
			a := s.alarms[id]
			if a.endedAt == 0 || s.wall.Sub(a.Ended) <= keep {
				continue
			}
			if left--; left < 0 {
				out.Next = s.now
				break
			}
			delete(s.alarms, id)
		}
		used := map[*check]bool{}
		for _, n := range s.sortedSources() {
			used[n.check] = true
			old := n.state == monitor.Retired && !n.declared && s.now.Sub(n.retiredAt) > keep
			switch {
			case !n.check.Removed && !old:
			case len(out.Candidates) == limit:
				out.Next = s.now
			default:
				out.Candidates = append(out.Candidates, s.candidate(n))
			}
		}
		for name, e := range s.checks {
			if e.Removed && !used[e] {
				delete(s.checks, name)
				s.generation++
			}
		}
		return nil
	})
	return out, err
}

// rescheduleChanged makes the sources of changed checks due.
func (s step) rescheduleChanged(out *monitor.Scan, limit int) {
	for _, e := range s.checks {
		for id := range e.reschedule {
			if limit--; limit < 0 {
				out.Next = s.now
				return
			}
			delete(e.reschedule, id)
			n := s.sources[id]
			n.due = min(n.due, s.now)
		}
	}
}

// HeldGroups implements [monitor.Detection].
func (r *Memory) HeldGroups(ctx context.Context) (out []monitor.AlarmGroup, err error) {
	err = r.atomically(ctx, func(s step) error {
		groups := map[string]*monitor.AlarmGroup{}
		of := func(a monitor.Alarm) *monitor.AlarmGroup {
			if groups[a.Group] == nil {
				groups[a.Group] = &monitor.AlarmGroup{Group: a.Group, Check: a.Check}
			}
			return groups[a.Group]
		}
		for _, a := range s.openAlarms() {
			switch {
			case a.Source == "": // a group's alarm
				g := of(a.Alarm)
				g.Alarm, g.Started = a.ID, a.Started
			case a.group != nil:
				of(a.group.Alarm).Standing++
			case a.held:
				g := of(a.Alarm)
				g.Count++
				g.Oldest = max(g.Oldest, s.now.Sub(a.onset))
				if len(g.Members) < monitor.MaxSources {
					g.Members = append(g.Members, a.Alarm)
				}
			}
		}
		for _, name := range slices.Sorted(maps.Keys(groups)) {
			if g := groups[name]; len(g.Members) > 0 || g.Alarm != "" && g.Standing == 0 {
				out = append(out, *g)
			}
		}
		return nil
	})
	return out, err
}

// openAlarms returns the open alarms, the oldest first.
func (r *Memory) openAlarms() []*alarm {
	out := slices.DeleteFunc(slices.Collect(maps.Values(r.alarms)), func(a *alarm) bool { return a.endedAt != 0 })
	slices.SortFunc(out, func(a, b *alarm) int { return cmp.Or(cmp.Compare(a.onset, b.onset), cmp.Compare(a.ID, b.ID)) })
	return out
}

// ReportGroup implements [monitor.Detection].
func (r *Memory) ReportGroup(ctx context.Context, rep monitor.GroupReport) (made bool, err error) {
	err = r.atomically(ctx, func(s step) error {
		if rep.End != "" {
			made = s.endGroup(rep)
		} else {
			made = s.reportGroup(rep)
		}
		if made {
			s.enqueue(rep.Notifications)
		}
		return nil
	})
	return made, err
}

func (s step) endGroup(rep monitor.GroupReport) bool {
	g := s.alarms[rep.Alarm]
	if g == nil || g.endedAt != 0 || g.Source != "" {
		return false
	}
	if slices.ContainsFunc(s.openAlarms(), func(a *alarm) bool { return a.group == g }) {
		return false
	}
	s.endAlarm(g, g.Group, rep.At, rep.End)
	return true
}

func (s step) reportGroup(rep monitor.GroupReport) bool {
	members := make([]*alarm, 0, len(rep.Members))
	for _, id := range rep.Members {
		a := s.alarms[id]
		if a == nil || !a.held || a.Group != rep.Group {
			return false
		}
		members = append(members, a)
	}
	var g *alarm
	if rep.Alarm != "" {
		if g = s.groupAlarm(rep, members[0]); g == nil {
			return false
		}
		g.Members += len(members)
	}
	for _, a := range members {
		a.held, a.group = false, g
		if g == nil {
			a.Group = ""
		}
	}
	return true
}

// groupAlarm returns the open alarm of a group, or a new one; nil if an alarm with another ID is open.
func (s step) groupAlarm(rep monitor.GroupReport, first *alarm) *alarm {
	for _, a := range s.openAlarms() {
		if a.Source == "" && a.Group == rep.Group {
			if a.ID != rep.Alarm {
				return nil
			}
			return a
		}
	}
	if s.alarms[rep.Alarm] != nil {
		return nil
	}
	g := &alarm{onset: s.now, Alarm: monitor.Alarm{
		ID: rep.Alarm, Check: first.Check, Group: rep.Group, Reason: first.Reason, Started: rep.At, Raised: s.wall,
	}}
	s.alarms[g.ID] = g
	s.recordEvent(g.Group, string(g.Reason), s.wall.Sub(rep.At))
	return g
}

// Parents implements [monitor.Detection].
func (r *Memory) Parents(ctx context.Context, of []monitor.SourceRef) ([]monitor.Parent, error) {
	out := make([]monitor.Parent, len(of))
	err := r.atomically(ctx, func(s step) error {
		for i, ref := range of {
			if n := s.names[ref]; n != nil && !n.check.Removed {
				out[i] = monitor.Parent{State: n.state, Alarm: n.alarm != nil, LastBeat: n.lastBeat, ExpectedFrom: n.expectedFrom, Labels: maps.Clone(n.labels)}
			}
		}
		return nil
	})
	return out, err
}

// Remind implements [monitor.Detection].
func (r *Memory) Remind(ctx context.Context, m monitor.Reminder) (made bool, err error) {
	err = r.atomically(ctx, func(s step) error {
		a := s.alarms[m.Alarm]
		if a == nil || a.endedAt != 0 || a.Acknowledged != "" || a.Reminders+1 != m.Number {
			return nil
		}
		a.Reminders, a.notified, made = m.Number, s.wall, true
		s.enqueue(m.Notifications)
		return nil
	})
	return made, err
}
