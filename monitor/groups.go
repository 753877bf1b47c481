package monitor

import (
	"context"
	"slices"
	"strings"
	"time"
)

// reportGroups reports alarms that are held, and ends those of groups of which
// none stands any more. It tells when to come again.
func (w *Watcher) reportGroups(ctx context.Context) (every time.Duration, err error) {
	w.mu.Lock()
	now, b := w.seen.Add(w.clock.Now()-w.seenAt), w.book
	w.mu.Unlock()
	if !b.read {
		if b, err = w.reread(ctx); err != nil {
			return 0, err // the back-off is what counts
		}
	}
	every = sweepEvery
	if b.grouped > 0 {
		every = min(max(b.grouped/4, 100*time.Millisecond), 5*time.Second)
	}
	var held []HeldGroup
	err = w.request(ctx, func(ctx context.Context) (err error) {
		held, err = w.cfg.Table.Held(ctx)
		return err
	})
	for i := range held {
		g := &held[i]
		r, ok := w.groupReport(ctx, b, g, now)
		if !ok || err != nil {
			continue
		}
		made := false
		err = w.request(ctx, func(ctx context.Context) (err error) {
			made, err = w.cfg.Table.Report(ctx, r)
			return err
		})
		if made && len(g.Members) >= MaxSources {
			every = soon // there may be more of them
		}
	}
	if err != nil {
		every = 0
	}
	return every, err
}

// groupReport is what to report of a group now, if anything.
func (w *Watcher) groupReport(ctx context.Context, b book, g *HeldGroup, now time.Time) (Report, bool) {
	e := &Event{Name: g.Event}
	if known := b.byName[g.Event]; known != nil {
		e = &known.Event
	}
	t := teller{event: e, value: strings.TrimPrefix(g.Group, groupKey(g.Event, "")), sinks: b.sinks, now: now}
	if g.Alarm == "" || len(g.Members) > 0 {
		return t.members(g)
	}
	// What was told when the group's alarm began is told again at its end.
	var alarm Alarm
	err := w.request(ctx, func(ctx context.Context) error {
		found, err := w.cfg.Table.Alarms(ctx, AlarmQuery{ID: g.Alarm, Limit: 1})
		if len(found) > 0 {
			alarm = found[0]
		}
		return err
	})
	return t.end(g, alarm), err == nil && g.Standing == 0
}

// teller makes the reports of a group.
type teller struct {
	event *Event
	value string // of the label that the group is of
	sinks []string
	now   time.Time // the store's wall clock
}

// members reports alarms that are held. Those that join a group that was reported
// are not told of: it stands until none of its members does.
func (t *teller) members(g *HeldGroup) (Report, bool) {
	r := Report{Group: g.Group, Alarm: g.Alarm, At: t.now}
	began := t.now
	for i := range g.Members {
		r.Members = append(r.Members, g.Members[i].ID)
		if s := g.Members[i].Started; s.Before(began) {
			began = s
		}
	}
	switch {
	case len(g.Members) == 0:
		return Report{}, false
	case g.Alarm != "":
		return r, true
	case t.event.GroupBy != "" && g.Oldest < t.event.GroupWait:
		return Report{}, false
	case t.event.GroupBy == "" || len(g.Members) < t.event.GroupMin:
		for i := range g.Members {
			r.Notices = append(r.Notices, t.alone(&g.Members[i]).Notices(t.sinks)...)
		}
		return r, true
	}
	r.Alarm, r.At = newRequestID(), began
	m := t.message(r.Alarm, g.Members[0].Reason, began)
	m.Raised, m.Count = t.now, max(g.Count, len(g.Members))
	for i := range g.Members[:min(len(g.Members), MaxMembers)] {
		m.Members = append(m.Members, g.Members[i].Source)
	}
	slices.Sort(m.Members)
	r.Notices = m.Notices(t.sinks)
	return r, true
}

// alone is the ONSET of one that is no member of a group after all.
func (t *teller) alone(a *Alarm) Message {
	m := t.event.message(a.Labels)
	m.Status, m.RequestID, m.Reason, m.Source = Onset, a.ID, a.Reason, a.Source
	m.Started, m.Raised = a.Started, a.Raised
	return m
}

// end ends the alarm of a group.
func (t *teller) end(g *HeldGroup, a Alarm) Report {
	m := t.message(g.Alarm, a.Reason, g.Started)
	m.Status, m.Ended, m.Count, m.Raised = Abated, &t.now, a.Members, a.Raised
	if a.Raised.IsZero() {
		m.Raised = g.Started
	}
	return Report{Group: g.Group, Alarm: g.Alarm, End: true, At: t.now, Notices: m.Notices(t.sinks)}
}

// message is the ONSET of the group.
func (t *teller) message(alarm string, r Reason, began time.Time) Message {
	m := t.event.message(map[string]string{t.event.GroupBy: t.value})
	if t.event.GroupBy == "" {
		delete(m.Labels, "")
	}
	m.Status, m.RequestID, m.Reason, m.Started = Onset, alarm, r, began
	m.Group, m.GroupBy = t.value, t.event.GroupBy
	return m
}
