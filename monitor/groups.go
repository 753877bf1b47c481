package monitor

import (
	"context"
	"slices"
	"time"
)

// reportGroups reports alarms that are held, and ends the alarms of groups with no member left down. It returns
// when to run again.
func (w *Watcher) reportGroups(ctx context.Context) (every time.Duration, err error) {
	now, s, err := w.nowAndSettings(ctx)
	if err != nil {
		return 0, err // the back-off is what counts
	}
	every = sweepEvery
	if s.shortestGroupWait > 0 {
		every = min(max(s.shortestGroupWait/4, 100*time.Millisecond), 5*time.Second)
	}
	held, err := withinTimeout(ctx, w.cfg.Store.HeldGroups)
	if err != nil {
		return 0, err
	}
	for i := range held {
		g := &held[i]
		// After the first error no more requests: each may take the whole storeTimeout, and the other housekeeping waits.
		r, ok, err := w.groupReport(ctx, s, g, now)
		if err != nil {
			return 0, err
		}
		if !ok {
			continue
		}
		made, err := withinTimeout(ctx, func(ctx context.Context) (bool, error) { return w.cfg.Store.ReportGroup(ctx, r) })
		if err != nil {
			return 0, err
		}
		if made && len(g.Members) >= MaxSources {
			every = soon // there may be more of them
		}
	}
	return every, nil
}

// groupReport is what to report of a group now; ok is false for nothing.
func (w *Watcher) groupReport(ctx context.Context, s settingsCache, g *AlarmGroup, now time.Time) (r GroupReport, ok bool, err error) {
	check := &Check{Name: g.Check} // one that is not configured any more has no labels and no severity
	if known := s.byName[g.Check]; known != nil {
		check = &known.Check
	}
	t := groupReporter{check: check, value: groupValue(g.Check, g.Group), links: w.links(s), now: now}
	switch {
	case g.Alarm == "" || len(g.Members) > 0:
		r, ok = t.members(g)
		return r, ok, nil
	case g.Standing > 0:
		return r, false, nil
	}
	// No member is down: the end of the alarm repeats what its start said.
	found, err := withinTimeout(ctx, func(ctx context.Context) ([]Alarm, error) {
		return w.cfg.Store.Alarms(ctx, AlarmQuery{ID: g.Alarm, Limit: 1})
	})
	if err != nil {
		return r, false, err
	}
	var alarm Alarm
	if len(found) > 0 {
		alarm = found[0]
	}
	end, err := w.endOfMembers(ctx, g, alarm.Raised)
	return t.end(g, alarm, end), err == nil, err
}

// maxEndPages is how many pages of a check's alarms are read to find out why those of a group have ended.
const maxEndPages = 10

// endOfMembers is why the alarms of a group have ended that was reported at a time: Abated if any did so, otherwise what ended
// the last of them.
func (w *Watcher) endOfMembers(ctx context.Context, g *AlarmGroup, reported time.Time) (Transition, error) {
	end, last := Abated, time.Time{}
	q := AlarmQuery{Check: g.Check}
	for range maxEndPages {
		page, err := withinTimeout(ctx, func(ctx context.Context) ([]Alarm, error) { return w.cfg.Store.Alarms(ctx, q) })
		if err != nil {
			return "", err
		}
		for i := range page {
			switch a := &page[i]; {
			case a.Raised.Before(g.Started):
				return end, nil // it is of an outage before, and so is the rest
			case a.Source == "" || a.Group != g.Group || a.Ended.Before(reported):
				continue
			case a.End == Abated:
				return Abated, nil
			case a.Ended.After(last):
				end, last = a.End, a.Ended
			}
		}
		if len(page) < MaxPage {
			break
		}
		q.Before, q.BeforeID = page[len(page)-1].Raised, page[len(page)-1].ID
	}
	return end, nil
}

// groupReporter makes the reports of a group.
type groupReporter struct {
	check *Check
	value string // of the label that the group is of
	links Links
	now   time.Time // the store's wall clock
}

// members reports alarms that are held.
func (t *groupReporter) members(g *AlarmGroup) (GroupReport, bool) {
	r := GroupReport{Group: g.Group, Alarm: g.Alarm, At: t.now}
	began := t.now
	for i := range g.Members {
		r.Members = append(r.Members, g.Members[i].ID)
		if s := g.Members[i].Started; s.Before(began) {
			began = s
		}
	}
	switch {
	case len(g.Members) == 0:
		return GroupReport{}, false
	case g.Alarm != "":
		// They join a group that was reported, without a notification: a mass outage that grows must stay one alarm. It
		// stands until no member is down.
		return r, true
	case t.check.GroupBy != "" && g.Oldest < t.check.GroupWait:
		// More may come. The oldest counts, so that a trickle of new ones does not put the report off for ever.
		return GroupReport{}, false
	case t.check.GroupBy == "" || len(g.Members) < t.check.GroupMin:
		// Too few, or the check is not grouped any more: each by itself.
		for i := range g.Members {
			r.Notifications = append(r.Notifications, t.memberMessage(&g.Members[i]).Notification())
		}
		return r, true
	}
	r.Alarm, r.At = newRequestID(), began
	m := t.message(r.Alarm, g.Members[0].Reason, began)
	m.Raised, m.Count, m.Acknowledge = t.now, max(g.Count, len(g.Members)), t.links.Acknowledge(r.Alarm)
	for i := range g.Members[:min(len(g.Members), MaxMembers)] {
		m.Members = append(m.Members, g.Members[i].Source)
	}
	slices.Sort(m.Members)
	r.Notifications = []Notification{m.Notification()}
	return r, true
}

// memberMessage is the ONSET of an alarm that is not reported with a group after all. It has no LastBeat: that of now would not be
// the one that the alarm was raised after, which alarms do not keep.
func (t *groupReporter) memberMessage(a *Alarm) AlarmMessage {
	m := t.check.message(a.Labels)
	m.Status, m.RequestID, m.Reason, m.Source = Onset, a.ID, a.Reason, a.Source
	m.Started, m.Raised, m.Acknowledge = a.Started, a.Raised, t.links.Acknowledge(a.ID)
	return m
}

// end ends the alarm of a group.
func (t *groupReporter) end(g *AlarmGroup, a Alarm, why Transition) GroupReport {
	m := t.message(g.Alarm, a.Reason, g.Started)
	m.Status, m.Ended, m.Count, m.Raised = Abated, &t.now, a.Members, a.Raised
	if a.Raised.IsZero() {
		m.Raised = g.Started
	}
	if why != Abated {
		m.End = why
	}
	return GroupReport{Group: g.Group, Alarm: g.Alarm, End: why, At: t.now, Notifications: []Notification{m.Notification()}}
}

// message is the ONSET of the group.
func (t *groupReporter) message(alarm string, r Reason, began time.Time) AlarmMessage {
	m := t.check.message(map[string]string{t.check.GroupBy: t.value})
	if t.check.GroupBy == "" {
		delete(m.Labels, "")
	}
	m.Status, m.RequestID, m.Reason, m.Started = Onset, alarm, r, began
	m.Group, m.GroupBy = t.value, t.check.GroupBy
	return m
}
