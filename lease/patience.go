package lease

import "time"

// Patience is a contender's rule for believing that a lease can be taken. It is
// pure: every time it is told is a reading of the contender's own [Clock].
//
// A free lease can be had at once. A held one is believed to have lapsed only
// when the contender's clock, too, has counted what the store said remained,
// with the holder's session unmoved: more than T counts as T, and a session that
// was first seen lapsed counts as T. So a store whose wall clock is stepped
// forward gives nothing away early, and one that is stepped back delays a
// takeover by at most one T, because after a whole T unmoved the store's clock
// is not asked any more (Claim.Waited).
type Patience struct {
	known bool
	seen  Seen
	first time.Duration // when seen was first seen
	whole time.Duration // the T that is counted from first
	due   time.Duration
}

// Observe takes in the lease as a reply showed it. received is the clock's
// reading after the reply arrived; reserved tells that the lease is kept for
// somebody else; fallback is the T to count when the lease does not tell one.
func (p *Patience) Observe(l Lease, received time.Duration, reserved bool, fallback time.Duration) {
	moved := !p.known || p.seen != l.Seen()
	if moved {
		p.known, p.seen, p.first = true, l.Seen(), received
		p.whole = l.Timing.Timeout
		if p.whole == 0 {
			p.whole = fallback
		}
	}
	left := l.Remaining
	switch {
	case l.Free() && !reserved:
		p.due = received
		return
	case l.Free():
		left = l.Reserved
	}
	end := p.first + p.whole
	switch {
	case received >= end:
		p.due = received
	case moved && (left <= 0 || l.Foreign):
		p.due = end
	case moved:
		p.due = min(end, received+left)
	case left > 0 && !l.Foreign:
		p.due = min(end, max(p.due, received+left))
	}
}

// Due is when the lease may be claimed, on the contender's clock.
func (p *Patience) Due() time.Duration { return p.due }

// Claim returns what to name in a [Claim] at now: what was last seen, and
// whether a whole T has been counted since it was first seen.
func (p *Patience) Claim(now time.Duration) (seen Seen, waited bool) {
	return p.seen, p.known && now >= p.first+p.whole
}
