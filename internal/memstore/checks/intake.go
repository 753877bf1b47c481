package checks

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/monitor"
)

// ResolveSources implements [monitor.HeartbeatStore].
func (r *Memory) ResolveSources(ctx context.Context, refs []monitor.SourceRef) ([]monitor.ResolvedSource, error) {
	out := make([]monitor.ResolvedSource, len(refs))
	err := r.atomically(ctx, func(s step) error {
		for i, ref := range refs {
			out[i] = s.resolve(ref)
		}
		return nil
	})
	return out, err
}

func (s step) resolve(ref monitor.SourceRef) monitor.ResolvedSource {
	e := s.configuredCheck(ref.Check)
	if e == nil {
		return monitor.ResolvedSource{}
	}
	out := monitor.ResolvedSource{SenderClock: e.SenderClock}
	n := s.names[ref]
	if n == nil && !e.Fixed && lease.ValidateText("source", ref.Source, 1, monitor.MaxName) == nil {
		if out.Full = !e.CanLearn(e.sources); !out.Full {
			n = s.addSource(e, ref.Source)
		}
	}
	if n != nil {
		out.ID = n.id
	}
	return out
}

// RecordHeartbeats implements [monitor.HeartbeatStore].
func (r *Memory) RecordHeartbeats(ctx context.Context, d monitor.HeartbeatBatch) (out monitor.BatchResult, err error) {
	err = r.atomically(ctx, func(s step) error {
		s.recordProbes(d.Probes)
		for _, b := range d.Beats {
			n := s.sources[b.Source]
			switch {
			case n == nil:
				out.Unknown = append(out.Unknown, b.Source)
			case !b.Sent.IsZero() && n.sent.Equal(b.Sent.Truncate(time.Microsecond)) && n.seq == b.Seq:
				out.Replayed += b.Count
			default:
				s.recordHeartbeat(n, b, s.paths[d.Probes[b.Path].Path])
			}
		}
		out.Generation = s.generation
		return nil
	})
	return out, err
}

// recordProbes records that intake paths work, and how long each was blind.
func (s step) recordProbes(probes []monitor.Probe) {
	for _, p := range probes {
		if !p.NameOnly && s.lastProbe != 0 && s.now.Sub(s.lastProbe) > p.MaxGap {
			// No path was seen for so long: the clock has skipped, or no instance was up.
			for _, other := range s.paths {
				other.skipped = true
			}
		}
	}
	for _, probe := range probes {
		p := s.paths[probe.Path]
		if p == nil {
			p = &path{PathStatus: monitor.PathStatus{Name: probe.Path}}
			s.paths[probe.Path] = p
		}
		if probe.NameOnly {
			continue
		}
		switch since := s.now.Sub(p.LastSeen); {
		case p.LastSeen == 0:
			p.BlindUntil = s.now
		case since > 0 && (since > probe.MaxGap || p.skipped):
			p.BlindTotal += since
			p.BlindUntil = s.now
		}
		p.LastSeen, p.TrustFor, p.MaxGap, p.skipped = s.now, probe.TrustFor, probe.MaxGap, false
		s.lastProbe = s.now
	}
}

// recordHeartbeat records a heartbeat or a signal of a source.
func (s step) recordHeartbeat(n *source, b monitor.HeartbeatUpdate, p *path) {
	if n.alarm != nil || n.state == monitor.Retired || n.runStarted != 0 || b.Signal != monitor.SignalSuccess {
		n.due = s.now
	}
	n.beatRev++
	if b.Signal == monitor.SignalStart {
		n.runStarted, n.run = s.now, b.Run
		return
	}
	if b.Signal != monitor.SignalSuccess || b.Run == 0 || n.run == 0 || b.Run == n.run {
		n.runStarted = 0
	}
	at := s.now
	if b.BySender && !b.Sent.IsZero() {
		earliest := n.lastBeat
		if earliest == 0 {
			earliest = n.expectedFrom
		}
		at = min(at, max(earliest, 1, at.Add(-s.wall.Sub(b.Sent))))
	}
	n.lastBeat, n.blind, n.path = at, p.BlindBy(at, n.blind, n.path == p), p
	n.failing, n.code = b.Signal == monitor.SignalFail, b.Code
	n.sent, n.seq = time.Time{}, b.Seq
	if !b.Sent.IsZero() {
		n.sent = b.Sent.Truncate(time.Microsecond)
	}
	n.beats += int64(max(1, b.Count))
	n.markSlot(n.check.slotOf(at))
}

// KeepReport implements [monitor.HeartbeatStore].
func (r *Memory) KeepReport(ctx context.Context, of monitor.SourceRef, kept monitor.Report) error {
	return r.atomically(ctx, func(s step) error {
		n := s.names[of]
		if n == nil || n.check.Removed {
			return fmt.Errorf("%s/%s: %w", of.Check, of.Source, monitor.ErrNoSource)
		}
		kept.At, kept.Body = s.wall, bytes.Clone(kept.Body)
		n.report = kept
		return nil
	})
}

// Report implements [monitor.HeartbeatStore].
func (r *Memory) Report(ctx context.Context, of monitor.SourceRef) (out monitor.Report, err error) {
	err = r.atomically(ctx, func(s step) error {
		n := s.names[of]
		if n == nil || n.check.Removed {
			return fmt.Errorf("%s/%s: %w", of.Check, of.Source, monitor.ErrNoSource)
		}
		out = n.report
		return nil
	})
	return out, err
}

// slotOf returns the number of the check's interval that contains m; 0 for a check with a schedule.
func (e *check) slotOf(m monitor.StoreTime) int64 {
	if e.Interval == 0 {
		return 0
	}
	return int64(m) / e.Interval.Microseconds()
}

// markSlot records a heartbeat in a slot.
func (b *beat) markSlot(slot int64) {
	if slot > b.slot {
		b.recent, b.slot = b.recent<<min(uint64(slot-b.slot), 64), slot
	}
	b.recent |= 1
}
