package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/understudy-ha/understudy/lease"
)

// forgetAfter is how long a session that is over is remembered.
const forgetAfter = 24 * time.Hour

const (
	// changesSQL is the number behind Renewal.Changes: the newest event ever.
	changesSQL = "coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'understudy_event'), 0)"

	insertSession = `
INSERT INTO understudy_session (id, instance, name, address, interval_us, timeout_us, seq, boot, deadline_us, started_us, renewed_us)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, 1, ?7, ?8 + ?6, ?9, ?9)
ON CONFLICT (id) DO NOTHING
RETURNING ` + changesSQL

	// renewSession reads the clock under the write lock: a statement that writes
	// takes the lock before it computes anything.
	renewSession = `
UPDATE understudy_session
SET seq = seq + 1, deadline_us = understudy_boot_us() + timeout_us, renewed_us = understudy_wall_us()
WHERE id = ?1 AND ended = 0 AND boot = ?2 AND deadline_us > understudy_boot_us()
RETURNING seq, ` + changesSQL

	endSession = "UPDATE understudy_session SET ended = 1 WHERE id = ?1 AND ended = 0"

	// forgetSessions looks at the neighbours of a random id. Each start brings one
	// session and looks at many, so that few of those that are over are left, no
	// start pays for a whole table, and no renewal for one more index.
	forgetSessions = `
DELETE FROM understudy_session WHERE id IN (
  SELECT s.id FROM understudy_session s
  WHERE s.id IN (
      SELECT id FROM (SELECT id FROM understudy_session WHERE id >= ?1 ORDER BY id LIMIT 16)
      UNION ALL SELECT id FROM (SELECT id FROM understudy_session WHERE id < ?1 ORDER BY id DESC LIMIT 16))
    AND s.renewed_us + s.timeout_us < ?2
    AND (s.ended = 1 OR s.boot <> ?3 OR s.deadline_us <= ?4)
    AND NOT EXISTS (SELECT 1 FROM understudy_lease l WHERE l.session = s.id AND l.session <> '')
    AND NOT EXISTS (SELECT 1 FROM understudy_claim c WHERE c.session = s.id AND c.session <> '')
)`

	sessionColumns = "s.id, s.instance, s.name, s.address, s.interval_us, s.timeout_us, s.seq, s.boot, s.deadline_us, s.ended, s.started_us"

	// aliveSQL is true of a session x that lives by the clock of boot ?1.
	aliveSQL = "x.ended = 0 AND x.boot = ?1 AND x.deadline_us > understudy_boot_us()"
)

// sessionRow is a row of understudy_session.
type sessionRow struct {
	lease.Session
	boot     string
	deadline int64
}

func (r *sessionRow) scan(scan scanner, more ...any) error {
	var interval, timeout, started int64
	dest := []any{&r.ID, &r.Instance.ID, &r.Instance.Name, &r.Instance.Address, &interval, &timeout, &r.Seq, &r.boot, &r.deadline, &r.Ended, &started}
	if err := scan(append(dest, more...)...); err != nil {
		return err
	}
	r.Timing = lease.Timing{Interval: micros(interval), Timeout: micros(timeout)}
	r.Started = time.UnixMicro(started)
	return nil
}

func micros(us int64) time.Duration { return time.Duration(us) * time.Microsecond }

// StartSession implements [lease.Store].
func (s *Store) StartSession(ctx context.Context, n lease.Session) (lease.Renewal, error) {
	var changes int64
	err := s.write(ctx, "starting a session", func(t *txn) error {
		err := t.one(insertSession, []any{
			n.ID, n.Instance.ID, n.Instance.Name, n.Instance.Address,
			n.Timing.Interval.Microseconds(), n.Timing.Timeout.Microseconds(), t.boot, t.now, t.wall,
		}, &changes)
		if errors.Is(err, sql.ErrNoRows) {
			return fmt.Errorf("session %s was used before: %w", n.ID, lease.ErrLapsed)
		}
		if err != nil {
			return err
		}
		_, err = t.exec(forgetSessions, lease.NewID(), t.wall-forgetAfter.Microseconds(), t.boot, t.now)
		return err
	})
	if err != nil {
		return lease.Renewal{}, err
	}
	return lease.Renewal{Seq: 1, Changes: changes}, nil
}

const renewing = "renewing a session"

