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
	// A mere move of the due time changes no version.
	moveDue = `
UPDATE understudy_monitor_source AS s SET due_us = ?5, well_us = ?6
WHERE s.id = ?1 AND s.rev = ?2
  AND (SELECT b.beats + b.starts FROM understudy_monitor_beat b WHERE b.id = ?1) = ?3
  AND (SELECT e.rev FROM understudy_monitor_event e WHERE e.id = s.event) = ?4`

	readChanged = `
SELECT s.name, s.labels, s.rev, s.state, s.alarm, b.beats + b.starts, e.name, e.rev
FROM understudy_monitor_source s JOIN understudy_monitor_beat b ON b.id = s.id JOIN understudy_monitor_event e ON e.id = s.event
WHERE s.id = ?1`

	setDown = `
UPDATE understudy_monitor_source SET rev = rev + 1, state = 'down', alarm = ?2, reason = ?3, onset_us = ?4, well_us = 0, due_us = ?5 WHERE id = ?1`

	setWell = `
UPDATE understudy_monitor_source
SET rev = rev + 1, state = iif(state = 'paused', state, 'up'), alarm = '', reason = '', onset_us = 0, well_us = 0, due_us = ?2
WHERE id = ?1`

	setExpected = `
UPDATE understudy_monitor_source
SET rev = rev + 1, state = iif(alarm <> '', 'down', 'up'), well_us = 0, base_us = ?2, until_us = 0, ended_us = 0, asked = 0, note = '', due_us = ?3
WHERE id = ?1`

	setRetired = `
UPDATE understudy_monitor_source
SET rev = rev + 1, state = 'retired', alarm = '', reason = '', onset_us = 0, well_us = 0, until_us = 0, asked = 0, ended_us = ?2, due_us = ?3
WHERE id = ?1`

	forgetSource = "DELETE FROM understudy_monitor_source WHERE id = ?1"

	watchSource = "UPDATE understudy_monitor_beat SET watched = ?2 WHERE id = ?1"

	beginAlarm = `
INSERT INTO understudy_monitor_alarm (id, event, source, labels, reason, onset_us, started_us, raised_us, team, held, beats)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?9 <> '', (SELECT beats FROM understudy_monitor_beat WHERE id = ?10))`

	endAlarm = `
UPDATE understudy_monitor_alarm SET ended_us = ?2, ended_by = ?3, held = 0 WHERE id = ?1 AND ended_us IS NULL
RETURNING lead, started_us`

	leaveLead = "UPDATE understudy_monitor_alarm SET standing = standing - 1 WHERE id = ?1"
)

// ApplyChanges implements [monitor.Detection].
func (m monitors) ApplyChanges(ctx context.Context, changes []monitor.SourceChange) ([]bool, error) {
	made := make([]bool, len(changes))
	err := m.write(ctx, "applying changes of sources", func(t *monitorTxn) error {
		n, err := t.notifier()
		if err != nil {
			return err
		}
		for i := range changes {
			if made[i], err = n.apply(&changes[i]); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return made, nil
}

// notifier is a ledger that knows the registered sinks.
type notifier struct {
	*monitorTxn
	sinks []string
}

func (t *monitorTxn) notifier() (*notifier, error) {
	names, err := sinks(t)
	return &notifier{monitorTxn: t, sinks: names}, err
}

// enqueue stores notifications, except those for sinks that are not registered.
func (n *notifier) enqueue(notifications []monitor.Notification) error {
	for _, one := range notifications {
		for _, sink := range n.sinks {
			if one.Sink != "" && one.Sink != sink {
				continue
			}
			b := one.Message(sink)
			if _, err := n.exec(enqueueOne, b.Queue, b.Key, b.ID, append([]byte{}, b.Payload...), b.ContentType, n.wall, "", nil); err != nil {
				return err
			}
		}
	}
	return nil
}

// changedSource is a source as a change finds it.
type changedSource struct {
	name, labels, event string
	rev, stamp          int64
	eventRev            int64
	state               monitor.State
	alarm               string
}

func (n *notifier) apply(c *monitor.SourceChange) (made bool, err error) {
	if c.Transition == monitor.NoTransition {
		moved, err := n.exec(moveDue, c.ID, c.Rev, c.BeatRev, c.CheckRev, dueIn(c.Due), int64(c.WellSince))
		return moved > 0, err
	}
	var s changedSource
	err = n.one(readChanged, []any{c.ID}, &s.name, &s.labels, &s.rev, &s.state, &s.alarm, &s.stamp, &s.event, &s.eventRev)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return false, nil
	case err != nil:
		return false, err
	case s.rev != c.Rev || s.stamp != c.BeatRev || s.eventRev != c.CheckRev:
		return false, nil
	case c.Transition == monitor.Onset && s.alarm != "", c.Transition == monitor.Abated && s.alarm == "":
		return false, nil
	}
	if err := n.transition(c, &s); err != nil {
		return false, err
	}
	return true, n.enqueue(c.Notifications)
}

func (n *notifier) transition(c *monitor.SourceChange, s *changedSource) (err error) {
	watched := false
	switch c.Transition {
	case monitor.Onset:
		watched = true
		if _, err = n.exec(setDown, c.ID, c.Alarm, c.Reason, n.at, dueIn(c.Due)); err == nil {
			err = n.begin(c, s)
		}
	case monitor.Abated:
		if _, err = n.exec(setWell, c.ID, dueIn(c.Due)); err == nil {
			err = n.end(c, s)
		}
	case monitor.Resume, monitor.Return:
		watched = s.alarm != ""
		_, err = n.exec(setExpected, c.ID, int64(c.ExpectedFrom), dueIn(c.Due))
	case monitor.Retire:
		watched = true
		if _, err = n.exec(setRetired, c.ID, n.at, dueIn(c.Due)); err == nil {
			err = n.end(c, s)
		}
	case monitor.Forget:
		if _, err = n.exec(forgetSource, c.ID); err == nil {
			err = n.end(c, s)
		}
		return err
	}
	if err == nil {
		_, err = n.exec(watchSource, c.ID, watched)
	}
	return err
}

func (n *notifier) begin(c *monitor.SourceChange, s *changedSource) error {
	_, err := n.exec(beginAlarm, c.Alarm, s.event, s.name, s.labels, c.Reason, n.at, unixMicro(c.At), n.wall, c.Group, c.ID)
	if err != nil {
		return err
	}
	return n.record(history.Event{
		Part: historyPart, Subject: s.event + "/" + s.name, Reason: string(c.Reason), Duration: n.wallTime().Sub(c.At),
	}, changeTaken, "")
}

// historyPart is the part of the monitor's events.
const historyPart = "monitor"

// end ends the alarm of a source, if one stands.
func (n *notifier) end(c *monitor.SourceChange, s *changedSource) error {
	if s.alarm == "" {
		return nil
	}
	var lead string
	var started int64
	err := n.one(endAlarm, []any{s.alarm, unixMicro(c.At), c.Transition}, &lead, &started)
	if errors.Is(err, sql.ErrNoRows) {
		return nil // someone deleted it
	}
	if err == nil && lead != "" {
		_, err = n.exec(leaveLead, lead)
	}
	if err != nil {
		return err
	}
	return n.record(history.Event{
		Part: historyPart, Subject: s.event + "/" + s.name, Reason: string(c.Transition), Duration: c.At.Sub(time.UnixMicro(started)),
	}, changeTaken, "")
}
