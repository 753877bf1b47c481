package sqlite

import (
	"context"
	"database/sql"
	"errors"

	"github.com/understudy-ha/understudy/monitor"
)

const (
	// recordBeat is what nearly every heartbeat needs: one row, found by its number and written. Its conditions leave
	// every case that needs more to readBeat and recordExact.
	recordBeat = `
UPDATE understudy_monitor_beat
SET recent = recent << (?2 / every_us - at_us / every_us) | 1, at_us = ?2, blind_us = ?3, path = ?4,
  sent_us = ?5, seq = ?6, code = ?7, beats = beats + ?8
WHERE id = ?1 AND watched = 0 AND failing = 0 AND run_us = 0 AND at_us BETWEEN 1 AND ?2
  AND (sent_us <> ?5 OR seq <> ?6 OR ?5 = 0)`

	readBeat = "SELECT at_us, blind_us, path, sent_us, seq, run_us, run_key, watched FROM understudy_monitor_beat WHERE id = ?1"

	// A heartbeat that counts from before the last one falls into the slot of the last.
	recordExact = `
UPDATE understudy_monitor_beat
SET recent = recent << (max(?2, at_us) / every_us - at_us / every_us) | 1, at_us = max(?2, at_us), blind_us = ?3, path = ?4,
  sent_us = ?5, seq = ?6, code = ?7, beats = beats + ?8, failing = ?9, run_us = iif(?10, 0, run_us)
WHERE id = ?1`

	readBase = "SELECT base_us FROM understudy_monitor_source WHERE id = ?1"

	recordStart = "UPDATE understudy_monitor_beat SET run_us = ?2, run_key = ?3, starts = starts + 1 WHERE id = ?1"
	recordFirst = "UPDATE understudy_monitor_source SET seen = 1 WHERE id = ?1 AND seen = 0"

	makeDue = "UPDATE understudy_monitor_source SET due_us = min(coalesce(due_us, ?2), ?2) WHERE id = ?1"
)

// RecordHeartbeats implements [monitor.HeartbeatStore].
func (m monitors) RecordHeartbeats(ctx context.Context, d monitor.HeartbeatBatch) (monitor.BatchResult, error) {
	var out monitor.BatchResult
	err := m.write(ctx, "recording heartbeats", func(t *monitorTxn) error {
		out = monitor.BatchResult{Generation: t.generation}
		paths, err := t.recordProbes(d.Probes)
		if err != nil {
			return err
		}
		batch := intake{monitorTxn: t, paths: paths, out: &out}
		for i := range d.Beats {
			if err := batch.record(&d.Beats[i]); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return monitor.BatchResult{}, err
	}
	return out, nil
}

// intake is one RecordHeartbeats under way.
type intake struct {
	*monitorTxn
	paths []*pathRow // of the batch's probes
	out   *monitor.BatchResult
}

func (t *intake) record(b *monitor.HeartbeatUpdate) error {
	at, sent, p := int64(b.CountsFrom(t.at, t.wallTime())), unixMicro(b.Sent), t.paths[b.Path]
	if b.Signal == monitor.SignalSuccess && at >= int64(p.BlindUntil) {
		n, err := t.exec(recordBeat, b.Source, at, p.BlindTotal.Microseconds(), p.id, sent, b.Seq, b.Code, max(1, b.Count))
		if err != nil || n > 0 {
			return err
		}
	}
	var last, blind, path, lastSent, lastSeq, run, key int64
	var watched bool
	err := t.one(readBeat, []any{b.Source}, &last, &blind, &path, &lastSent, &lastSeq, &run, &key, &watched)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		t.out.Unknown = append(t.out.Unknown, b.Source)
		return nil
	case err != nil:
		return err
	case sent != 0 && sent == lastSent && b.Seq == lastSeq:
		t.out.Replayed += max(1, b.Count)
		return nil
	}
	if b.Signal == monitor.SignalStart {
		_, err = t.exec(recordStart, b.Source, t.at, b.Run)
	} else {
		if last == 0 && b.BySender {
			var base int64
			if err := t.one(readBase, []any{b.Source}, &base); err != nil {
				return err
			}
			at = max(at, min(base, int64(t.at)))
		}
		by := p.BlindBy(monitor.StoreTime(max(at, last)), micros(blind), path == p.id)
		ends := b.Signal == monitor.SignalFail || b.Run == 0 || key == 0 || b.Run == key
		_, err = t.exec(recordExact, b.Source, at, by.Microseconds(), p.id, sent, b.Seq, b.Code, max(1, b.Count), b.Signal == monitor.SignalFail, ends)
		if err == nil && last == 0 {
			_, err = t.exec(recordFirst, b.Source)
		}
	}
	if err == nil && (watched || run != 0 || b.Signal != monitor.SignalSuccess) {
		_, err = t.exec(makeDue, b.Source, t.at)
	}
	return err
}