// RenewSession implements [lease.Store]. A session that another boot has renewed
// last cannot be judged by this one's clock, and its owner cannot have lived
// through a reboot: it has lapsed.
func (s *Store) RenewSession(ctx context.Context, id string) (lease.Renewal, error) {
	r, err := s.renew(ctx, id)
	if !errors.Is(err, sql.ErrNoRows) {
		return r, err
	}
	// It does not live. That is found again, and noted, in one transaction.
	err = s.write(ctx, renewing, func(t *txn) error {
		err := t.one(renewSession, []any{id, t.boot}, &r.Seq, &r.Changes)
		if errors.Is(err, sql.ErrNoRows) {
			_, err = t.exec(endSession, id)
		}
		return err
	})
	switch {
	case err != nil:
		return lease.Renewal{}, err
	case r.Seq == 0:
		return lease.Renewal{}, fmt.Errorf("session %s: %w", id, lease.ErrLapsed)
	}
	return r, nil
}

// renew is the usual case, in one statement that is its own transaction;
// [sql.ErrNoRows] when the session does not live.
func (s *Store) renew(ctx context.Context, id string) (r lease.Renewal, err error) {
	ctx, done, err := s.writing(ctx, true)
	if err != nil {
		return r, failed(renewing, err)
	}
	defer done()
	calm := context.WithoutCancel(ctx)
	err = retry(ctx, func() error {
		// Read to the end, for that is where it commits.
		return call{statements: s.writer.stmts, ctx: calm}.each(renewSession, []any{id, s.clocks.boot}, func(scan scanner) error {
			return scan(&r.Seq, &r.Changes)
		})
	})
	switch {
	case err != nil:
		return lease.Renewal{}, commitFailed(renewing, err)
	case r.Seq == 0:
		return r, sql.ErrNoRows
	}
	return r, nil
}

// portion is how many leases the end of a session releases in one transaction:
// what takes some 50 ms, for which everyone's renewals wait.
const portion = 5000

const (
	recordFreed = `
INSERT INTO understudy_event (at_us, part, subject, from_label, to_label, term, reason, duration_ns, change)
SELECT ?2, space, key, ?3, '', term, ?4, max(0, ?2 - since_us) * 1000, ?5
FROM understudy_lease WHERE session = ?1 AND session <> '' ORDER BY space, key LIMIT ?6`

	freeSome = `
UPDATE understudy_lease SET session = '', since_us = ?2, successor = '', reserved_us = 0, boot = '', asked = 0, asked_for = ''
WHERE (space, key) IN (SELECT space, key FROM understudy_lease WHERE session = ?1 AND session <> '' ORDER BY space, key LIMIT ?3)`

	leaveAll = "DELETE FROM understudy_waiter WHERE session = ?1"
)

// EndSession implements [lease.Store]. The first transaction ends the session,
// and with it frees everything that it holds, and releases the first portion.
// The rest of a large holder's leases follow, to wake those who wait for them.
func (s *Store) EndSession(ctx context.Context, id, reason string) error {
	const op = "ending a session"
	more, holder := false, ""
	err := s.write(ctx, op, func(t *txn) error {
		n, err := t.session(id)
		if errors.Is(err, sql.ErrNoRows) {
			return nil
		}
		if err != nil {
			return err
		}
		if _, err := t.exec(endSession, id); err != nil {
			return err
		}
		if _, err := t.exec(leaveAll, id); err != nil {
			return err
		}
		holder = n.Instance.Label()
		more, err = t.releaseSome(id, holder, reason)
		return err
	})
	if err != nil {
		return err
	}
	for more {
		err := s.write(ctx, op, func(t *txn) (err error) {
			more, err = t.releaseSome(id, holder, reason)
			return err
		})
		if err != nil {
			return lease.PartiallyEnded(id, err)
		}
	}
	return nil
}

// releaseSome releases a portion of what the session holds, and reports whether
// there may be more.
func (t *txn) releaseSome(id, holder, reason string) (more bool, err error) {
	_, err = t.exec(recordFreed, id, t.wall, holder, lease.TruncateReason(reason), changeFreed, portion)
	if err != nil {
		return false, err
	}
	n, err := t.exec(freeSome, id, t.wall, portion)
	return n == portion, err
}

const getSession = "SELECT " + sessionColumns + " FROM understudy_session s WHERE s.id = ?1"

// session reads a session; [sql.ErrNoRows] when it is not there.
func (t *txn) session(id string) (sessionRow, error) {
	var r sessionRow
	err := r.scan(func(dest ...any) error { return t.one(getSession, []any{id}, dest...) })
	return r, err
}

// living is session for one that must be alive: [lease.ErrLapsed] otherwise.
func (t *txn) living(id string) (sessionRow, error) {
	r, err := t.session(id)
	if errors.Is(err, sql.ErrNoRows) || err == nil && (r.Ended || r.boot != t.boot || r.deadline <= t.now) {
		return r, fmt.Errorf("session %s: %w", id, lease.ErrLapsed)
	}
	return r, err
}
