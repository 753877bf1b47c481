package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/monitor"
)

const (
	findSource = "SELECT id FROM understudy_monitor_source WHERE event = ?1 AND name = ?2"

	sourceCount = "SELECT up + down + paused + retired FROM understudy_monitor_count WHERE event = ?1"

	addSource = `
INSERT INTO understudy_monitor_source (event, name, labels, declared, base_us, due_us) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
ON CONFLICT (event, name) DO NOTHING`
)

// ResolveSources implements [monitor.HeartbeatStore].
func (m monitors) ResolveSources(ctx context.Context, refs []monitor.SourceRef) ([]monitor.ResolvedSource, error) {
	const op = "resolving sources"
	out := make([]monitor.ResolvedSource, len(refs))
	var unknown []int // places of those that can be learned
	err := m.read(ctx, op, func(t *monitorTxn) error {
		unknown = unknown[:0]
		checks := checksOf(t)
		for i, ref := range refs {
			learn, err := resolve(t, checks, ref, &out[i])
			if err != nil {
				return err
			}
			if learn {
				unknown = append(unknown, i)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if len(unknown) == 0 {
		return out, nil
	}
	err = m.write(ctx, op, func(t *monitorTxn) error {
		checks := checksOf(t)
		for _, i := range unknown {
			learn, err := resolve(t, checks, refs[i], &out[i])
			if err == nil && learn {
				out[i].Full, err = t.isFull(checks.byName[refs[i].Check])
			}
			if err == nil && learn && !out[i].Full {
				out[i].ID, _, err = t.add(checks.byName[refs[i].Check], refs[i].Source, "", false)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// resolve finds a source, and reports whether it can be learned if it is not there.
// What cannot be a name is never one.
func resolve(t *monitorTxn, checks *checkCache, ref monitor.SourceRef, out *monitor.ResolvedSource) (learn bool, err error) {
	*out = monitor.ResolvedSource{}
	if lease.ValidateText("", ref.Check, 1, monitor.MaxName) != nil || lease.ValidateText("", ref.Source, 1, monitor.MaxName) != nil {
		return false, nil
	}
	e, err := checks.named(ref.Check)
	if err != nil || e == nil {
		return false, err
	}
	out.SenderClock = e.SenderClock
	err = t.one(findSource, []any{e.ID, ref.Source}, &out.ID)
	if errors.Is(err, sql.ErrNoRows) {
		return !e.Fixed, nil
	}
	return false, err
}

const (
	keepReport = `
INSERT INTO understudy_monitor_report (id, at_us, kind, code, run, body) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
ON CONFLICT (id) DO UPDATE SET at_us = excluded.at_us, kind = excluded.kind, code = excluded.code, run = excluded.run, body = excluded.body`

	readReport = "SELECT at_us, kind, code, run, body FROM understudy_monitor_report WHERE id = ?1"
)

// KeepReport implements [monitor.HeartbeatStore].
func (m monitors) KeepReport(ctx context.Context, of monitor.SourceRef, r monitor.Report) error {
	return m.write(ctx, "keeping a report", func(l *monitorTxn) error {
		id, err := sourceID(l, of)
		if err == nil {
			_, err = l.exec(keepReport, id, l.wall, r.Kind, r.Code, r.Run, append([]byte{}, r.Body...))
		}
		return err
	})
}

// Report implements [monitor.HeartbeatStore].
func (m monitors) Report(ctx context.Context, of monitor.SourceRef) (out monitor.Report, err error) {
	err = m.read(ctx, "reading a report", func(v *monitorTxn) error {
		id, err := sourceID(v, of)
		if err != nil {
			return err
		}
		var at int64
		err = notThere(v.one(readReport, []any{id}, &at, &out.Kind, &out.Code, &out.Run, &out.Body))
		out.At = timeOf(at)
		return err
	})
	return out, err
}

// sourceID is the number of a source of a configured check.
func sourceID(r *monitorTxn, of monitor.SourceRef) (id int64, err error) {
	e, err := checksOf(r).named(of.Check)
	if err != nil {
		return 0, err
	}
	if e != nil {
		err = r.one(findSource, []any{e.ID, of.Source}, &id)
	}
	if e == nil || errors.Is(err, sql.ErrNoRows) {
		err = fmt.Errorf("%q of check %q: %w", of.Source, of.Check, monitor.ErrNoSource)
	}
	return id, err
}

// isFull reports whether a check may learn no more sources.
func (t *monitorTxn) isFull(e *checkRow) (bool, error) {
	var n int64
	err := t.one(sourceCount, []any{e.ID}, &n)
	return !e.CanLearn(n), err
}

// add makes a source that is expected from now on, unless it is there.
func (t *monitorTxn) add(e *checkRow, name, labels string, declared bool) (id int64, added bool, err error) {
	// Judged too soon does no harm: the rule then says when.
	n, err := t.exec(addSource, e.ID, name, labels, declared, t.at, t.at.Add(e.FixedLimit()))
	if err != nil {
		return 0, false, err
	}
	err = t.one(findSource, []any{e.ID, name}, &id)
	return id, n > 0, err
}
