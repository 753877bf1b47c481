package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/understudy-ha/understudy/monitor"
)

// alarmColumns are those of an alarm a; whatever it is joined with, they may be null.
const alarmColumns = `a.id, a.event, a.source, a.grp, a.members, a.labels::text, a.reason, a.started, a.raised, a.ended, a.finish, a.acknowledged, a.reminders`

// scanAlarm reads them, after other columns; "" is the id of none.
func scanAlarm(r pgx.Row, before ...any) (a monitor.Alarm, err error) {
	var id, event, source, group, labels, reason, finish, acknowledged *string
	var members, reminders *int
	var started, raised, ended *time.Time
	err = r.Scan(append(before, &id, &event, &source, &group, &members, &labels, &reason, &started, &raised, &ended, &finish, &acknowledged, &reminders)...)
	if err != nil || id == nil {
		return a, err
	}
	a = monitor.Alarm{
		ID: *id, Check: *event, Source: *source, Group: *group, Members: *members, Reason: monitor.Reason(*reason),
		Started: utc(started), Raised: utc(raised), Ended: utc(ended), End: monitor.Transition(*finish), Acknowledged: *acknowledged, Reminders: *reminders,
	}
	a.Labels, err = decodeLabels(*labels)
	return a, err
}

// decodeLabels reads labels; nil for none.
func decodeLabels(text string) (labels map[string]string, err error) {
	if text != "{}" {
		err = json.Unmarshal([]byte(text), &labels)
	}
	return labels, err
}

// HeldGroups implements [monitor.Detection].
func (m *monitors) HeldGroups(ctx context.Context) (out []monitor.AlarmGroup, err error) {
	sql := m.db.sql(`SELECT h.grp, h.event, h.alarm, h.since, h.standing, h.n, coalesce(h.age, 0), ` + alarmColumns + `
		FROM {{rules}}.monitor_held_groups($1, $2, $3) WITH ORDINALITY h (grp, event, alarm, since, standing, n, age, member, i), LATERAL (SELECT (h.member).*) a ORDER BY h.i`)
	err = m.db.atReadCommitted(ctx, func(ctx context.Context, r runner) error {
		out = nil
		found, err := r.Query(ctx, sql, withLockTimeout(ctx, []any{m.latest.Load(), int64(monitor.MaxSources), lockTimeout{}})...)
		if err != nil {
			return err
		}
		defer found.Close()
		for found.Next() {
			var g monitor.AlarmGroup
			var since *time.Time
			var age int64
			member, err := scanAlarm(found, &g.Group, &g.Check, &g.Alarm, &since, &g.Standing, &g.Count, &age)
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
	return out, during(err, "listing alarms that are held")
}

// ReportGroup implements [monitor.Detection].
func (m *monitors) ReportGroup(ctx context.Context, r monitor.GroupReport) (made bool, err error) {
	members := append([]string{}, r.Members...)
	args := append([]any{m.latest.Load(), r.Group, r.Alarm, members, string(r.End), micros(r.At)}, notificationArgs(r.Notifications)...)
	err = m.db.rowReadCommitted(ctx, "SELECT {{rules}}.monitor_report_group($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)",
		func(row pgx.Row) error { return row.Scan(&made) }, append(args, lockTimeout{})...)
	if err != nil {
		return false, fmt.Errorf("reporting the alarms of %s: %w", r.Group, err)
	}
	return made, nil
}

// Remind implements [monitor.Detection].
func (m *monitors) Remind(ctx context.Context, r monitor.Reminder) (made bool, err error) {
	args := append([]any{clean(r.Alarm), int32(r.Number)}, notificationArgs(r.Notifications)...)
	err = m.db.rowReadCommitted(ctx, "SELECT {{rules}}.monitor_remind($1, $2, $3, $4, $5, $6, $7)",
		func(row pgx.Row) error { return row.Scan(&made) }, append(args, lockTimeout{})...)
	if err != nil {
		return false, fmt.Errorf("reminding of alarm %s: %w", r.Alarm, err)
	}
	return made, nil
}
