package postgres

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/monitor"
)

// nameable reports whether a text can be a name: only such are learned.
func nameable(s string) bool { return lease.ValidateText("name", s, 1, monitor.MaxName) == nil }

// ResolveSources implements [monitor.HeartbeatStore].
func (m *monitors) ResolveSources(ctx context.Context, refs []monitor.SourceRef) ([]monitor.ResolvedSource, error) {
	out := make([]monitor.ResolvedSource, len(refs))
	var places []int
	var events, names []string
	for i, r := range refs {
		if nameable(r.Check) && nameable(r.Source) {
			places, events, names = append(places, i), append(events, r.Check), append(names, r.Source)
		}
	}
	if len(places) == 0 {
		return out, nil
	}
	// Without labels it learns those that it does not know.
	_, err := rowsReadCommitted(ctx, m.db, "SELECT i, coalesce(id, 0), sender_clock, refused FROM {{rules}}.monitor_resolve_sources($1, $2, $3, $4, $5, $6)",
		func(r pgx.CollectableRow) (k monitor.ResolvedSource, err error) {
			var place int
			if err = r.Scan(&place, &k.ID, &k.SenderClock, &k.Full); err == nil {
				out[places[place-1]] = k
			}
			return k, err
		}, m.latest.Load(), events, names, []string(nil), int64(monitor.DefaultLearned), lockTimeout{})
	if err != nil {
		return nil, fmt.Errorf("resolving %d sources: %w", len(refs), err)
	}
	return out, nil
}

const recordHeartbeatsSQL = `SELECT unknown, replayed, generation, moment
	FROM {{rules}}.monitor_record_heartbeats($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)`

// RecordHeartbeats implements [monitor.HeartbeatStore].
func (m *monitors) RecordHeartbeats(ctx context.Context, d monitor.HeartbeatBatch) (out monitor.BatchResult, err error) {
	var moment int64
	err = m.db.rowReadCommitted(ctx, recordHeartbeatsSQL, func(r pgx.Row) error { return r.Scan(&out.Unknown, &out.Replayed, &out.Generation, &moment) },
		append(probeArgs(d.Probes, m.latest.Load()), append(beatArgs(d.Beats), lockTimeout{})...)...)
	if err != nil {
		return monitor.BatchResult{}, fmt.Errorf("storing %d beats: %w", len(d.Beats), err)
	}
	m.noteTime(monitor.StoreTime(moment))
	return out, nil
}

func probeArgs(proofs []monitor.Probe, floor int64) []any {
	n := len(proofs)
	paths, trusts, gaps, nameOnly := make([]string, n), make([]int64, n), make([]int64, n), make([]bool, n)
	for i, p := range proofs {
		paths[i], trusts[i], gaps[i], nameOnly[i] = p.Path, p.TrustFor.Microseconds(), p.MaxGap.Microseconds(), p.NameOnly
	}
	return []any{floor, paths, trusts, gaps, nameOnly}
}

// beatArgs takes updates apart into columns. The last four are nil if no update says more than that its source is alive.
func beatArgs(beats []monitor.HeartbeatUpdate) []any {
	byID := func(a, b monitor.HeartbeatUpdate) int { return cmp.Compare(a.Source, b.Source) }
	if !slices.IsSortedFunc(beats, byID) {
		beats = slices.SortedFunc(slices.Values(beats), byID)
	}
	n := len(beats)
	ids, paths, sents, seqs, counts := make([]int64, n), make([]int32, n), make([]int64, n), make([]int64, n), make([]int32, n)
	plain := true
	for i := range beats {
		b := &beats[i]
		ids[i], paths[i], sents[i], seqs[i], counts[i] = b.Source, int32(b.Path+1), micros(b.Sent), b.Seq, int32(max(1, b.Count))
		plain = plain && b.Signal == monitor.SignalSuccess && b.Code == 0 && !b.BySender && b.Run == 0
	}
	var signals, codes []int32
	var bySender []bool
	var runs []int64
	if !plain {
		signals, codes, bySender, runs = make([]int32, n), make([]int32, n), make([]bool, n), make([]int64, n)
		for i := range beats {
			b := &beats[i]
			signals[i], codes[i], bySender[i], runs[i] = int32(b.Signal), int32(b.Code), b.BySender, b.Run
		}
	}
	return []any{ids, paths, sents, seqs, counts, signals, codes, bySender, runs}
}

// KeepReport implements [monitor.HeartbeatStore].
func (m *monitors) KeepReport(ctx context.Context, of monitor.SourceRef, r monitor.Report) error {
	known := false
	if isStorable(of.Check, of.Source, r.Run) {
		body := append([]byte{}, r.Body...)
		err := m.db.rowReadCommitted(ctx, "SELECT {{rules}}.monitor_keep_report($1, $2, $3, $4, $5, $6, $7)", func(r pgx.Row) error { return r.Scan(&known) },
			of.Check, of.Source, string(r.Kind), int32(r.Code), r.Run, body, lockTimeout{})
		if err != nil {
			return fmt.Errorf("keeping a report of %s/%s: %w", of.Check, of.Source, err)
		}
	}
	return noSource(known, of)
}

// Report implements [monitor.HeartbeatStore].
func (m *monitors) Report(ctx context.Context, of monitor.SourceRef) (out monitor.Report, err error) {
	if !isStorable(of.Check, of.Source) {
		return out, noSource(false, of)
	}
	found, err := rowsReadCommitted(ctx, m.db, `SELECT r.at, coalesce(r.kind, ''), coalesce(r.code, 0), coalesce(r.run, ''), r.body
		FROM {{schema}}.monitor_source s JOIN {{schema}}.monitor_event e ON e.id = s.event AND NOT e.removed
		LEFT JOIN {{schema}}.monitor_report r ON r.id = s.id WHERE e.name = $1 AND s.name = $2`,
		func(r pgx.CollectableRow) (out monitor.Report, err error) {
			var at *time.Time
			err = r.Scan(&at, &out.Kind, &out.Code, &out.Run, &out.Body)
			out.At = utc(at)
			return out, err
		}, of.Check, of.Source)
	switch {
	case err != nil:
		return out, fmt.Errorf("reading the report of %s/%s: %w", of.Check, of.Source, err)
	case len(found) == 0:
		return out, noSource(false, of)
	}
	return found[0], nil
}

func noSource(known bool, of monitor.SourceRef) error {
	if known {
		return nil
	}
	return fmt.Errorf("%.200q of check %.200q: %w", of.Source, of.Check, monitor.ErrNoSource)
}
