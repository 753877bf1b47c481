package lease

import "time"

// Patience is a contender's rule for believing that a lease can be taken. It is
// pure: every time it is told is a reading of the contender's own [Clock].
//
// A released lease can be had at once. A held one is believed to have lapsed only
// when the contender's clock, too, has counted what the store said remained,
// with the holder's session unmoved: more than T counts as T, and a session that
// was first seen lapsed counts as T. So a store whose wall clock is stepped
// forward gives nothing away early, and one that is stepped back delays a
// takeover by at most one T, because after a whole T unmoved the store's clock
// is not asked any more (Claim.Waited).
//
// A step forward by less than T leaves something remaining, only too little. It
// is noticed by comparing how far the store's clock and the contender's went
// since the look before, and added again. Without a look before, or when that
// showed another session, which may have been renewed before it, T is counted.
// Two opposite steps between two looks at most 2·T apart go unnoticed.
//
// A session that the store has ended because it was past its deadline is counted
// like one that has lapsed: its holder may not have heard of it yet.
type Patience struct {
	known bool
	seen  Seen
	first time.Duration // when seen was first seen
	whole time.Duration // the T that is counted from first
	due   time.Duration

	looked bool          // the store's clock was seen …
	at     time.Duration // … at this reading of ours
	store  time.Time     // … to show this
	unsure bool          // no look before could vouch for the one that set due
}

// Observe takes in the lease as a reply showed it. received is the clock's
// reading after the reply arrived; reserved tells that the lease is kept for
// somebody else; fallback is the T to count when the lease does not tell one.
func (p *Patience) Observe(l Lease, received time.Duration, reserved bool, fallback time.Duration) {
	moved := !p.known || p.seen != l.Seen()
	same := p.known && p.seen.Session == l.Session
	if moved {
		p.known, p.seen, p.first = true, l.Seen(), received
		p.whole = l.Timing.Timeout
		if p.whole == 0 {
			p.whole = fallback
		}
	}
	left := l.Remaining
	ahead, certain := p.gained(l, received)
	if moved {
		p.unsure = !(certain && same) && l.Session != "" && !l.Foreign && left > 0
	}
	switch {
	case l.Session == "" && !reserved:
		p.due = received
		return
	case l.Session == "":
		left = l.Reserved
	}
	end := p.first + p.whole
	switch {
	case received >= end:
		p.due = received
	case moved && (left <= 0 || l.Foreign || p.unsure):
		p.due = end
	case moved:
		p.due = min(end, received+left+ahead)
	case left > 0 && !l.Foreign:
		p.due = min(end, max(p.due, received+left))
	}
}

// gained is how far the store's clock went ahead of the contender's since the
// look before, never negative, and whether that can be told.
func (p *Patience) gained(l Lease, received time.Duration) (ahead time.Duration, certain bool) {
	if l.Since.IsZero() {
		return 0, false // a wake-up, or a lease that was never held: no clock
	}
	store := l.Since.Add(l.Age)
	if p.looked {
		ahead = store.Sub(p.store) - (received - p.at)
		certain = received-p.at <= 2*p.whole
	}
	p.looked, p.at, p.store = true, received, store
	return max(0, ahead), certain
}

// Unsure tells that a whole T is being counted only because no look before could
// vouch for this one. Another look soon, once the session has moved, makes it less.
func (p *Patience) Unsure() bool { return p.unsure }

// Due is when the lease may be claimed, on the contender's clock.
func (p *Patience) Due() time.Duration { return p.due }

// Claim returns what to name in a [Claim] at now: what was last seen, and
// whether a whole T has been counted since it was first seen.
func (p *Patience) Claim(now time.Duration) (seen Seen, waited bool) {
	return p.seen, p.known && now >= p.first+p.whole
}
