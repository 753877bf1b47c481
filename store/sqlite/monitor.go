package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/monitor"
	"github.com/understudy-ha/understudy/store"
)

var _ store.Monitors = (*Store)(nil)

// monitors is the [monitor.Store] of a Store.
//
// A moment is what was recorded last and what the boot-time clock has counted
// since; after a reboot, what the wall clock says has passed. It is recorded by
// every transaction that writes, so that it never falls.
type monitors struct {
	s *Store
	// reading are the statements of snapshots. These have a pool without a bound: one
	// that was full of snapshots could not prepare what they wait for.
	reading *statements
	turns   chan struct{} // bounds the snapshots
}

// Monitor is what the store keeps for package monitor.
func (s *Store) Monitor() monitor.Store { return s.monitors }

func newMonitors(s *Store) monitors {
	return monitors{s: s, reading: newStatements(s.wide), turns: make(chan struct{}, maxReaders)}
}

const (
	sinceRecorded = "moment_us + max(0, iif(boot = ?1, ?2 - boot_us, ?3 - wall_us))"

	recordMoment = `
UPDATE understudy_monitor SET moment_us = ` + sinceRecorded + `, boot = ?1, boot_us = ?2, wall_us = ?3
RETURNING moment_us, generation`

	// readClock is the first statement of a snapshot, which begins with it.
	readClock = "SELECT boot, boot_us, moment_us, wall_us, generation FROM understudy_monitor"

	bumpGeneration = "UPDATE understudy_monitor SET generation = generation + 1 RETURNING generation"
)

// rowReader is a transaction of either kind.
type rowReader interface {
	rows(text string, args []any, f func(scan func(...any) error) error) error
	row(text string, args []any, dest ...any) error
	moment() monitor.StoreTime
	wallTime() time.Time
}

// ledger is a transaction on the monitor's tables that writes.
type ledger struct {
	*txn
	at         int64 // the moment
	generation int64
}

func (l *ledger) rows(text string, args []any, f func(func(...any) error) error) error {
	return l.each(l.ctx, text, args, f)
}

func (l *ledger) row(text string, args []any, dest ...any) error { return l.one(text, args, dest...) }
func (l *ledger) moment() monitor.StoreTime                      { return monitor.StoreTime(l.at) }
func (l *ledger) wallTime() time.Time                            { return time.UnixMicro(l.wall) }

// changed tells all instances to read the settings anew.
func (l *ledger) changed() error { return l.row(bumpGeneration, nil, &l.generation) }

// write runs fn in a transaction whose moment is recorded. Unlike the store's
// own, it hands on the refusals of package monitor.
func (m monitors) write(ctx context.Context, op string, fn func(*ledger) error) error {
	var refused error
	err := m.s.write(ctx, op, func(t *txn) error {
		l := &ledger{txn: t}
		err := l.row(recordMoment, []any{t.boot, t.now, t.wall}, &l.at, &l.generation)
		if err == nil {
			err = fn(l)
		}
		if refusal(err) {
			refused = err
		}
		return err
	})
	if refused != nil {
		return refused
	}
	return err
}

// refusal tells errors that say no, from those of a store that failed.
func refusal(err error) bool {
	for _, r := range []error{monitor.ErrNoSource, monitor.ErrNoCheck, monitor.ErrNoAlarm, lease.ErrInvalid} {
		if errors.Is(err, r) {
			return true
		}
	}
	return false
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("sqlite: %w: %s", lease.ErrInvalid, fmt.Sprintf(format, args...))
}

// snapshot is a transaction that reads.
type snapshot struct {
	*statements
	ctx        context.Context
	tx         *sql.Tx
	at, wall   int64
	generation int64
}

func (v *snapshot) rows(text string, args []any, f func(func(...any) error) error) error {
	st, err := v.prepare(v.ctx, text)
	if err != nil {
		return err
	}
	rows, err := v.tx.StmtContext(v.ctx, st).QueryContext(v.ctx, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := f(rows.Scan); err != nil {
			return err
		}
	}
	return rows.Err()
}

func (v *snapshot) row(text string, args []any, dest ...any) error {
	found := false
	err := v.rows(text, args, func(scan func(...any) error) error {
		if found {
			return nil
		}
		found = true
		return scan(dest...)
	})
	if err == nil && !found {
		return sql.ErrNoRows
	}
	return err
}

func (v *snapshot) moment() monitor.StoreTime { return monitor.StoreTime(v.at) }
func (v *snapshot) wallTime() time.Time       { return time.UnixMicro(v.wall) }

// read runs fn on one state of the file. The clock is read after the state was
// fixed: nothing in it is later.
func (m monitors) read(ctx context.Context, op string, fn func(*snapshot) error) error {
	var refused error
	err := m.s.read(ctx, op, func(ctx context.Context) error {
		select {
		case m.turns <- struct{}{}:
			defer func() { <-m.turns }()
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		tx, err := m.s.wide.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
		if err != nil {
			return err
		}
		defer tx.Rollback()
		v := &snapshot{statements: m.reading, ctx: ctx, tx: tx}
		var boot string
		var bootThen, moment, wallThen int64
		if err := v.row(readClock, nil, &boot, &bootThen, &moment, &wallThen, &v.generation); err != nil {
			return err
		}
		bootNow := m.s.clocks.bootMicros()
		v.wall = m.s.clocks.wallMicros()
		passed := v.wall - wallThen
		if boot == m.s.clocks.boot {
			passed = bootNow - bootThen
		}
		v.at = moment + max(0, passed)
		err = fn(v)
		if refusal(err) {
			refused = err
			return nil
		}
		return err
	})
	if refused != nil {
		return refused
	}
	return err
}

// wallOf is when a moment was, by the wall clock of now.
func wallOf(r rowReader, m int64) time.Time {
	if m == 0 {
		return time.Time{}
	}
	return r.wallTime().Add(-r.moment().Sub(monitor.StoreTime(m)))
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
