package monitor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/understudy-ha/understudy/internal/backoff"
	"github.com/understudy-ha/understudy/lease"
)

// mergeBeats makes the updates of a flush: one for each source. Heartbeats that cannot be in it, because their source is
// in it with another signal, wait in the source's chain.
func (fl *flusher) mergeBeats() {
	fl.items, fl.updates, fl.paths = fl.items[:0], fl.updates[:0], fl.paths[:0]
	clear(fl.index)
	for _, f := range fl.in.open() {
		if f.cfg.Synchronous {
			fl.paths = append(fl.paths, f)
		}
	}
	for _, c := range fl.empty {
		fl.pathIndex(c.path)
	}
	fl.placeWaiting()
	for _, it := range fl.gathered {
		// Behind those of its source that wait: a success must not overtake a failure.
		if fl.chains[it.id] != nil || !fl.merge(it, false) {
			if fl.chains[it.id] == nil {
				fl.order = append(fl.order, it.id)
			}
			fl.chains[it.id] = append(fl.chains[it.id], it)
		}
	}
	slices.SortFunc(fl.updates, func(a, b HeartbeatUpdate) int { return cmp.Compare(a.Source, b.Source) })
}

// placeWaiting places the first beats of each chain.
func (fl *flusher) placeWaiting() {
	waiting := fl.order[:0]
	for _, id := range fl.order {
		chain := fl.chains[id]
		for len(chain) > 0 && len(fl.updates) < fl.in.cfg.MaxBatch && fl.merge(chain[0], len(chain) > maxChain) {
			chain = chain[1:]
		}
		if len(chain) == 0 {
			delete(fl.chains, id)
			continue
		}
		fl.chains[id] = chain
		waiting = append(waiting, id)
	}
	fl.order = waiting
}

// merge puts a heartbeat into the flush if its source is not in it, or if the two make one update. force merges in any
// case.
func (fl *flusher) merge(it item, force bool) bool {
	b := it.beat()
	sent := plausibleTime(b.Sent)
	at, ok := fl.index[it.id]
	if !ok {
		fl.index[it.id] = len(fl.updates)
		fl.updates = append(fl.updates, HeartbeatUpdate{
			Source: it.id, Path: fl.pathIndex(it.c.path), Signal: b.Signal, Code: b.Code,
			Sent: sent, Seq: b.Seq, BySender: it.bySender, Run: b.Run, Count: 1,
		})
		fl.items = append(fl.items, it)
		return true
	}
	s := &fl.updates[at]
	// Only successes of one run merge: each signal changes the source. And the store tells a replay by Sent, so heartbeats
	// with and without it stay apart.
	if !force && (s.Signal != SignalSuccess || b.Signal != SignalSuccess || s.Run != b.Run || s.Sent.IsZero() != sent.IsZero()) {
		return false
	}
	s.Count++
	// The last to come decides what happened, the largest time what counts as a replay: they may differ when a sender's
	// heartbeats overtake each other.
	s.Path, s.Signal, s.Code, s.Run = fl.pathIndex(it.c.path), b.Signal, b.Code, b.Run
	if c := sent.Compare(s.Sent); c > 0 || c == 0 && b.Seq > s.Seq {
		s.Sent, s.Seq = sent, b.Seq
	}
	fl.items = append(fl.items, it)
	return true
}

// plausibleTime is the sender's time, or zero if it is nonsense that a store could not keep.
func plausibleTime(t time.Time) time.Time {
	if year := t.Year(); year < 1900 || year > 2900 {
		return time.Time{}
	}
	return t
}

// pathIndex is a path's place among the probes.
func (fl *flusher) pathIndex(f *IntakePath) int {
	i := slices.Index(fl.paths, f)
	if i < 0 {
		i = len(fl.paths)
		fl.paths = append(fl.paths, f)
	}
	return i
}

// storeFlush sends the flush, and answers.
func (fl *flusher) storeFlush(ctx context.Context) {
	var answer BatchResult
	var began time.Duration
	err := fl.retryWhileWanted(ctx, "storing beats", func(ctx context.Context) (err error) {
		if fl.tries > 0 {
			if err := fl.resolveAgain(ctx); err != nil {
				return err
			}
		}
		began = fl.clock.Now()
		answer, err = fl.in.cfg.Store.RecordHeartbeats(ctx, HeartbeatBatch{Probes: fl.makeProbes(began), Beats: fl.updates})
		return err
	})
	if err != nil {
		fl.failAll(fl.items, err)
		return
	}
	fl.probeAt = began + fl.in.cfg.ProbeInterval
	fl.ids.setGeneration(answer.Generation)
	fl.in.count(func(s *IntakeStats) {
		s.Flushes++
		s.Updates += int64(len(fl.updates))
		s.Replayed += int64(answer.Replayed)
		s.Latency += fl.clock.Now() - began
	})
	fl.ready = fl.ready[:0]
	if len(answer.Unknown) > 0 {
		fl.resolveUnknown(answer.Unknown)
	} else {
		fl.ready = append(fl.ready, fl.items...)
	}
	fl.answer(nil)
	for _, c := range fl.empty {
		var err error
		if fl.isStale(c, began) {
			err = fmt.Errorf("%w: the probe waited longer than %v and is no longer valid", lease.ErrUnavailable, staleAfter*fl.in.cfg.ProbeInterval)
		}
		c.done <- err
	}
}

