package checks

import (
	"cmp"
	"context"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/understudy-ha/understudy/monitor"
)

// page is how many rows a query gets.
func page(limit int) int {
	if limit <= 0 || limit > monitor.MaxPage {
		return monitor.MaxPage
	}
	return limit
}

// Sources implements [monitor.Admin].
func (r *Reference) Sources(ctx context.Context, q monitor.SourceQuery) (out []monitor.SourceRecord, err error) {
	err = r.do(ctx, func(s step) error {
		for _, n := range s.all() {
			value, labelled := n.labels[q.Label]
			after := cmp.Or(cmp.Compare(n.event.Name, q.AfterCheck), cmp.Compare(n.name, q.AfterSource))
			if after > 0 && len(out) < page(q.Limit) &&
				(q.Check == "" || q.Check == n.event.Name) && (q.Source == "" || q.Source == n.name) &&
				(q.State == "" || q.State == n.state) && (q.Label == "" || labelled && value == q.Value) {
				out = append(out, s.show(n))
			}
		}
		return nil
	})
	return out, err
}

func (s step) show(n *source) monitor.SourceRecord {
	out := monitor.SourceRecord{
		Check: n.event.Name, Source: n.name, Labels: maps.Clone(n.labels), Declared: n.declared, State: n.state,
		Running: n.run != 0, Last: s.wallAt(n.at), Beats: n.beats, Sent: n.sent, Seq: n.seq, Code: n.code,
		Left: s.left(n), Until: s.wallAt(n.until), Note: n.note,
	}
	if n.at != 0 {
		out.Quiet = s.now.Sub(n.at)
		out.Recent = n.sparks(n.event.slotOf(s.now))
	}
	if n.path != nil {
		out.Path = n.path.Name
	}
	if n.alarm != nil {
		out.Alarm, out.Reason, out.Since = n.alarm.ID, n.alarm.Reason, n.alarm.Started
	}
	return out
}

// left is how long a source may still be quiet, if all that is not its own doing
// is as it should be.
func (s step) left(n *source) time.Duration {
	f := s.facts(n)
	f.State, f.Alarm, f.RetireRequested, f.Removed = monitor.Up, "", false, false
	f.Path.LastSeen, f.Path.TrustFor = s.now, 0
	e := n.event.Check
	e.Paused = false
	switch v := e.Evaluate(f); {
	case v.Transition != monitor.NoTransition:
		return v.At.Sub(s.now)
	case v.Due == monitor.Never:
		return math.MaxInt64
	default:
		return v.Due.Sub(s.now)
	}
}

// sparks are the last slots, the newest first.
func (b *beat) sparks(slot int64) []bool {
	bits := b.recent << min(uint64(max(0, slot-b.slot)), 64)
	out := make([]bool, 64)
	for i := range out {
		out[i] = bits>>i&1 == 1
	}
	return out
}

// Alarms implements [monitor.Admin].
func (r *Reference) Alarms(ctx context.Context, q monitor.AlarmQuery) (out []monitor.Alarm, err error) {
	err = r.do(ctx, func(s step) error {
		for _, a := range s.alarms {
			before := q.Before.IsZero() || a.Raised.Before(q.Before) || a.Raised.Equal(q.Before) && a.ID < q.BeforeID
			if before && (q.ID == "" || q.ID == a.ID) && (q.Check == "" || q.Check == a.Check) &&
				(q.Source == "" || q.Source == a.Source) && (!q.Standing || a.over == 0) {
				shown := a.Alarm
				shown.Labels = maps.Clone(shown.Labels)
				out = append(out, shown)
			}
		}
		slices.SortFunc(out, func(a, b monitor.Alarm) int { return cmp.Or(b.Raised.Compare(a.Raised), cmp.Compare(b.ID, a.ID)) })
		out = out[:min(len(out), page(q.Limit))]
		return nil
	})
	return out, err
}

// Overview implements [monitor.Admin].
func (r *Reference) Overview(ctx context.Context) (out monitor.Overview, err error) {
	lives, err := r.living(ctx)
	if err != nil {
		return out, err
	}
	err = r.do(ctx, func(s step) error {
		out = monitor.Overview{
			Now: s.wall, Sinks: slices.Sorted(maps.Keys(s.sinks)),
			Configured: s.configured, Origin: s.origin, Error: s.refused,
		}
		for _, name := range slices.Sorted(maps.Keys(s.events)) {
			out.Checks = append(out.Checks, s.count(s.events[name]))
		}
		for _, name := range slices.Sorted(maps.Keys(s.paths)) {
			p := s.paths[name]
			out.Paths = append(out.Paths, monitor.PathView{PathStatus: p.PathStatus, Working: s.now.Sub(p.LastSeen) <= max(p.MaxGap, p.TrustFor), Quiet: s.now.Sub(p.LastSeen)})
		}
		for _, a := range s.standing() {
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

func (s step) count(e *event) monitor.CheckCount {
	out := monitor.CheckCount{StoredCheck: e.StoredCheck}
	for _, n := range s.sources {
		if n.event != e {
			continue
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
		if n.at == 0 && (n.state == monitor.Up || n.state == monitor.Down) {
			out.NeverSeen++
		}
	}
	return out
}
