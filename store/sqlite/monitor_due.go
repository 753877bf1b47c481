package sqlite

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"

	"github.com/understudy-ha/understudy/monitor"
)

const (
	readSecret = "SELECT secret FROM understudy_monitor"

	listSinks = "SELECT name FROM understudy_monitor_sink ORDER BY name"

	// partitionDue reads the index alone.
	partitionDue = `
SELECT id, due_us FROM understudy_monitor_source INDEXED BY understudy_monitor_source_due
WHERE id % 64 = ?1 AND due_us IS NOT NULL ORDER BY due_us LIMIT ?2`

	factColumns = `
SELECT s.id, s.event, s.name, s.labels, s.rev, s.state, s.alarm, s.reason, s.onset_us, s.well_us, s.base_us, s.until_us, s.ended_us, s.asked,
  b.beats + b.starts, b.at_us, b.blind_us, b.path, b.failing, b.run_us, e.rev, e.base_us, e.removed, e.flaps, e.window_us,
  coalesce(a.held, 0), coalesce(a.lead, ''), coalesce(a.started_us, 0), s.alarm <> '' AND coalesce(b.beats > a.beats, b.at_us >= s.onset_us)`

	factJoins = `
JOIN understudy_monitor_beat b ON b.id = s.id
LEFT JOIN understudy_monitor_alarm a ON s.alarm <> '' AND a.id = s.alarm`

	factsOf = factColumns + `
FROM json_each(?1) j CROSS JOIN understudy_monitor_source s ON s.id = j.value
CROSS JOIN understudy_monitor_event e ON e.id = s.event` + factJoins

	// onsetsSince reads no more than a source can have before it counts as one
	// that flaps, and some.
	onsetsSince = `
SELECT count(*) FROM (
  SELECT onset_us FROM understudy_monitor_alarm WHERE source = ?1 AND event = (SELECT name FROM understudy_monitor_event WHERE id = ?2)
  ORDER BY raised_us DESC, id DESC LIMIT ?3)
WHERE onset_us >= ?4`
)

// Settings implements [monitor.Detection].
func (m monitors) Settings(ctx context.Context) (monitor.Settings, error) {
	var out monitor.Settings
	err := m.read(ctx, "reading the monitor's settings", func(t *monitorTxn) error {
		out = monitor.Settings{Generation: t.generation}
		if err := t.one(readSecret, nil, &out.Secret); err != nil {
			return err
		}
		err := t.each(allChecks, nil, func(scan scanner) error {
			e, err := scanCheck(scan)
			if err == nil {
				out.Checks = append(out.Checks, e.StoredCheck)
			}
			return err
		})
		if err == nil {
			out.Sinks, err = sinks(t)
		}
		return err
	})
	return out, err
}

func sinks(t *monitorTxn) ([]string, error) { return list(t.call, listSinks, nil, list1[string]) }

// DueSources implements [monitor.Detection].
func (m monitors) DueSources(ctx context.Context, partitions []int, limit int) (monitor.Scan, error) {
	var out monitor.Scan
	err := m.read(ctx, "reading what is due", func(t *monitorTxn) error {
		ids, next, err := due(t, partitions, limit)
		if err != nil {
			return err
		}
		out = t.scan()
		out.Next = next
		out.Candidates, err = candidates(t, ids)
		return err
	})
	return out, err
}

// scan is one that has found nothing.
func (t *monitorTxn) scan() monitor.Scan {
	return monitor.Scan{Now: t.at, Wall: t.wallTime(), Generation: t.generation, Next: monitor.Never}
}

type dueSource struct {
	id  int64
	due monitor.StoreTime
}

// due merges the partitions by time: a little of each, and more of those that run
// out before there are enough.
func due(t *monitorTxn, partitions []int, limit int) (ids []int64, next monitor.StoreTime, err error) {
	next = monitor.Never
	var found []dueSource
	read := func(partition, most int) (last dueSource, full bool, err error) {
		n := 0
		err = t.each(partitionDue, []any{partition, most}, func(scan scanner) error {
			var d dueSource
			if err := scan(&d.id, &d.due); err != nil {
				return err
			}
			if d.due > t.at {
				next = min(next, d.due)
				return errEnough
			}
			n++
			last = d
			found = append(found, d)
			return nil
		})
		if errors.Is(err, errEnough) {
			return last, false, nil
		}
		return last, n == most, err
	}
	most := min(limit, 2*limit/max(1, len(partitions))+15) + 1
	todo := slices.Clone(partitions)
	var rest []monitor.StoreTime // how far the partitions were read that have more
	for len(todo) > 0 {
		var again []int
		rest = rest[:0]
		for _, p := range todo {
			last, full, err := read(p, most)
			if err != nil {
				return nil, 0, err
			}
			if full {
				again = append(again, p)
				rest = append(rest, last.due)
			}
		}
		slices.SortFunc(found, func(a, b dueSource) int { return cmp.Or(cmp.Compare(a.due, b.due), cmp.Compare(a.id, b.id)) })
		if len(again) == 0 || most > limit {
			break
		}
		// Enough if as many are due before the first of those that were not read.
		first := slices.Min(rest)
		enough, _ := slices.BinarySearchFunc(found, first, func(d dueSource, m monitor.StoreTime) int { return cmp.Compare(d.due, m) })
		if enough >= limit {
			break
		}
		most = min(2*most, limit+1)
		found = slices.DeleteFunc(found, func(d dueSource) bool { return slices.Contains(again, int(d.id%monitor.Partitions)) })
		todo = again
	}
	if len(found) > limit {
		next = min(next, found[limit].due)
		found = found[:limit]
	}
	for _, d := range found {
		ids = append(ids, d.id)
	}
	return ids, next, nil
}