// resolveAgain makes the flush again from names: the store that did not answer may have been restored or failed over,
// and its IDs may name other sources now.
func (fl *flusher) resolveAgain(ctx context.Context) error {
	fl.ids.reset()
	var waited []item
	for _, id := range fl.order {
		waited = append(waited, fl.chains[id]...)
	}
	fl.redo = append(waited, fl.redo...) // which came later
	clear(fl.chains)
	fl.order = fl.order[:0]
	fl.gathered = append(fl.gathered[:0], fl.items...)
	err := fl.resolve(ctx, func(ctx context.Context, _ string, f func(context.Context) error) error { return f(ctx) })
	if err == nil {
		fl.mergeBeats()
	}
	return err
}

// makeProbes makes the probes of the flush's paths. While heartbeats wait for longer than a probe's interval, none is
// made: an intake that lags behind may hold the heartbeat of a source that looks silent.
func (fl *flusher) makeProbes(now time.Duration) []Probe {
	came, waits := fl.in.queue.oldest()
	behind := waits && now-came > fl.in.cfg.ProbeInterval
	fl.probes = fl.probes[:0]
	for _, f := range fl.paths {
		asked := slices.ContainsFunc(fl.empty, func(c *call) bool { return c.path == f && !fl.isStale(c, now) })
		fl.probes = append(fl.probes, Probe{
			Path: f.cfg.Name, TrustFor: f.cfg.TrustFor, MaxGap: f.cfg.MaxGap, NameOnly: !asked && (behind || !f.cfg.Synchronous),
		})
	}
	return fl.probes
}

// isStale reports whether the probe of a call came too long ago to be true now, or its caller has left.
func (fl *flusher) isStale(c *call, now time.Duration) bool {
	return c.abandoned.Load() || now-c.arrivedAt > staleAfter*fl.in.cfg.ProbeInterval
}

// resolveUnknown resolves the names of sources again whose IDs the store no longer knows. Those that are unknown the
// second time are answered as unknown.
func (fl *flusher) resolveUnknown(unknown []int64) {
	gone := make(map[int64]bool, len(unknown))
	for _, id := range unknown {
		gone[id] = true
	}
	now := fl.clock.Now()
	var again []item
	requeue := func(it item) {
		fl.ids.drop(fl.ids.find(now, it.beat().Check, it.beat().Source).key)
		it.again = true
		again = append(again, it)
	}
	for _, it := range fl.items {
		switch {
		case !gone[it.id]:
			fl.ready = append(fl.ready, it)
		case it.again:
			it.outcome = Unknown
			fl.ready = append(fl.ready, it)
		default:
			requeue(it)
		}
	}
	fl.order = slices.DeleteFunc(fl.order, func(id int64) bool {
		if gone[id] {
			for _, it := range fl.chains[id] {
				requeue(it)
			}
			delete(fl.chains, id)
		}
		return gone[id]
	})
	fl.redo = append(again, fl.redo...) // which came later
}

// retryWhileWanted repeats a request until it succeeds, as long as a caller waits for it. A request whose outcome is
// unknown is repeated too: a heartbeat that is stored twice counts twice and came a moment later, which is harmless.
func (fl *flusher) retryWhileWanted(ctx context.Context, doing string, f func(context.Context) error) error {
	for doubt := false; ; {
		if ctx.Err() != nil {
			return fmt.Errorf("%w: the intake stops", outcomeError(doubt))
		}
		call, cancel := context.WithTimeout(ctx, storeTimeout)
		err := f(call)
		cancel()
		fl.in.health.Record(doing, err)
		if err == nil {
			if fl.tries > 0 {
				fl.log.Info(lease.StoreAnswers, "doing", doing, "after", fl.tries)
			}
			fl.tries = 0
			return nil
		}
		if fl.tries++; fl.tries == 1 {
			fl.log.Warn("store request failed; retrying while a caller waits", "doing", doing, "err", err)
		}
		fl.in.count(func(s *IntakeStats) { s.Failures++ })
		pause := backoff.Pause(fl.tries, 50*time.Millisecond, time.Second)
		fl.probeAt = fl.clock.Now() + pause
		doubt = doubt || !errors.Is(err, lease.ErrUnavailable)
		if errors.Is(err, lease.ErrInvalid) {
			return err
		}
		if fl.hasWaiters() {
			lease.Sleep(ctx, fl.clock, pause)
		}
		// Checked after the pause, not before: a caller that has left may have reported something newer to another
		// instance, and a process that was stopped for a while must not overwrite it.
		if !fl.hasWaiters() {
			return fmt.Errorf("%w: %w", outcomeError(doubt), err)
		}
	}
}

// outcomeError is the error of a request that was given up: unknown, once any attempt may have been applied.
func outcomeError(doubt bool) error {
	if doubt {
		return lease.ErrUnknown
	}
	return lease.ErrUnavailable
}

// hasWaiters reports whether a caller still waits for the flush.
func (fl *flusher) hasWaiters() bool {
	waits := func(it item) bool { return !it.c.abandoned.Load() }
	return slices.ContainsFunc(fl.items, waits) || slices.ContainsFunc(fl.gathered, waits) ||
		slices.ContainsFunc(fl.empty, func(c *call) bool { return !c.abandoned.Load() })
}
