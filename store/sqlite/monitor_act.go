package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/understudy-ha/understudy/history"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/monitor"
)

const (
	// What is to be retired stays due, or nobody would.
	pauseSource = `
UPDATE understudy_monitor_source SET rev = rev + 1, state = 'paused', until_us = ?2, note = ?3, due_us = iif(asked, due_us, nullif(?2, 0))
WHERE id = ?1 AND state <> 'retired'`

	unpauseSource = `
UPDATE understudy_monitor_source
SET rev = rev + 1, state = iif(alarm <> '', 'down', 'up'), base_us = ?2, until_us = 0, note = '', due_us = ?2
WHERE id = ?1 AND state = 'paused'`

	askAway = "UPDATE understudy_monitor_source SET rev = rev + 1, asked = 1, note = ?3, due_us = ?2 WHERE id = ?1 AND state <> 'retired'"

	pauseEvent = `
UPDATE understudy_monitor_event SET paused = ?2, rev = rev + 1, base_us = iif(?2, base_us, ?3), spread = '' WHERE id = ?1 AND paused <> ?2`

	alarmOpen   = "SELECT alarm <> '' FROM understudy_monitor_source WHERE id = ?1"
	acknowledge = "UPDATE understudy_monitor_alarm SET acknowledged = ?2 WHERE id = ?1"
	dropSink    = "DELETE FROM understudy_monitor_sink WHERE name = ?1"
	dropPath    = "DELETE FROM understudy_monitor_path WHERE name = ?1"
)

// ApplyAction implements [monitor.Admin].
func (m monitors) ApplyAction(ctx context.Context, a monitor.Action) error {
	return m.write(ctx, string(a.Type), func(t *monitorTxn) error {
		subject, err := t.act(&a)
		if err != nil {
			return err
		}
		return t.record(history.Event{Part: historyPart, Subject: subject, Reason: lease.TruncateReason(a.HistoryReason())}, changeTaken, "")
	})
}

// act does it, and says what it was done to.
func (t *monitorTxn) act(a *monitor.Action) (subject string, err error) {
	switch a.Type {
	case monitor.ActionAcknowledge:
		return a.Alarm, t.must(acknowledge, fmt.Errorf("%q: %w", a.Alarm, monitor.ErrNoAlarm), a.Alarm, a.Actor())
	case monitor.ActionRemoveSink:
		if err := t.must(dropSink, invalid("no sink %q", a.Source), a.Source); err != nil {
			return "", err
		}
		return a.Source, t.changed()
	case monitor.ActionRemovePath:
		return a.Source, t.must(dropPath, invalid("no path %q", a.Source), a.Source)
	}
	e, err := checksOf(t).named(a.Check)
	switch {
	case err != nil:
		return "", err
	case e == nil:
		return "", fmt.Errorf("%q: %w", a.Check, monitor.ErrNoCheck)
	case a.Source == "" && a.Type == monitor.ActionRemove:
		if _, err := t.exec(removeCheck, e.ID); err != nil {
			return "", err
		}
		return a.Check, t.changed()
	case a.Source == "":
		return a.Check, t.pause(e, a.Type == monitor.ActionPause)
	}
	var id int64
	err = t.one(findSource, []any{e.ID, a.Source}, &id)
	if errors.Is(err, sql.ErrNoRows) {
		err = fmt.Errorf("%q of check %q: %w", a.Source, a.Check, monitor.ErrNoSource)
	}
	if err != nil {
		return "", err
	}
	return a.Check + "/" + a.Source, t.actOn(id, a)
}

// must runs a statement that has to change a row.
func (t *monitorTxn) must(text string, otherwise error, args ...any) error {
	n, err := t.exec(text, args...)
	if err == nil && n == 0 {
		return otherwise
	}
	return err
}

func (t *monitorTxn) pause(e *checkRow, on bool) error {
	n, err := t.exec(pauseEvent, e.ID, on, t.at)
	if err == nil && n > 0 {
		err = t.changed()
	}
	return err
}

