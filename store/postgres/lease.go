package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/understudy-ha/understudy/lease"
)

// acquireStatement acquires a lease, and sets l to it.
func acquireStatement(c lease.Expectation, l *lease.Lease) statement {
	var verdict string
	return statement{
		sql:  "SELECT a.verdict, (a.lease).* FROM {{rules}}.acquire($1, $2, $3, $4, $5, $6, $7, $8, $9) a",
		args: []any{c.Lease.Space, c.Lease.Key, c.Session, c.Seen.Term, c.Seen.Session, c.Seen.Seq, c.Waited, c.Places, lockTimeout{}},
		scan: func(r pgx.Row) (err error) {
			*l, err = scanLease(r, &verdict)
			return err
		},
		refusal: func() error {
			switch verdict {
			case "no_session":
				return fmt.Errorf("session %s: %w", c.Session, lease.ErrLapsed)
			case "held":
				return fmt.Errorf("%s: %w", c.Lease, lease.ErrHeld)
			}
			return nil
		},
	}
}

// Acquire implements [lease.Store].
func (s *Store) Acquire(ctx context.Context, c lease.Expectation) (l lease.Lease, err error) {
	acquire := acquireStatement(c, &l)
	if err := s.queryRow(ctx, ordinary, acquire.sql, acquire.scan, acquire.args...); err != nil {
		return lease.Lease{}, fmt.Errorf("acquiring %s: %w", c.Lease, err)
	}
	if err = acquire.refusal(); errors.Is(err, lease.ErrLapsed) {
		l = lease.Lease{}
	}
	return l, err
}

// releaseStatement releases a lease, and sets released to whether it was held.
func releaseStatement(h lease.ReleaseRequest, released *bool) statement {
	return statement{
		sql:  "SELECT {{rules}}.release($1, $2, $3, $4, $5, $6, $7, $8)",
		args: []any{h.Lease.Space, h.Lease.Key, h.Session, h.Term, h.Successor, h.Reserve.Nanoseconds(), lease.TruncateReason(h.Reason), lockTimeout{}},
		scan: func(r pgx.Row) error { return r.Scan(released) },
	}
}

func notHeld(h lease.ReleaseRequest) error {
	return fmt.Errorf("%s under term %d: %w", h.Lease, h.Term, lease.ErrNotHeld)
}

// Release implements [lease.Store].
func (s *Store) Release(ctx context.Context, h lease.ReleaseRequest) error {
	var released bool
	release := releaseStatement(h, &released)
	if err := s.queryRow(ctx, ordinary, release.sql, release.scan, release.args...); err != nil {
		return fmt.Errorf("releasing %s: %w", h.Lease, err)
	}
	if !released {
		return notHeld(h)
	}
	return nil
}

// Get implements [lease.Store].
func (s *Store) Get(ctx context.Context, id lease.ID) (lease.Lease, error) {
	var l lease.Lease
	err := s.queryRow(ctx, ordinary, "SELECT * FROM {{rules}}.show_lease($1, $2, '')", func(r pgx.Row) (err error) {
		l, err = scanLease(r)
		return err
	}, id.Space, id.Key)
	if err != nil {
		return lease.Lease{}, fmt.Errorf("reading %s: %w", id, err)
	}
	return l, nil
}

// List implements [lease.Store].
func (s *Store) List(ctx context.Context, space, after string, limit int) ([]lease.Lease, error) {
	out, err := rows(ctx, s, `SELECT x.*
		FROM (SELECT space, key FROM {{schema}}.lease WHERE space = $1 AND key > $2 ORDER BY key LIMIT $3) page,
		LATERAL {{rules}}.show_lease(page.space, page.key, '') x ORDER BY x.key COLLATE "C"`,
		func(r pgx.CollectableRow) (lease.Lease, error) { return scanLease(r) }, space, after, int64(lease.ListLimit(limit)))
	return out, during(err, "listing %s", space)
}

// shownLease is a value of the type shown_lease, as a row or as JSON.
type shownLease struct {
	Space         string    `json:"space"`
	Key           string    `json:"key"`
	Term          int64     `json:"term"`
	Session       string    `json:"session"`
	HolderID      string    `json:"holder_id"`
	HolderName    string    `json:"holder_name"`
	HolderAddress string    `json:"holder_address"`
	Interval      int64     `json:"interval_nanos"`
	Timeout       int64     `json:"timeout_nanos"`
	Seq           int64     `json:"seq"`
	Deadline      time.Time `json:"deadline"`
	Ended         bool      `json:"ended"`
	Since         time.Time `json:"since"`
	Successor     string    `json:"successor"`
	Reserved      time.Time `json:"reserved"`
	Asked         bool      `json:"asked"`
	AskedFor      string    `json:"asked_for"`
	Places        int       `json:"places"`
	Waiting       int       `json:"waiting"`
	At            time.Time `json:"at"`
}

// scanLease reads a row of the type shown_lease, after other columns.
func scanLease(r pgx.Row, before ...any) (lease.Lease, error) {
	return scanLeaseAt(r, new(time.Time), before...)
}

// scanLeaseAt also returns the store's clock.
func scanLeaseAt(r pgx.Row, at *time.Time, before ...any) (lease.Lease, error) {
	var x shownLease
	err := r.Scan(append(before, &x.Space, &x.Key, &x.Term, &x.Session, &x.HolderID, &x.HolderName, &x.HolderAddress,
		&x.Interval, &x.Timeout, &x.Seq, &x.Deadline, &x.Ended, &x.Since, &x.Successor, &x.Reserved, &x.Asked, &x.AskedFor,
		&x.Places, &x.Waiting, &x.At)...)
	if err != nil {
		return lease.Lease{}, err
	}
	*at = x.At
	return x.lease(), nil
}

func (x shownLease) lease() lease.Lease {
	l := lease.Lease{
		ID: lease.ID{Space: x.Space, Key: x.Key}, Term: x.Term, Session: x.Session,
		Holder: lease.Instance{ID: x.HolderID, Name: x.HolderName, Address: x.HolderAddress},
		Timing: lease.Timing{Interval: time.Duration(x.Interval), Timeout: time.Duration(x.Timeout)},
		Seq:    x.Seq, Remaining: x.Deadline.Sub(x.At), Ended: x.Ended, Since: x.Since.UTC(), Age: x.At.Sub(x.Since),
		Successor: x.Successor, ReleaseRequested: x.Asked, RequestedSuccessor: x.AskedFor, Places: x.Places, Waiting: x.Waiting,
	}
	if l.Successor != "" {
		l.Reserved = max(0, x.Reserved.Sub(x.At))
	}
	if l.Session == "" {
		l.Holder = lease.Instance{}
	}
	if l.Term == 0 {
		l.Since = time.Time{}
	}
	return l
}
