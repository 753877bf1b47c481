package sqlite

import (
	"context"
	"database/sql"
	"errors"

	"github.com/understudy-ha/understudy/monitor"
)

const (
	// recordBeat is what nearly every beat is: one row found by its number, and
	// written. All that asks for more it leaves alone, for exact to find out.
	recordBeat = `
UPDATE understudy_monitor_beat
SET recent = recent << (?2 / every_us - at_us / every_us) | 1, at_us = ?2, blind_us = ?3, path = ?4,
  sent_us = ?5, seq = ?6, code = ?7, beats = beats + ?8
WHERE id = ?1 AND watched = 0 AND failing = 0 AND run_us = 0 AND at_us BETWEEN 1 AND ?2
  AND (sent_us <> ?5 OR seq <> ?6 OR ?5 = 0)`

	readBeat = "SELECT at_us, sent_us, seq, run_us, watched FROM understudy_monitor_beat WHERE id = ?1"

	// A beat that counts from before the last one is in the slot of that.
	recordExact = `
UPDATE understudy_monitor_beat
SET recent = recent << (max(?2, at_us) / every_us - at_us / every_us) | 1, at_us = max(?2, at_us), blind_us = ?3, path = ?4,
  sent_us = ?5, seq = ?6, code = ?7, beats = beats + ?8, failing = ?9, run_us = 0
WHERE id = ?1`

	recordStart = "UPDATE understudy_monitor_beat SET run_us = ?2, starts = starts + 1 WHERE id = ?1"
	recordFirst = "UPDATE understudy_monitor_source SET seen = 1 WHERE id = ?1 AND seen = 0"

	makeDue = "UPDATE understudy_monitor_source SET due_us = min(coalesce(due_us, ?2), ?2) WHERE id = ?1"
)

// Store implements [monitor.Intake].
func (m monitors) Store(ctx context.Context, d monitor.Delivery) (monitor.Stored, error) {
	if len(d.Beats) > monitor.MaxBeats {
		return monitor.Stored{}, invalid("%d beats at once; at most %d are allowed", len(d.Beats), monitor.MaxBeats)
	}
	for _, b := range d.Beats {
		if b.Path < 0 || b.Path >= len(d.Proofs) {
			return monitor.Stored{}, invalid("a beat came by path %d of %d", b.Path, len(d.Proofs))
		}
	}
	var out monitor.Stored
	err := m.write(ctx, "storing beats", func(l *ledger) error {
		out = monitor.Stored{Generation: l.generation}
		paths, err := l.prove(d.Proofs)
		if err != nil {
			return err
		}
		t := intake{ledger: l, paths: paths, out: &out}
		for i := range d.Beats {
			if err := t.take(&d.Beats[i]); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return monitor.Stored{}, err
	}
	return out, nil
}

// intake is one Store under way.
type intake struct {
	*ledger
	paths []*pathRow // of the delivery's proofs
	out   *monitor.Stored
}

// since is from when a beat counts: now, or the sender's time, if that has passed.
func (t *intake) since(b *monitor.Stamp) int64 {
	if !b.BySender || b.Sent.IsZero() {
		return t.at
	}
	return max(1, min(t.at, t.at-t.wallTime().Sub(b.Sent).Microseconds()))
}

func (t *intake) take(b *monitor.Stamp) error {
	at, sent, p := t.since(b), unixMicro(b.Sent), t.paths[b.Path]
	if b.Signal == monitor.Fine {
		n, err := t.exec(recordBeat, b.Source, at, p.Blind.Microseconds(), p.id, sent, b.Seq, b.Code, max(1, b.Count))
		if err != nil || n > 0 {
			return err
		}
	}
	var last, lastSent, lastSeq, run int64
	var watched bool
	err := t.row(readBeat, []any{b.Source}, &last, &lastSent, &lastSeq, &run, &watched)
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
	if b.Signal == monitor.Start {
		_, err = t.exec(recordStart, b.Source, t.at)
	} else {
		_, err = t.exec(recordExact, b.Source, at, p.Blind.Microseconds(), p.id, sent, b.Seq, b.Code, max(1, b.Count), b.Signal == monitor.Fail)
		if err == nil && last == 0 {
			_, err = t.exec(recordFirst, b.Source)
		}
	}
	if err == nil && (watched || run != 0 || b.Signal != monitor.Fine) {
		_, err = t.exec(makeDue, b.Source, t.at)
	}
	return err
}
