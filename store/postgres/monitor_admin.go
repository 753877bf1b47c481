package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/monitor"
)

// ApplyAction implements [monitor.Admin].
func (m *monitors) ApplyAction(ctx context.Context, a monitor.Action) error {
	switch a.Type {
	case monitor.ActionPause, monitor.ActionResume, monitor.ActionRetire, monitor.ActionRemove:
		switch {
		case !nameable(a.Check):
			return fmt.Errorf("%q: %w", a.Check, monitor.ErrNoCheck)
		case a.Source != "" && !nameable(a.Source):
			return fmt.Errorf("%s/%q: %w", a.Check, a.Source, monitor.ErrNoSource)
		}
	}
	var said string
	err := m.db.rowReadCommitted(ctx, "SELECT {{rules}}.monitor_apply_action($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)", func(r pgx.Row) error { return r.Scan(&said) },
		m.latest.Load(), string(a.Type), a.Check, clean(a.Source), clean(a.Alarm), a.For.Microseconds(), clean(a.Actor()), clean(a.Note), clean(a.HistoryReason()), lockTimeout{})
	switch {
	case err != nil:
		return fmt.Errorf("%s: %w", a.Type, err)
	case said == "event":
		return fmt.Errorf("%q: %w", a.Check, monitor.ErrNoCheck)
	case said == "source":
		return fmt.Errorf("%s/%s: %w", a.Check, a.Source, monitor.ErrNoSource)
	case said == "open":
		return monitor.AlarmOpenError(a.Check, a.Source)
	case said == "alarm":
		return fmt.Errorf("%q: %w", a.Alarm, monitor.ErrNoAlarm)
	case said != "done":
		return fmt.Errorf("%w: there is no %s %q", lease.ErrInvalid, said, a.Source)
	}
	return nil
}

// RegisterMember implements [monitor.Admin].
func (m *monitors) RegisterMember(ctx context.Context, n monitor.Member) error {
	sinks := append([]string{}, n.Sinks...)
	var lives *bool
	var err error
	for err == nil && lives == nil { // it deletes in portions what an interrupted removal has left of a sink's queue
		err = m.db.rowReadCommitted(ctx, "SELECT {{rules}}.monitor_register_member($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)", func(r pgx.Row) error { return r.Scan(&lives) },
			clean(n.Session), clean(n.Instance.ID), clean(n.Instance.Name), clean(n.Instance.Address), int32(n.Process), clean(n.Host), clean(n.Service), n.Active, int32(n.Partitions), sinks,
			int64(purgedPerCall), lockTimeout{})
	}
	switch {
	case err != nil:
		return fmt.Errorf("registering member %s: %w", n.Instance.Name, err)
	case !*lives:
		return fmt.Errorf("session %s: %w", n.Session, lease.ErrLapsed)
	}
	return nil
}
