package sim

import (
	"context"
	"encoding/json"
	"time"

	"github.com/understudy-ha/understudy/monitor"
)

// ReportGroup implements [monitor.Detection].
func (j *monitorJudge) ReportGroup(ctx context.Context, r monitor.GroupReport) (bool, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	made, err := j.Store.ReportGroup(ctx, r)
	j.touch(err)
	if err != nil || !made {
		return made, err
	}
	j.trace("report of group %s: alarm %q, members %v, end %v", r.Group, r.Alarm, r.Members, r.End)
	j.reads()
	for _, id := range r.Members {
		if b := j.alarms[id]; b != nil && b.alarm == id {
			b.held = false
			if r.Alarm == "" {
				j.mustBeTold(b, id, monitor.Onset)
			}
		}
	}
	return made, err
}

// reads reads what sinks were told since.
func (j *monitorJudge) reads() {
	for _, n := range j.world.base.news() {
		var m monitor.AlarmMessage
		if err := json.Unmarshal(n.Payload, &m); err != nil {
			j.breach("a notice that cannot be read: %v", err)
			continue
		}
		j.trace("%s is told %s of %s (%s)", n.Sink, m.Status, n.Key, m.RequestID)
		j.told(j.sinks[n.Sink], n, m)
	}
}

func (j *monitorJudge) told(s *sinkBook, n monitor.Notification, m monitor.AlarmMessage) {
	s.count++
	if m.Source == "" && n.Sink == monitorSinks[0] && m.Status == monitor.Onset {
		j.r.Groups++
	}
	if n.ID != m.RequestID+"/"+string(m.Status) || s.ids[n.ID] {
		j.breach("%s is told of %s %s twice, or under another id: %s", n.Sink, m.Status, m.RequestID, n.ID)
	}
	s.ids[n.ID] = true
	switch stands := s.stands[n.Key]; {
	case m.Status == monitor.Onset && stands != "":
		j.breach("%s: ONSET of %s while another stands", n.Sink, n.Key)
	case m.Status == monitor.Onset:
		s.stands[n.Key] = m.RequestID
	case m.Status == monitor.Abated && stands != m.RequestID:
		j.breach("%s: ABATED of %s with request id %s, and %q stands", n.Sink, n.Key, m.RequestID, stands)
	default:
		delete(s.stands, n.Key)
	}
	if m.End == monitor.EndByConfiguration {
		if b := j.source(monitor.SourceRef{Check: m.Event, Source: m.Source}); j.events[m.Event].changed.Before(b.onset) {
			j.breach("%s: ABATED of %s by a configuration, and none came since the ONSET at %s", n.Sink, n.Key, j.at(b.onset))
		}
	}
	if m.Status == monitor.Abated && (m.Ended == nil || !j.world.setup.Steps && m.Ended.Before(m.Started)) {
		j.breach("%s: ABATED of %s from %v to %v", n.Sink, n.Key, m.Started, m.Ended)
	}
}

// configures notes what a configuration changed.
func (j *monitorJudge) configures(c monitor.Configuration, do func() error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := do(); err != nil {
		j.breach("a configuration was refused: %v", err)
		return
	}
	now, wanted := time.Now(), map[string]bool{}
	for _, e := range c.Checks {
		e = e.WithDefaults()
		wanted[e.Name] = true
		b := j.events[e.Name]
		switch {
		case b == nil:
			j.events[e.Name] = &eventBook{Check: e, since: now}
			continue
		case !b.removed.IsZero():
			b.removed, b.since, b.back, b.paused = time.Time{}, now, now, false
			j.trace("event %s is back", e.Name)
		}
		if limitOf(e) < limitOf(b.Check) {
			b.base = now
			j.trace("event %s: the limit is shorter", e.Name)
		} else if limitOf(e) > limitOf(b.Check) {
			j.trace("event %s: the limit is longer", e.Name)
			b.changed = now
		}
		b.Check = e
	}
	for name, b := range j.events {
		if !wanted[name] && b.removed.IsZero() {
			b.removed = now
			j.trace("event %s is removed", name)
		}
	}
	for _, d := range c.Declared {
		b := j.source(monitor.SourceRef{Check: d.Check, Source: d.Source})
		if !b.known {
			b.base, b.baseUp = now, now
		}
		b.known, b.declared = true, true
	}
	if s, err := j.world.base.Settings(context.Background()); err == nil {
		for _, e := range s.Checks {
			j.names[e.ID] = e.Name
		}
	}
}

// configured are the event names in force.
func (j *monitorJudge) configured() map[string]monitor.Check {
	j.mu.Lock()
	defer j.mu.Unlock()
	out := map[string]monitor.Check{}
	for name, b := range j.events {
		if b.removed.IsZero() {
			out[name] = b.Check
		}
	}
	return out
}

// acts notes what a person did.
func (j *monitorJudge) acts(a monitor.Action, do func() error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := do(); err != nil {
		j.trace("%s of %s/%s: %v", a.Type, a.Check, a.Source, err)
		return
	}
	now := time.Now()
	j.trace("%s of %s/%s for %v", a.Type, a.Check, a.Source, a.For)
	if a.Source == "" {
		e := j.events[a.Check]
		if e.paused && a.Type == monitor.ActionResume {
			e.base = now
		}
		e.paused = a.Type == monitor.ActionPause
		return
	}
	b := j.source(monitor.SourceRef{Check: a.Check, Source: a.Source})
	if b.retired {
		return
	}
	switch a.Type {
	case monitor.ActionPause:
		b.paused, b.until = true, time.Time{}
		if a.For > 0 {
			b.until = now.Add(a.For)
		}
	case monitor.ActionResume:
		if b.paused {
			b.paused, b.until, b.base, b.baseUp = false, time.Time{}, now, now
		}
	case monitor.ActionRetire:
		b.asked = now
	}
}

func limitOf(e monitor.Check) time.Duration {
	return e.Interval*time.Duration(e.Missed) + e.Grace
}
