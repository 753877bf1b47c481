package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/monitor"
)

// Settings implements [monitor.Detection].
func (m *monitors) Settings(ctx context.Context) (out monitor.Settings, err error) {
	var events []string
	err = m.db.one(ctx, `SELECT s.generation, (SELECT coalesce(array_agg(k.name ORDER BY k.name), '{}') FROM {{schema}}.monitor_sink k),
			(SELECT coalesce(array_agg({{schema}}.monitor_expected(e) ORDER BY e.name), '{}') FROM {{schema}}.monitor_event e)
		FROM {{schema}}.monitor_setting s`, func(r pgx.Row) error { return r.Scan(&out.Generation, &out.Sinks, &events) })
	if err == nil {
		out.Events = make([]monitor.Expected, len(events))
		for i := range events {
			if err == nil {
				err = json.Unmarshal([]byte(events[i]), &out.Events[i])
			}
		}
	}
	if err != nil {
		return monitor.Settings{}, fmt.Errorf("reading the settings of the monitor: %w", err)
	}
	return out, nil
}

// Due implements [monitor.Detection].
func (m *monitors) Due(ctx context.Context, partitions []int, limit int) (monitor.Look, error) {
	for _, p := range partitions {
		if p < 0 || p >= monitor.Partitions {
			return monitor.Look{}, fmt.Errorf("%w: partition %d", lease.ErrInvalid, p)
		}
	}
	limit = min(limit, monitor.MaxSources)
	look, err := m.look(ctx, `{{schema}}.monitor_look($1, $2, $3, $4)`, m.floor.Load(), partitions, max(0, limit), patient{})
	if err != nil {
		return monitor.Look{}, fmt.Errorf("looking for sources that are due: %w", err)
	}
	return look, nil
}

// Sweep implements [monitor.Detection].
func (m *monitors) Sweep(ctx context.Context, keep time.Duration, limit int) (monitor.Look, error) {
	limit = min(limit, monitor.MaxSources)
	look, err := m.look(ctx, `{{schema}}.monitor_sweep($1, $2, $3, $4)`, m.floor.Load(), keep.Microseconds(), max(0, limit), patient{})
	if err != nil {
		return monitor.Look{}, fmt.Errorf("sweeping: %w", err)
	}
	return look, nil
}

// candidateColumns are those of a candidate c, which may be null.
const candidateColumns = `coalesce(c.id, 0), coalesce(c.event, 0), c.source, c.labels,
	coalesce(c.rev, 0), coalesce(c.stamp, 0), coalesce(c.event_rev, 0), c.state, c.alarm, c.reason, coalesce(c.onset, 0), coalesce(c.onsets, 0),
	coalesce(c.well, 0), coalesce(c.base, 0), coalesce(c.until, 0), coalesce(c.ended, 0), coalesce(c.asked, false),
	coalesce(c.beat, 0), coalesce(c.blind_then, 0), coalesce(c.failing, false), coalesce(c.run, 0), coalesce(c.event_base, 0), coalesce(c.removed, false),
	c.path, coalesce(c.proof, 0), coalesce(c.trust, 0), coalesce(c.gap, 0), coalesce(c.blind, 0), coalesce(c.resumed, 0),
	coalesce(c.held, false), c.group_alarm, c.started`

// candidates are those of the ids in a row l, whose place there is i: the function returns them in
// whatever order its plan finds them.
const candidates = `(SELECT c.*, x.i FROM unnest(l.ids) WITH ORDINALITY x (id, i) JOIN {{schema}}.monitor_candidates(l.ids, l.wall) c ON c.id = x.id) c`

// look reads what a function found: the clock, and candidates. A row without an id
// has no more than the clock.
func (m *monitors) look(ctx context.Context, source string, args ...any) (look monitor.Look, err error) {
	sql := m.db.sql(`SELECT l.moment, l.wall, l.generation, l.next, ` + candidateColumns + ` FROM ` + source + ` l LEFT JOIN LATERAL ` + candidates + ` ON true ORDER BY c.i`)
	err = m.db.exactly(ctx, func(ctx context.Context, r runner) error {
		look = monitor.Look{}
		found, err := r.Query(ctx, sql, withPatience(ctx, args)...)
		if err != nil {
			return err
		}
		defer found.Close()
		for found.Next() {
			c, err := scanCandidate(found, []any{&look.Now, &look.Wall, &look.Generation, &look.Next})
			if err != nil {
				return err
			}
			if c.ID != 0 {
				c.Now, c.Wall = look.Now, look.Wall.UTC()
				look.Candidates = append(look.Candidates, c)
			}
		}
		return found.Err()
	})
	look.Wall = look.Wall.UTC()
	m.saw(look.Now)
	return look, err
}

// scanCandidate reads candidateColumns between other columns. Its clock is the caller's to give.
func scanCandidate(r pgx.Row, before []any, after ...any) (c monitor.Candidate, err error) {
	var source, labels, state, alarm, reason, path, group *string
	var blindThen, trust, gap, blind int64
	var started *time.Time
	err = r.Scan(append(append(before, &c.ID, &c.Event, &source, &labels,
		&c.Rev, &c.Stamp, &c.EventRev, &state, &alarm, &reason, &c.Onset, &c.Onsets, &c.Well, &c.Base, &c.Until, &c.Ended, &c.Asked,
		&c.Beat, &blindThen, &c.Failing, &c.Run, &c.EventBase, &c.Removed,
		&path, &c.Path.Proof, &trust, &gap, &blind, &c.Path.Resumed, &c.Held, &group, &started), after...)...)
	if err != nil || c.ID == 0 {
		return c, err
	}
	c.Source, c.State, c.Alarm, c.Reason = *source, monitor.State(*state), *alarm, monitor.Reason(*reason)
	c.BlindThen, c.Path.Name, c.Path.Trust, c.Path.Gap, c.Path.Blind = micro(blindThen), *path, micro(trust), micro(gap), micro(blind)
	c.Group, c.Started = *group, utc(started)
	c.Labels, err = labelled(*labels)
	return c, err
}
