package sqlite

import (
	"context"
	"time"

	"github.com/understudy-ha/understudy/monitor"
)

const (
	spreading = `
SELECT id, every_us, spread FROM understudy_monitor_event INDEXED BY understudy_monitor_event_spread
WHERE spread IS NOT NULL ORDER BY id LIMIT 1`

	spreadNext = "SELECT id, name FROM understudy_monitor_source WHERE event = ?1 AND name > ?2 ORDER BY name LIMIT ?3"

	// spreadSlot starts the recent intervals again when they are of another length.
	spreadSlot = "UPDATE understudy_monitor_beat SET every_us = ?2, recent = at_us > 0 WHERE id = ?1 AND every_us <> ?2"

	setSpread = "UPDATE understudy_monitor_event SET spread = ?2 WHERE id = ?1"

	endedAlarms = `
SELECT n FROM understudy_monitor_alarm INDEXED BY understudy_monitor_alarm_ended
WHERE ended_us IS NOT NULL AND ended_us < ?1`

	oldestEnded = endedAlarms + " ORDER BY ended_us LIMIT ?2"

	dropAlarm = "DELETE FROM understudy_monitor_alarm WHERE n = ?1"

	removedSources = `
SELECT s.id FROM understudy_monitor_event e INDEXED BY understudy_monitor_event_removed
CROSS JOIN understudy_monitor_source s ON s.event = e.id WHERE e.removed = 1 LIMIT ?1`

	oldSources = `
SELECT s.id FROM understudy_monitor_source s INDEXED BY understudy_monitor_source_old
JOIN understudy_monitor_event e ON e.id = s.event
WHERE s.state = 'retired' AND s.declared = 0 AND s.ended_us < ?1 AND e.removed = 0 ORDER BY s.ended_us LIMIT ?2`

	emptyRemoved = `
FROM understudy_monitor_event WHERE removed = 1
  AND NOT EXISTS (SELECT 1 FROM understudy_monitor_source s WHERE s.event = understudy_monitor_event.id)`

	dropEmpty = "DELETE " + emptyRemoved

	anythingToSweep = "SELECT EXISTS (" + spreading + ") OR EXISTS (" + endedAlarms + ") OR EXISTS (SELECT 1 " + emptyRemoved + ")"

	// sweepAtOnce is what one transaction does, for which everyone's renewals wait.
	sweepAtOnce = 1000
)

// Sweep implements [monitor.Detection]. When there is nothing to do, it only reads.
func (m monitors) Sweep(ctx context.Context, keep time.Duration, limit int) (monitor.Scan, error) {
	limit = min(limit, sweepAtOnce)
	var out monitor.Scan
	var work, more bool
	read := func() error {
		return m.read(ctx, "sweeping", func(t *monitorTxn) (err error) {
			out = t.scan()
			var ids []int64
			if ids, err = list(t.call, removedSources, []any{limit + 1}, list1[int64]); err != nil {
				return err
			}
			old, err := list(t.call, oldSources, []any{int64(out.Now) - keep.Microseconds(), limit + 1 - len(ids)}, list1[int64])
			if err != nil {
				return err
			}
			ids = append(ids, old...)
			more = len(ids) > limit
			out.Candidates, err = candidates(t, ids[:min(limit, len(ids))])
			if err == nil {
				work, err = swept(t, keep)
			}
			return err
		})
	}
	if err := read(); err != nil {
		return monitor.Scan{}, err
	}
	if work && limit > 0 {
		err := m.write(ctx, "sweeping", func(t *monitorTxn) error {
			if err := t.spread(limit); err != nil {
				return err
			}
			old, err := list(t.call, oldestEnded, []any{t.wall - keep.Microseconds(), limit}, list1[int64])
			for _, id := range old {
				if err == nil {
					_, err = t.exec(dropAlarm, id)
				}
			}
			n := int64(0)
			if err == nil {
				n, err = t.exec(dropEmpty)
			}
			if err == nil && n > 0 {
				err = t.changed()
			}
			return err
		})
		if err == nil {
			err = read()
		}
		if err != nil {
			return monitor.Scan{}, err
		}
	}
	if more || work {
		out.Next = out.Now
	}
	return out, nil
}

// swept reports whether there is something to sweep.
func swept(t *monitorTxn, keep time.Duration) (bool, error) {
	var n int
	err := t.one(anythingToSweep, []any{t.wall - keep.Microseconds()}, &n)
	return n > 0, err
}

// spread makes sources due whose event changed, up to limit of them.
func (t *monitorTxn) spread(limit int) error {
	for limit > 0 {
		var event, every int64
		var after string
		err := t.one(spreading, nil, &event, &every, &after)
		if err != nil {
			return notThere(err)
		}
		ids, last, err := t.spreadSome(event, after, limit)
		if err != nil {
			return err
		}
		for _, id := range ids {
			if _, err := t.exec(makeDue, id, t.at); err != nil {
				return err
			}
			if _, err := t.exec(spreadSlot, id, every); err != nil {
				return err
			}
		}
		cursor := &last
		if len(ids) < limit {
			cursor = nil
		}
		if _, err := t.exec(setSpread, event, cursor); err != nil {
			return err
		}
		limit -= len(ids)
	}
	return nil
}

func (t *monitorTxn) spreadSome(event int64, after string, limit int) (ids []int64, last string, err error) {
	err = t.each(spreadNext, []any{event, after, limit}, func(scan scanner) error {
		var id int64
		err := scan(&id, &last)
		ids = append(ids, id)
		return err
	})
	return ids, last, err
}
