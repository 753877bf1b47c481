package sqlite

import (
	"context"

	"github.com/understudy-ha/understudy/monitor"
)

const alarmColumns = `
SELECT a.id, a.event, a.source, a.labels, a.reason, a.started_us, a.raised_us, a.ended_us, a.ended_by, a.acknowledged, a.team, a.members, a.reminders`

// scanAlarm reads alarmColumns.
func scanAlarm(scan scanner) (a monitor.Alarm, err error) {
	var labels string
	var started, raised int64
	var ended *int64
	err = scan(&a.ID, &a.Check, &a.Source, &labels, &a.Reason, &started, &raised, &ended, &a.End, &a.Acknowledged, &a.Group, &a.Members, &a.Reminders)
	if err != nil {
		return a, err
	}
	a.Started, a.Raised = timeOf(started), timeOf(raised)
	if ended != nil {
		a.Ended = timeOf(*ended)
	}
	a.Labels, err = labelsOf(labels)
	return a, err
}

// Alarms implements [monitor.Admin].
func (m monitors) Alarms(ctx context.Context, q monitor.AlarmQuery) ([]monitor.Alarm, error) {
	text, args := selectAlarms(q)
	return readAll(ctx, m.Store, "listing alarms", text, args, scanAlarm)
}

// selectAlarms names only the conditions that are asked for, and the index that
// fits: those of one source are few, those that stand fewer than all. There are few
// such texts.
func selectAlarms(q monitor.AlarmQuery) (text string, args []any) {
	index := "raised"
	switch {
	case q.ID != "":
		index = ""
	case q.Source != "":
		index = "source"
	case q.Standing:
		index = "standing"
	case q.Check != "":
		index = "event"
	}
	text = alarmColumns + " FROM understudy_monitor_alarm a"
	if index != "" {
		text += " INDEXED BY understudy_monitor_alarm_" + index
	}
	text += " WHERE 1"
	and := func(condition string, more ...any) {
		text, args = text+" AND "+condition, append(args, more...)
	}
	if q.ID != "" {
		and("a.id = ?", q.ID)
	}
	if q.Source != "" {
		and("a.source = ?", q.Source)
	}
	if q.Check != "" {
		and("a.event = ?", q.Check)
	}
	if q.Standing {
		and("a.ended_us IS NULL")
	}
	if !q.NotifiedBefore.IsZero() {
		and("a.ended_us IS NULL AND a.acknowledged = '' AND a.held = 0 AND a.lead = '' AND max(a.reminded_us, a.raised_us) < ?", q.NotifiedBefore.UnixMicro())
	}
	if !q.Before.IsZero() && q.BeforeID != "" {
		and("(a.raised_us, a.id) < (?, ?)", q.Before.UnixMicro(), q.BeforeID)
	} else if !q.Before.IsZero() {
		and("a.raised_us < ?", q.Before.UnixMicro())
	}
	return text + " ORDER BY a.raised_us DESC, a.id DESC LIMIT ?", append(args, monitor.PageSize(q.Limit))
}
