package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/understudy-ha/understudy/history"
	"github.com/understudy-ha/understudy/monitor"
)

const (
	// Groups with members held, and those that stand with none left standing.
	listGroups = `
SELECT h.team, h.event, coalesce(l.id, ''), coalesce(l.started_us, 0), coalesce(l.standing, 0), h.oldest, h.n
FROM (
  SELECT team, event, min(onset_us) AS oldest, count(*) AS n
  FROM understudy_monitor_alarm INDEXED BY understudy_monitor_alarm_held WHERE held = 1 GROUP BY team) h
LEFT JOIN understudy_monitor_alarm l ON l.team = h.team AND l.source = '' AND l.ended_us IS NULL
UNION ALL
SELECT l.team, l.event, l.id, l.started_us, l.standing, NULL, 0
FROM understudy_monitor_alarm l INDEXED BY understudy_monitor_alarm_lead
WHERE l.source = '' AND l.ended_us IS NULL AND l.standing = 0
  AND NOT EXISTS (SELECT 1 FROM understudy_monitor_alarm h WHERE h.team = l.team AND h.held = 1)
ORDER BY 1`

	heldMembers = alarmColumns + ` FROM understudy_monitor_alarm a INDEXED BY understudy_monitor_alarm_held
WHERE a.held = 1 AND a.team = ?1 ORDER BY a.onset_us, a.n LIMIT ?2`

	readHeld = "SELECT event, reason FROM understudy_monitor_alarm WHERE id = ?1 AND team = ?2 AND held = 1"

	standingLead = "SELECT id, started_us, standing FROM understudy_monitor_alarm WHERE team = ?1 AND source = '' AND ended_us IS NULL"

	beginLead = `
INSERT INTO understudy_monitor_alarm (id, event, source, reason, onset_us, started_us, raised_us, team, members, standing)
VALUES (?1, ?2, '', ?3, ?4, ?5, ?6, ?7, ?8, ?8)`

	joinLead = "UPDATE understudy_monitor_alarm SET members = members + ?2, standing = standing + ?2 WHERE id = ?1"

	// Reported by itself, an alarm is of no group.
	reportHeld = "UPDATE understudy_monitor_alarm SET held = 0, lead = ?2, team = iif(?2 = '', '', team) WHERE id = ?1"
)

// HeldGroups implements [monitor.Detection].
func (m monitors) HeldGroups(ctx context.Context) ([]monitor.AlarmGroup, error) {
	var out []monitor.AlarmGroup
	err := m.read(ctx, "reading held alarms", func(t *monitorTxn) error {
		var err error
		out, err = list(t.call, listGroups, nil, func(scan scanner) (g monitor.AlarmGroup, err error) {
			var started int64
			var oldest *int64
			err = scan(&g.Group, &g.Check, &g.Alarm, &started, &g.Standing, &oldest, &g.Count)
			g.Started = timeOf(started)
			if oldest != nil {
				g.Oldest = max(0, t.at.Sub(monitor.StoreTime(*oldest)))
			}
			return g, err
		})
		for i := range out {
			if err == nil {
				out[i].Members, err = list(t.call, heldMembers, []any{out[i].Group, monitor.MaxSources}, scanAlarm)
			}
		}
		return err
	})
	return out, err
}

// ReportGroup implements [monitor.Detection].
func (m monitors) ReportGroup(ctx context.Context, r monitor.GroupReport) (bool, error) {
	made := false
	err := m.write(ctx, "reporting held alarms", func(t *monitorTxn) error {
		made = false
		n, err := t.notifier()
		if err != nil {
			return err
		}
		ok, err := n.report(&r)
		if err != nil || !ok {
			return err
		}
		made = true
		return n.enqueue(r.Notifications)
	})
	return made && err == nil, err
}

// report changes nothing unless all of it can be done.
func (n *notifier) report(r *monitor.GroupReport) (ok bool, err error) {
	first, held, err := n.held(r)
	if err != nil || !held {
		return false, err
	}
	var lead string
	var started int64
	standing := 0
	if err := notThere(n.one(standingLead, []any{r.Group}, &lead, &started, &standing)); err != nil {
		return false, err
	}
	switch {
	case r.End != "":
		if lead != r.Alarm || standing > 0 {
			return false, nil
		}
		return true, n.endLead(r, started)
	case r.Alarm == "":
	case lead == r.Alarm:
		if _, err := n.exec(joinLead, lead, len(r.Members)); err != nil {
			return false, err
		}
	case lead != "":
		return false, nil
	default:
		if ok, err := n.beginLead(r, first); err != nil || !ok {
			return false, err
		}
	}
	for _, id := range r.Members {
		if _, err := n.exec(reportHeld, id, r.Alarm); err != nil {
			return false, err
		}
	}
	return true, nil
}

// held reports whether all members are, and returns the first.
func (n *notifier) held(r *monitor.GroupReport) (first monitor.Alarm, held bool, err error) {
	for i, id := range r.Members {
		var a monitor.Alarm
		err := n.one(readHeld, []any{id, r.Group}, &a.Check, &a.Reason)
		if errors.Is(err, sql.ErrNoRows) {
			return first, false, nil
		}
		if err != nil {
			return first, false, err
		}
		if i == 0 {
			first = a
		}
	}
	return first, true, nil
}

const hasAlarm = "SELECT count(*) FROM understudy_monitor_alarm WHERE id = ?1"

// beginLead starts the alarm of a group; false if there was one of that id.
func (n *notifier) beginLead(r *monitor.GroupReport, first monitor.Alarm) (bool, error) {
	var there int
	if err := n.one(hasAlarm, []any{r.Alarm}, &there); err != nil || there > 0 {
		return false, err
	}
	_, err := n.exec(beginLead, r.Alarm, first.Check, first.Reason, n.at, unixMicro(r.At), n.wall, r.Group, len(r.Members))
	if err != nil {
		return false, err
	}
	return true, n.record(history.Event{
		Part: historyPart, Subject: r.Group, Reason: string(first.Reason), Duration: n.wallTime().Sub(r.At),
	}, changeTaken, "")
}

func (n *notifier) endLead(r *monitor.GroupReport, started int64) error {
	_, err := n.exec(endAlarm, r.Alarm, unixMicro(r.At), r.End)
	if err != nil {
		return err
	}
	return n.record(history.Event{
		Part: historyPart, Subject: r.Group, Reason: string(r.End), Duration: r.At.Sub(time.UnixMicro(started)),
	}, changeTaken, "")
}

const recordReminder = `
UPDATE understudy_monitor_alarm SET reminders = ?2, reminded_us = ?3
WHERE id = ?1 AND reminders = ?2 - 1 AND ended_us IS NULL AND acknowledged = ''`

// Remind implements [monitor.Detection].
func (m monitors) Remind(ctx context.Context, r monitor.Reminder) (made bool, err error) {
	err = m.write(ctx, "reminding of an alarm", func(t *monitorTxn) error {
		n, err := t.notifier()
		if err != nil {
			return err
		}
		changed, err := n.exec(recordReminder, r.Alarm, r.Number, n.wall)
		if made = changed > 0; err != nil || !made {
			return err
		}
		return n.enqueue(r.Notifications)
	})
	return made && err == nil, err
}
