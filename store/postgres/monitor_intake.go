package postgres

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/monitor"
)

// resolvedRow is a source that was found, or its check if that has no such source.
type resolvedRow struct {
	i     int
	id    *int64
	by    bool
	every int64
	fresh bool
}

// resolve finds sources and adds those that it may. labels is nil to learn.
func (m *monitors) resolve(ctx context.Context, events, names, labels []string) (out []resolvedRow, err error) {
	sql := m.db.sql("SELECT i, id, sender_clock, every, coalesce(fresh, false) FROM {{rules}}.monitor_resolve($1, $2, $3, $4, $5)")
	err = m.db.atReadCommitted(ctx, func(ctx context.Context, r runner) error {
		found, err := r.Query(ctx, sql, withPatience(ctx, []any{m.floor.Load(), events, names, labels, lockPatience{}})...)
		if err != nil {
			return err
		}
		out, err = pgx.CollectRows(found, func(r pgx.CollectableRow) (k resolvedRow, err error) {
			err = r.Scan(&k.i, &k.id, &k.by, &k.every, &k.fresh)
			k.i--
			return k, err
		})
		return err
	})
	return out, err
}

// nameable tells that a text can be a name: only such are learned.
func nameable(s string) bool { return lease.ValidateText("name", s, 1, monitor.MaxName) == nil }

// ResolveSources implements [monitor.HeartbeatStore].
func (m *monitors) ResolveSources(ctx context.Context, refs []monitor.SourceRef) ([]monitor.ResolvedSource, error) {
	if len(refs) > monitor.MaxSources {
		return nil, fmt.Errorf("%w: %d sources to resolve at once; at most %d are allowed", lease.ErrInvalid, len(refs), monitor.MaxSources)
	}
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
	found, err := m.resolve(ctx, events, names, nil)
	if err != nil {
		return nil, fmt.Errorf("resolving %d sources: %w", len(refs), err)
	}
	for _, k := range found {
		r := &out[places[k.i]]
		r.SenderClock = k.by
		if k.id != nil {
			r.ID = *k.id
		}
	}
	return out, nil
}

const storeSQL = `SELECT unknown, replayed, generation, moment
	FROM {{rules}}.monitor_store($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)`

// RecordHeartbeats implements [monitor.HeartbeatStore].
func (m *monitors) RecordHeartbeats(ctx context.Context, d monitor.HeartbeatBatch) (out monitor.BatchResult, err error) {
	if len(d.Beats) > monitor.MaxBeats {
		return out, fmt.Errorf("%w: %d beats at once; at most %d are allowed", lease.ErrInvalid, len(d.Beats), monitor.MaxBeats)
	}
	for _, b := range d.Beats {
		if b.Path < 0 || b.Path >= len(d.Probes) {
			return out, fmt.Errorf("%w: a beat by path %d of %d", lease.ErrInvalid, b.Path, len(d.Probes))
		}
	}
	var moment int64
	err = m.db.rowReadCommitted(ctx, storeSQL, func(r pgx.Row) error { return r.Scan(&out.Unknown, &out.Replayed, &out.Generation, &moment) },
		append(probeArgs(d.Probes, m.floor.Load()), append(beatArgs(d.Beats), lockPatience{})...)...)
	if err != nil {
		return monitor.BatchResult{}, fmt.Errorf("storing %d beats: %w", len(d.Beats), err)
	}
	m.raiseFloor(monitor.StoreTime(moment))
	return out, nil
}

func probeArgs(proofs []monitor.Probe, floor int64) []any {
	n := len(proofs)
	paths, trusts, gaps, unproven := make([]string, n), make([]int64, n), make([]int64, n), make([]bool, n)
	for i, p := range proofs {
		paths[i], trusts[i], gaps[i], unproven[i] = p.Path, p.TrustFor.Microseconds(), p.MaxGap.Microseconds(), p.NameOnly
	}
	return []any{floor, paths, trusts, gaps, unproven}
}

// beatArgs takes updates apart into columns. The last three are nil if no update says more than that its source is alive.
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
		plain = plain && b.Signal == monitor.SignalSuccess && b.Code == 0 && !b.BySender
	}
	var signals, codes []int32
	var bySender []bool
	if !plain {
		signals, codes, bySender = make([]int32, n), make([]int32, n), make([]bool, n)
		for i := range beats {
			b := &beats[i]
			signals[i], codes[i], bySender[i] = int32(b.Signal), int32(b.Code), b.BySender
		}
	}
	return []any{ids, paths, sents, seqs, counts, signals, codes, bySender}
}