func (t *monitorTxn) actOn(id int64, a *monitor.Action) (err error) {
	switch a.Type {
	case monitor.ActionPause:
		until := monitor.StoreTime(0)
		if a.For > 0 {
			until = t.at.Add(a.For)
		}
		_, err = t.exec(pauseSource, id, until, a.Note)
	case monitor.ActionResume:
		_, err = t.exec(unpauseSource, id, t.at)
	case monitor.ActionRemove:
		open := false
		if err = t.one(alarmOpen, []any{id}, &open); err == nil && open {
			err = monitor.AlarmOpenError(a.Check, a.Source)
		}
		if err == nil {
			_, err = t.exec(forgetSource, id)
		}
	default:
		_, err = t.exec(askAway, id, t.at, a.Note)
	}
	return err
}

const (
	readMember = `
SELECT m.process, m.host, m.service, m.active, m.partitions, m.sinks
FROM understudy_monitor_member m JOIN understudy_session x ON x.id = m.session WHERE m.session = ?2 AND ` + aliveSQL

	putMonitorMember = `
INSERT INTO understudy_monitor_member (session, process, host, service, active, partitions, sinks, seen_us)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
ON CONFLICT (session) DO UPDATE SET process = excluded.process, host = excluded.host, service = excluded.service,
  active = excluded.active, partitions = excluded.partitions, sinks = excluded.sinks, seen_us = excluded.seen_us`

	deactivateOthers = "UPDATE understudy_monitor_member SET active = 0 WHERE session <> ?1 AND active = 1"

	addSink = "INSERT INTO understudy_monitor_sink (name) VALUES (?1) ON CONFLICT DO NOTHING"
)

// RegisterMember implements [monitor.Admin]. When nothing is new it only reads: the session
// tells that the instance lives.
func (m monitors) RegisterMember(ctx context.Context, n monitor.Member) error {
	encoded, err := json.Marshal(n.Sinks)
	if err != nil {
		return err
	}
	known := false
	err = m.read(ctx, "reading a member", func(t *monitorTxn) (err error) {
		known, err = enlisted(t, m.clocks.boot, &n, string(encoded))
		return err
	})
	if err != nil || known {
		return err
	}
	for clean := false; err == nil && !clean; {
		err = m.write(ctx, "registering a member", func(t *monitorTxn) (err error) {
			if _, err = t.living(n.Session); err != nil {
				return err
			}
			if clean, err = t.purgeSinkQueues(n.Sinks); err != nil || !clean {
				return err
			}
			return t.enlist(&n, string(encoded))
		})
	}
	return err
}

func (t *monitorTxn) enlist(n *monitor.Member, encoded string) error {
	_, err := t.exec(putMonitorMember, n.Session, n.Process, n.Host, n.Service, n.Active, n.Partitions, encoded, t.wall)
	if err == nil && n.Active {
		_, err = t.exec(deactivateOthers, n.Session)
	}
	if err != nil {
		return err
	}
	return t.register(n.Sinks)
}

// purgeSinkQueues deletes some of what an interrupted removal left of queues that are about to be made, as CreateQueue does,
// and reports whether nothing is left.
func (t *monitorTxn) purgeSinkQueues(sinks []string) (clean bool, err error) {
	for _, sink := range sinks {
		if clean, err = t.purge(monitor.SinkQueue(sink)); err != nil || !clean {
			return false, err
		}
	}
	return true, nil
}

// enlisted reports whether the member is known as it is, and its sinks are.
func enlisted(t *monitorTxn, boot string, n *monitor.Member, encoded string) (bool, error) {
	was := monitor.Member{}
	var sinksThen string
	err := t.one(readMember, []any{boot, n.Session}, &was.Process, &was.Host, &was.Service, &was.Active, &was.Partitions, &sinksThen)
	if err != nil {
		return false, notThere(err)
	}
	if was.Process != n.Process || was.Host != n.Host || was.Service != n.Service || was.Active != n.Active || was.Partitions != n.Partitions || sinksThen != encoded {
		return false, nil
	}
	names, err := sinks(t)
	missing := slices.ContainsFunc(n.Sinks, func(s string) bool { return !slices.Contains(names, s) })
	return err == nil && !missing, err
}

// register makes sinks known, and their queues.
func (t *monitorTxn) register(names []string) error {
	added := false
	for _, name := range names {
		n, err := t.exec(addSink, name)
		if err == nil {
			_, err = t.exec(makeQueue, monitor.SinkQueue(name), t.wall)
		}
		if err != nil {
			return err
		}
		added = added || n > 0
	}
	if added {
		return t.changed()
	}
	return nil
}
