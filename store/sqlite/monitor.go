package sqlite

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/monitor"
	"github.com/understudy-ha/understudy/store"
)

var _ store.Monitors = (*Store)(nil)

// monitors is the [monitor.Store] of a Store.
//
// The store time is what was recorded last and what the boot-time clock has counted
// since; after a reboot, what the wall clock says has passed. It is recorded by
// every transaction that writes, so that it never falls.
type monitors struct{ *Store }

// Monitor is what the store keeps for package monitor.
func (s *Store) Monitor() monitor.Store { return monitor.Validated(monitors{s}) }

const (
	sinceRecorded = "moment_us + max(0, iif(boot = ?1, ?2 - boot_us, ?3 - wall_us))"

	recordTime = `
UPDATE understudy_monitor SET moment_us = ` + sinceRecorded + `, boot = ?1, boot_us = ?2, wall_us = ?3
RETURNING moment_us, generation`

	// readClock is the first statement of a snapshot, which starts with it.
	readClock = "SELECT boot, boot_us, moment_us, wall_us, generation FROM understudy_monitor"

	bumpGeneration = "UPDATE understudy_monitor SET generation = generation + 1 RETURNING generation"
)

// monitorTxn is a transaction on the monitor's tables.
type monitorTxn struct {
	*txn
	at         monitor.StoreTime
	generation int64
}

// changed tells all instances to read the settings again.
func (t *monitorTxn) changed() error { return t.one(bumpGeneration, nil, &t.generation) }

// write runs fn in a transaction whose store time is recorded.
func (m monitors) write(ctx context.Context, op string, fn func(*monitorTxn) error) error {
	return m.Store.write(ctx, op, func(t *txn) error {
		l := &monitorTxn{txn: t}
		if err := l.one(recordTime, []any{t.boot, t.now, t.wall}, &l.at, &l.generation); err != nil {
			return err
		}
		return fn(l)
	})
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("sqlite: %w: %s", lease.ErrInvalid, fmt.Sprintf(format, args...))
}

// read runs fn on one state of the file.
func (m monitors) read(ctx context.Context, op string, fn func(*monitorTxn) error) error {
	var boot string
	var bootThen, then, wallThen, generation int64
	return m.snapshot(ctx, op, readClock, []any{&boot, &bootThen, &then, &wallThen, &generation}, func(t *txn) error {
		passed := t.wall - wallThen
		if boot == t.boot {
			passed = t.now - bootThen
		}
		return fn(&monitorTxn{t, monitor.StoreTime(then + max(0, passed)), generation})
	})
}

// dueIn is a due time as a column that is NULL for never.
func dueIn(m monitor.StoreTime) *int64 {
	if m == monitor.Never {
		return nil
	}
	return new(int64(m))
}

// unixMicro is a time as a column, 0 for none; timeOf is its inverse.
func unixMicro(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

func timeOf(us int64) time.Time {
	if us == 0 {
		return time.Time{}
	}
	return time.UnixMicro(us)
}

func labelsIn(labels map[string]string) (string, error) {
	if len(labels) == 0 {
		return "", nil
	}
	text, err := json.Marshal(labels)
	return string(text), err
}

func labelsOf(text string) (labels map[string]string, err error) {
	if text == "" {
		return nil, nil
	}
	err = json.Unmarshal([]byte(text), &labels)
	return labels, err
}
