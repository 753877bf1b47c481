package monitor

import (
	"slices"
	"time"
)

// PathStatus is what the store knows of an intake path: one way in which heartbeats reach the
// monitor. Instances that share a way in (a load balancer, a consumer group) share the path.
type PathStatus struct {
	Name string
	// LastSeen is the time of the last probe: whatever was sent before then by this path to the instance that probed has
	// arrived. A moment in which [ErrBusy] refused some of it, shorter than MaxGap, counts as lost on the way: their senders send again.
	// 0 if no probe was ever recorded.
	LastSeen StoreTime
	// TrustFor is how long after a probe the path counts as working.
	TrustFor time.Duration
	// MaxGap is the longest time allowed between two probes. A longer one was a blind period.
	MaxGap time.Duration
	// BlindTotal is the length of all blind periods so far, and BlindUntil the end of the last one, 0
	// if there was none. Before the first probe a path counts as blind, for an unknown time.
	BlindTotal time.Duration
	BlindUntil StoreTime
}

// SeenUntil is the time up to which the path is known to have worked.
func (p PathStatus) SeenUntil(now StoreTime) StoreTime {
	// More than MaxGap without a probe: the next probe will declare all of it a blind period. Trusting
	// any part of it now would raise alarms that the next probe shows to be false.
	if now > p.LastSeen.Add(max(p.MaxGap, p.TrustFor)) {
		return p.LastSeen
	}
	return min(now, p.LastSeen.Add(p.TrustFor))
}

// RecordProbe records that the path works now. It decides whether the time since the last probe was a
// blind period: skipped says that it was, whatever its length (see [SkippedTime]).
func (p *PathStatus) RecordProbe(now StoreTime, probe Probe, skipped bool) {
	since := now.Sub(p.LastSeen)
	switch {
	case p.LastSeen == 0:
		// Nothing is known of the time before the first probe: its length must not count, but what
		// was sent in it may have been lost.
		p.BlindUntil = now
	case skipped || since > probe.MaxGap:
		// The gap of the probe that comes decides, not that of the last one: an instance with a longer
		// poll than its predecessor must not turn its own rhythm into blindness.
		p.BlindTotal += since
		p.BlindUntil = now
	}
	p.LastSeen, p.TrustFor, p.MaxGap = now, probe.TrustFor, probe.MaxGap
}

// BlindBy is for how long the path was blind by the time from which a heartbeat counts that comes now, as far as the store
// knows: a sender's clock may put it before the end of the last blind period. last is what that was by the last heartbeat,
// if that came by this path. Too little is safe: the rule adds no more than the time from the heartbeat to BlindUntil.
func (p PathStatus) BlindBy(at StoreTime, last time.Duration, samePath bool) time.Duration {
	switch {
	case at >= p.BlindUntil:
		return p.BlindTotal
	case samePath:
		return last
	}
	return p.BlindTotal - min(p.BlindTotal, p.BlindUntil.Sub(at))
}

// SkippedTime reports whether no path can have worked since lastSeen, the last probe of any path (0:
// there was none). When nothing at all was probed for longer than the gap of a probe that comes now, either
// no instance was up or the store's clock jumped ahead, and that holds for every path, including those
// whose own gap is too long to notice it.
func SkippedTime(lastSeen, now StoreTime, probes []Probe) bool {
	return lastSeen != 0 && slices.ContainsFunc(probes, func(p Probe) bool {
		return !p.NameOnly && now.Sub(lastSeen) > p.MaxGap
	})
}
