package lease

import "github.com/understudy-ha/understudy/history"

// Takes is the rule of [Store.Acquire] for a claim by me, whose session lives, on
// a lease that stands as l and is not me's already: whether it may be taken, and
// the reason for the history. Stores that decide in Go call it; those that decide
// in the database say the same there.
func (c Claim) Takes(l Lease, me Instance) (reason string, ok bool) {
	switch {
	case l.Term != c.Seen.Term || l.Session != c.Seen.Session:
		return "", false
	case l.Session == "" && me.Named(l.Successor):
		return history.Successor, true
	case l.Session == "":
		return history.Vacant, l.Reserved <= 0 || c.Waited
	case l.Seq != c.Seen.Seq:
		return "", false
	case l.Ended || c.Waited:
		return history.Lapsed, true
	default:
		// Of a session whose row is gone, or of another boot, the clock says nothing.
		gone := l.Timing == Timing{}
		return history.Lapsed, !gone && !l.Foreign && l.Remaining <= 0
	}
}
