package monitor

import (
	"cmp"
	"slices"
	"time"
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