// factRow is what the rule needs of a source.
type factRow struct {
	monitor.Candidate
	path          int64
	flaps, window int64
	labels        string
}

func (f *factRow) scan(scan scanner, more ...any) (err error) {
	var blind, started int64
	dest := []any{&f.ID, &f.CheckID, &f.Source, &f.labels, &f.Rev, &f.State, &f.Alarm, &f.Reason, &f.OnsetAt, &f.WellSince, &f.ExpectedFrom, &f.PausedUntil, &f.RetiredAt, &f.RetireRequested,
		&f.BeatRev, &f.LastBeat, &blind, &f.path, &f.Failing, &f.RunStarted, &f.CheckRev, &f.CheckChanged, &f.Removed, &f.flaps, &f.window,
		&f.AlarmHeld, &f.Group, &started, &f.BeatSinceOnset}
	if err := scan(append(dest, more...)...); err != nil {
		return err
	}
	f.BlindAtBeat, f.Started = micros(blind), timeOf(started)
	f.Labels, err = labelsOf(f.labels)
	return err
}

// complete adds the time, the path, and how often the source was down.
func (f *factRow) complete(t *monitorTxn, known map[int64]*pathRow, last *pathRow) error {
	f.Now, f.Wall = t.at, t.wallTime()
	switch p := known[f.path]; {
	case p != nil:
		f.Path = p.PathStatus
	case last != nil:
		f.Path, f.BlindAtBeat = last.PathStatus, last.BlindTotal
	}
	if f.Alarm == "" || f.flaps == 0 {
		return nil
	}
	return t.one(onsetsSince, []any{f.Source, f.CheckID, f.flaps + 100, int64(f.Now) - f.window}, &f.RecentOnsets)
}

// candidates reads sources with all that the rule needs, in the order of ids.
func candidates(t *monitorTxn, ids []int64) ([]monitor.Candidate, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	text := make([]byte, 0, 12*len(ids))
	place := make(map[int64]int, len(ids))
	for i, id := range ids {
		place[id] = i
		text = strconv.AppendInt(append(text, ','), id, 10)
	}
	text[0] = '['
	found := make([]*factRow, len(ids))
	err := t.each(factsOf, []any{string(append(text, ']'))}, func(scan scanner) error {
		f := &factRow{}
		if err := f.scan(scan); err != nil {
			return err
		}
		found[place[f.ID]] = f
		return nil
	})
	if err != nil {
		return nil, err
	}
	known, err := paths(t)
	if err != nil {
		return nil, err
	}
	last := lastSeenPath(known)
	out := make([]monitor.Candidate, 0, len(ids))
	for _, f := range found {
		if f == nil {
			continue
		}
		if err := f.complete(t, known, last); err != nil {
			return nil, err
		}
		out = append(out, f.Candidate)
	}
	return out, nil
}

const readParent = `
SELECT s.state, s.alarm <> '', b.at_us, s.base_us, s.labels FROM understudy_monitor_event e
JOIN understudy_monitor_source s ON s.event = e.id JOIN understudy_monitor_beat b ON b.id = s.id
WHERE e.name = ?1 AND s.name = ?2 AND e.removed = 0`

// Parents implements [monitor.Detection].
func (m monitors) Parents(ctx context.Context, of []monitor.SourceRef) ([]monitor.Parent, error) {
	out := make([]monitor.Parent, len(of))
	err := m.read(ctx, "reading what sources depend on", func(t *monitorTxn) error {
		for i, ref := range of {
			p, labels := &out[i], ""
			if err := notThere(t.one(readParent, []any{ref.Check, ref.Source}, &p.State, &p.Alarm, &p.LastBeat, &p.ExpectedFrom, &labels)); err != nil {
				return err
			}
			var err error
			if p.Labels, err = labelsOf(labels); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}
