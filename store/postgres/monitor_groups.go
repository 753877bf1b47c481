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

// alarmColumns are those of an alarm a; whatever it is joined with, they may be null.
const alarmColumns = `a.id, a.event, a.source, a.grp, a.members, a.labels::text, a.reason, a.started, a.raised, a.ended, a.finish, a.acknowledged`

// scanAlarm reads them, after other columns; "" is the id of none.
func scanAlarm(r pgx.Row, before ...any) (a monitor.Alarm, err error) {
	var id, event, source, group, labels, reason, finish, acknowledged *string
	var members *int
	var started, raised, ended *time.Time
	err = r.Scan(append(before, &id, &event, &source, &group, &members, &labels, &reason, &started, &raised, &ended, &finish, &acknowledged)...)
	if err != nil || id == nil {
		return a, err
	}
	a = monitor.Alarm{
		ID: *id, Event: *event, Source: *source, Group: *group, Members: *members, Reason: monitor.Reason(*reason),
		Started: utc(started), Raised: utc(raised), Ended: utc(ended), End: monitor.Turn(*finish), Acknowledged: *acknowledged,
	}
	a.Labels, err = labelled(*labels)
	return a, err
}

// labelled reads labels; nil for none.
func labelled(text string) (labels map[string]string, err error) {
	if text != "{}" {
		err = json.Unmarshal([]byte(text), &labels)
	}
	return labels, err
}

// Held implements [monitor.Detection].
func (m *monitors) Held(ctx context.Context) (out []monitor.HeldGroup, err error) {
	sql := m.db.sql(`SELECT h.grp, h.event, h.alarm, h.since, h.standing, h.n, coalesce(h.age, 0), ` + alarmColumns + `
		FROM {{schema}}.monitor_held($1, $2) WITH ORDINALITY h (grp, event, alarm, since, standing, n, age, member, i), LATERAL (SELECT (h.member).*) a ORDER BY h.i`)
	err = m.db.exactly(ctx, func(ctx context.Context, r runner) error {
		out = nil
		found, err := r.Query(ctx, sql, withPatience(ctx, []any{int64(monitor.MaxSources), patient{}})...)
		if err != nil {
			return err
		}
		defer found.Close()
		for found.Next() {
			var g monitor.HeldGroup
			var since *time.Time
			var age int64
			member, err := scanAlarm(found, &g.Group, &g.Event, &g.Alarm, &since, &g.Standing, &g.Count, &age)
			if err != nil {
				return err
			}
			if n := len(out); n == 0 || out[n-1].Group != g.Group {
				g.Started = utc(since)
				out = append(out, g)
			}
			if member.ID != "" {
				last := &out[len(out)-1]
				last.Oldest = max(last.Oldest, micro(age))
				last.Members = append(last.Members, member)
			}
		}
		return found.Err()
	})
	if err != nil {
		return nil, fmt.Errorf("listing alarms that are held: %w", err)
	}
	return out, nil
}

// Report implements [monitor.Detection].
func (m *monitors) Report(ctx context.Context, r monitor.Report) (made bool, err error) {
	if len(r.Members) > monitor.MaxSources {
		return false, fmt.Errorf("%w: %d members to report at once; at most %d are allowed", lease.ErrInvalid, len(r.Members), monitor.MaxSources)
	}
	members := append([]string{}, r.Members...)
	args := append([]any{m.floor.Load(), r.Group, r.Alarm, members, r.End, micros(r.At)}, noticeArgs(r.Notices)...)
	err = m.db.one(ctx, "SELECT {{schema}}.monitor_report($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)",
		func(row pgx.Row) error { return row.Scan(&made) }, append(args, patient{})...)
	if err != nil {
		return false, fmt.Errorf("reporting the alarms of %s: %w", r.Group, err)
	}
	return made, nil
}
