package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/understudy-ha/understudy/monitor"
)

const applyChangesSQL = `SELECT made, moment FROM {{rules}}.monitor_apply_changes($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19)`

// ApplyChanges implements [monitor.Detection].
func (m *monitors) ApplyChanges(ctx context.Context, changes []monitor.SourceChange) ([]bool, error) {
	out := make([]bool, len(changes))
	if len(changes) == 0 {
		return out, nil
	}
	var made []int64
	var moment int64
	args := append(append([]any{m.latest.Load()}, changeArgs(changes)...), changeNotifications(changes)...)
	err := m.db.rowReadCommitted(ctx, applyChangesSQL, func(r pgx.Row) error { return r.Scan(&made, &moment) }, append(args, lockTimeout{})...)
	if err != nil {
		return nil, fmt.Errorf("applying %d changes: %w", len(changes), err)
	}
	m.noteTime(monitor.StoreTime(moment))
	for _, number := range made {
		out[number-1] = true
	}
	return out, nil
}

// changeArgs takes changes apart into columns.
func changeArgs(changes []monitor.SourceChange) []any {
	n := len(changes)
	ids, revs, beatRevs, checkRevs := make([]int64, n), make([]int64, n), make([]int64, n), make([]int64, n)
	transitions, alarms, reasons, groups := make([]string, n), make([]string, n), make([]string, n), make([]string, n)
	dues, wells, bases, ats := make([]int64, n), make([]int64, n), make([]int64, n), make([]int64, n)
	for i := range changes {
		c := &changes[i]
		ids[i], revs[i], beatRevs[i], checkRevs[i] = c.ID, c.Rev, c.BeatRev, c.CheckRev
		transitions[i], alarms[i], reasons[i], groups[i] = string(c.Transition), c.Alarm, string(c.Reason), c.Group
		dues[i], wells[i], bases[i], ats[i] = int64(c.Due), int64(c.WellSince), int64(c.ExpectedFrom), micros(c.At)
	}
	return []any{ids, revs, beatRevs, checkRevs, transitions, dues, wells, bases, alarms, reasons, ats, groups}
}

// changeNotifications are the notifications of all changes, with the places of these.
func changeNotifications(changes []monitor.SourceChange) []any {
	var places []int64
	var notifications []monitor.Notification
	for i := range changes {
		for _, n := range changes[i].Notifications {
			places, notifications = append(places, int64(i+1)), append(notifications, n)
		}
	}
	if places == nil {
		places = []int64{}
	}
	return append([]any{places}, notificationArgs(notifications)...)
}

func notificationArgs(notifications []monitor.Notification) []any {
	n := len(notifications)
	sinks, keys, ids, payloads := make([]string, n), make([]string, n), make([]string, n), make([][]byte, n)
	for i, x := range notifications {
		sinks[i], keys[i], ids[i], payloads[i] = x.Sink, x.Key, x.ID, x.Payload
		if x.Payload == nil {
			payloads[i] = []byte{}
		}
	}
	return []any{sinks, keys, ids, payloads}
}
