package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/understudy-ha/understudy/monitor"
)

// Settings implements [monitor.Detection].
func (m *monitors) Settings(ctx context.Context) (out monitor.Settings, err error) {
	var events []string
	err = m.db.rowReadCommitted(ctx, `SELECT s.generation, s.secret, (SELECT coalesce(array_agg(k.name ORDER BY k.name), '{}') FROM {{schema}}.monitor_sink k),
			(SELECT coalesce(array_agg({{rules}}.monitor_check_json(e) ORDER BY e.name), '{}') FROM {{schema}}.monitor_event e)
		FROM {{schema}}.monitor_setting s`, func(r pgx.Row) error { return r.Scan(&out.Generation, &out.Secret, &out.Sinks, &events) })
	if err == nil {
		out.Checks = make([]monitor.StoredCheck, len(events))
		for i := range events {
			if err == nil {
				err = out.Checks[i].UnmarshalStored([]byte(events[i]))
			}
		}
	}
	if err != nil {
		return monitor.Settings{}, fmt.Errorf("reading the settings of the monitor: %w", err)
	}
	return out, nil
}

// DueSources implements [monitor.Detection].
func (m *monitors) DueSources(ctx context.Context, partitions []int, limit int) (monitor.Scan, error) {
	out, err := m.scan(ctx, `{{rules}}.monitor_due_sources($1, $2, $3, $4)`, m.latest.Load(), partitions, limit, lockTimeout{})
	if err != nil {
		return monitor.Scan{}, fmt.Errorf("looking for sources that are due: %w", err)
	}
	return out, nil
}

// candidateColumns are those of a candidate c, which may be null.
const candidateColumns = `coalesce(c.id, 0), coalesce(c.event, 0), c.source, c.labels,
	coalesce(c.rev, 0), coalesce(c.beat_rev, 0), coalesce(c.check_rev, 0), c.state, c.alarm, c.reason, coalesce(c.onset, 0), coalesce(c.onsets, 0),
	coalesce(c.well, 0), coalesce(c.base, 0), coalesce(c.until, 0), coalesce(c.ended, 0), coalesce(c.asked, false),
	coalesce(c.beat, 0), coalesce(c.blind_then, 0), coalesce(c.failing, false), coalesce(c.run, 0), coalesce(c.event_base, 0), coalesce(c.removed, false),
	c.path, coalesce(c.proof, 0), coalesce(c.trust, 0), coalesce(c.gap, 0), coalesce(c.blind, 0), coalesce(c.resumed, 0),
	coalesce(c.held, false), c.group_alarm, c.started, coalesce(c.since, false)`

// candidates are those of the ids in a row l, whose place there is i: the function returns them in
// whatever order its plan finds them.
const candidates = `(SELECT c.*, x.i FROM unnest(l.ids) WITH ORDINALITY x (id, i) JOIN {{rules}}.monitor_candidates(l.ids, l.wall) c ON c.id = x.id) c`

// scan reads what a function found: the clock, and candidates. A row without an id
// has no more than the clock.
func (m *monitors) scan(ctx context.Context, source string, args ...any) (out monitor.Scan, err error) {
	sql := m.db.sql(`SELECT l.moment, l.wall, l.generation, l.next, ` + candidateColumns + ` FROM ` + source + ` l LEFT JOIN LATERAL ` + candidates + ` ON true ORDER BY c.i`)
	err = m.db.atReadCommitted(ctx, func(ctx context.Context, r runner) error {
		out = monitor.Scan{}
		found, err := r.Query(ctx, sql, withLockTimeout(ctx, args)...)
		if err != nil {
			return err
		}
		defer found.Close()
		for found.Next() {
			c, err := scanCandidate(found, []any{&out.Now, &out.Wall, &out.Generation, &out.Next})
			if err != nil {
				return err
			}
			if c.ID != 0 {
				c.Now, c.Wall = out.Now, out.Wall.UTC()
				out.Candidates = append(out.Candidates, c)
			}
		}
		return found.Err()
	})
	out.Wall = out.Wall.UTC()
	m.noteTime(out.Now)
	return out, err
}

// scanCandidate reads candidateColumns between other columns. Its clock is the caller's to give.
func scanCandidate(r pgx.Row, before []any, after ...any) (c monitor.Candidate, err error) {
	var source, labels, state, alarm, reason, path, group *string
	var blindThen, trust, gap, blind int64
	var started *time.Time
	err = r.Scan(append(append(before, &c.ID, &c.CheckID, &source, &labels,
		&c.Rev, &c.BeatRev, &c.CheckRev, &state, &alarm, &reason, &c.OnsetAt, &c.RecentOnsets, &c.WellSince, &c.ExpectedFrom, &c.PausedUntil, &c.RetiredAt, &c.RetireRequested,
		&c.LastBeat, &blindThen, &c.Failing, &c.RunStarted, &c.CheckChanged, &c.Removed,
		&path, &c.Path.LastSeen, &trust, &gap, &blind, &c.Path.BlindUntil, &c.AlarmHeld, &group, &started, &c.BeatSinceOnset), after...)...)
	if err != nil || c.ID == 0 {
		return c, err
	}
	c.Source, c.State, c.Alarm, c.Reason = *source, monitor.State(*state), *alarm, monitor.Reason(*reason)
	c.BlindAtBeat, c.Path.Name, c.Path.TrustFor, c.Path.MaxGap, c.Path.BlindTotal = micro(blindThen), *path, micro(trust), micro(gap), micro(blind)
	c.Group, c.Started = *group, utc(started)
	c.Labels, err = decodeLabels(*labels)
	return c, err
}

// Parents implements [monitor.Detection].
func (m *monitors) Parents(ctx context.Context, of []monitor.SourceRef) ([]monitor.Parent, error) {
	out, checks, names := make([]monitor.Parent, len(of)), make([]string, len(of)), make([]string, len(of))
	for i, ref := range of {
		if isStorable(ref.Check, ref.Source) {
			checks[i], names[i] = ref.Check, ref.Source
		}
	}
	_, err := rowsReadCommitted(ctx, m.db, `SELECT x.i, s.state, s.alarm <> '', b.at, s.base, s.labels::text FROM unnest($1::text[], $2::text[]) WITH ORDINALITY x (event, name, i)
		JOIN {{schema}}.monitor_event e ON e.name = x.event AND NOT e.removed JOIN {{schema}}.monitor_source s ON s.event = e.id AND s.name = x.name
		JOIN {{schema}}.monitor_beat b ON b.id = s.id`,
		func(r pgx.CollectableRow) (p monitor.Parent, err error) {
			var place int
			var state, labels string
			if err = r.Scan(&place, &state, &p.Alarm, &p.LastBeat, &p.ExpectedFrom, &labels); err != nil {
				return p, err
			}
			p.State = monitor.State(state)
			p.Labels, err = decodeLabels(labels)
			out[place-1] = p
			return p, err
		}, checks, names)
	if err != nil {
		return nil, fmt.Errorf("reading what %d sources depend on: %w", len(of), err)
	}
	return out, nil
}
