package checks

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/understudy-ha/understudy/monitor"
)

// Sources implements [monitor.Admin].
func (r *Memory) Sources(ctx context.Context, q monitor.SourceQuery) (out []monitor.SourceRecord, err error) {
	err = r.atomically(ctx, func(s step) error {
		for _, n := range s.sortedSources() {
			value, labelled := n.labels[q.Label]
			after := cmp.Or(cmp.Compare(n.check.Name, q.AfterCheck), cmp.Compare(n.name, q.AfterSource))
			if after > 0 && len(out) < monitor.PageSize(q.Limit) &&
				(q.Check == "" || q.Check == n.check.Name) && (q.Source == "" || q.Source == n.name) &&
				(q.State == "" || q.State == n.state) && (q.Label == "" || labelled && value == q.Value) {
				out = append(out, s.sourceRecord(n))
			}
		}
		return nil
	})
	return out, err
}

func (s step) sourceRecord(n *source) monitor.SourceRecord {
	c := s.candidate(n)
	out := c.Record(n.check.Check)
	out.Declared, out.Beats, out.Sent, out.Seq, out.Code, out.Note = n.declared, n.beats, n.sent, n.seq, n.code, n.note
	if n.lastBeat != 0 {
		out.Recent = monitor.RecentSlots(n.recent, n.check.slotOf(s.now)-n.slot)
	}
	if n.path != nil {
		out.Path = n.path.Name
	}
	return out
}

// Alarms implements [monitor.Admin].
func (r *Memory) Alarms(ctx context.Context, q monitor.AlarmQuery) (out []monitor.Alarm, err error) {
	err = r.atomically(ctx, func(s step) error {
		for _, a := range s.alarms {
			before := q.Before.IsZero() || a.Raised.Before(q.Before) || a.Raised.Equal(q.Before) && a.ID < q.BeforeID
			if before && (q.ID == "" || q.ID == a.ID) && (q.Check == "" || q.Check == a.Check) &&
				(q.Source == "" || q.Source == a.Source) && (!q.Standing || a.endedAt == 0) && a.isToRemindOf(q.NotifiedBefore) {
				shown := a.Alarm
				shown.Labels = maps.Clone(shown.Labels)
				out = append(out, shown)
			}
		}
		slices.SortFunc(out, func(a, b monitor.Alarm) int { return cmp.Or(b.Raised.Compare(a.Raised), cmp.Compare(b.ID, a.ID)) })
		out = out[:min(len(out), monitor.PageSize(q.Limit))]
		return nil
	})
	return out, err
}

// isToRemindOf reports whether to remind of an alarm of which sinks were last notified before a time; any is for none.
func (a *alarm) isToRemindOf(before time.Time) bool {
	notified := a.notified
	if notified.IsZero() {
		notified = a.Raised
	}
	return before.IsZero() || a.endedAt == 0 && a.Acknowledged == "" && !a.held && a.group == nil && notified.Before(before)
}

// Overview implements [monitor.Admin].
func (r *Memory) Overview(ctx context.Context) (out monitor.Overview, err error) {
	lives, err := r.liveSessions(ctx)
	if err != nil {
		return out, err
	}
	err = r.atomically(ctx, func(s step) error {
		out = monitor.Overview{
			Now: s.wall, Sinks: slices.Sorted(maps.Keys(s.sinks)),
			Configured: s.configured, Origin: s.origin, Error: s.refused,
		}
		counts := s.countSources()
		for _, name := range slices.Sorted(maps.Keys(s.checks)) {
			out.Checks = append(out.Checks, *counts[s.checks[name]])
		}
		for _, name := range slices.Sorted(maps.Keys(s.paths)) {
			out.Paths = append(out.Paths, s.paths[name].View(s.now))
		}
		for _, a := range s.openAlarms() {
			if a.Source != "" {
				out.Standing++
			}
		}
		for _, id := range slices.Sorted(maps.Keys(s.members)) {
			if lives(id) {
				out.Members = append(out.Members, s.members[id])
			}
		}
		return nil
	})
	return out, err
}

// countSources counts the sources of each check, in one pass over them.
func (s step) countSources() map[*check]*monitor.CheckCount {
	counts := make(map[*check]*monitor.CheckCount, len(s.checks))
	for _, e := range s.checks {
		counts[e] = &monitor.CheckCount{StoredCheck: e.StoredCheck}
	}
	for _, n := range s.sources {
		out := counts[n.check]
		if out == nil {
			continue // of a check that was removed
		}
		switch n.state {
		case monitor.Up:
			out.Up++
		case monitor.Down:
			out.Down++
		case monitor.Paused:
			out.Paused++
		case monitor.Retired:
			out.Retired++
		}
		if n.lastBeat == 0 && (n.state == monitor.Up || n.state == monitor.Down) {
			out.NeverSeen++
		}
	}
	return counts
}
