package lease

import "time"

// TakeoverPolicy is a contender's rule for when a lease can be acquired. It is
// pure: every time that it gets is a reading of the contender's own [Clock].
//
// A released lease can be acquired at once. A held one counts as lapsed only when
// the contender's own clock, too, has counted what the store said remained, with
// the holder's session unmoved. More than T counts as T, and a session that was
// first seen lapsed counts as T. So a store whose wall clock steps forward gives
// nothing away early, and one that steps back delays a takeover by at most one T,
// because after a whole T unmoved the store's clock is no longer asked
// ([Expectation].Waited).
//
// A step forward by less than T leaves some time remaining, only too little. The
// policy notices it by comparing how far the store's clock and the contender's
// went since the previous read, and adds the difference again. Without a previous
// read, or when that showed another session, which may have been renewed before
// it, T is counted. Two opposite steps between two reads at most 2·T apart go
// unnoticed.
//
// A session that the store has ended because it was past its deadline is treated
// like one that has lapsed: its holder may not know it yet.
type TakeoverPolicy struct {
	known     bool
	seen      Seen
	firstSeen time.Duration // when seen was first seen
	timeout   time.Duration // the T that is counted from firstSeen
	due       time.Duration

	observed   bool          // the store's clock was read …
	observedAt time.Duration // … at this reading of ours
	storeTime  time.Time     // … and showed this
	uncertain  bool          // no previous read can confirm the one that set due
}

// Observe records the lease as a reply showed it. received is the clock's reading
// after the reply arrived; reserved says that the lease is kept for another
// instance; fallback is the T to count when the lease does not say one.
func (p *TakeoverPolicy) Observe(l Lease, received time.Duration, reserved bool, fallback time.Duration) {
	moved := !p.known || p.seen != l.Seen()
	same := p.known && p.seen.Session == l.Session
	if moved {
		// Counting starts over at every renewal: only an unmoved session lapses.
		p.known, p.seen, p.firstSeen = true, l.Seen(), received
		p.timeout = l.Timing.Timeout
		if p.timeout == 0 {
			p.timeout = fallback
		}
	}
	left := l.Remaining
	gain, certain := p.clockGain(l, received)
	if moved {
		// A clock step is only ruled out against an earlier read of the same
		// session. Nothing remains to be wrong about when nothing remains.
		p.uncertain = !(certain && same) && l.Session != "" && !l.Foreign && left > 0
	}
	switch {
	case l.Session == "" && !reserved:
		p.due = received // released: no holder to wait for
		return
	case l.Session == "":
		left = l.Reserved
	}
	end := p.firstSeen + p.timeout
	switch {
	case received >= end:
		// A whole T unmoved on our own clock: the holder's trust has ended,
		// whatever the store's clock says.
		p.due = received
	case moved && (left <= 0 || l.Foreign || p.uncertain):
		// First seen lapsed, of another boot, or unconfirmed: the store's clock
		// proves nothing, so count the whole T.
		p.due = end
	case moved:
		// What remains, plus what the store's clock gained on ours: the step that
		// brought the deadline nearer brought no real time with it.
		p.due = min(end, received+left+gain)
	case left > 0 && !l.Foreign:
		// Unmoved, and the store now says more: believe the later of the two.
		p.due = min(end, max(p.due, received+left))
	}
}

// clockGain is how far the store's clock went ahead of the contender's since the
// previous read, never negative, and whether that can be told.
func (p *TakeoverPolicy) clockGain(l Lease, received time.Duration) (gain time.Duration, certain bool) {
	if l.Since.IsZero() {
		return 0, false // a wake-up, or a lease that was never held: it shows no clock
	}
	now := l.Since.Add(l.Age)
	if p.observed {
		gain = now.Sub(p.storeTime) - (received - p.observedAt)
		// Over more than 2·T the drift of two healthy clocks could hide a step:
		// Timing.RateTolerance counts on this bound.
		certain = received-p.observedAt <= 2*p.timeout
	}
	p.observed, p.observedAt, p.storeTime = true, received, now
	return max(0, gain), certain
}

// IsUncertain reports that a whole T is being counted only because no previous
// read can confirm this one. Another read soon, once the session has moved,
// shortens the wait.
func (p *TakeoverPolicy) IsUncertain() bool { return p.uncertain }

// Due is when the lease may be acquired, on the contender's clock.
func (p *TakeoverPolicy) Due() time.Duration { return p.due }

// Expectation returns what an [Expectation] at now must name: what was last seen,
// and whether a whole T has been counted since it was first seen.
func (p *TakeoverPolicy) Expectation(now time.Duration) (seen Seen, waited bool) {
	return p.seen, p.known && now >= p.firstSeen+p.timeout
}
