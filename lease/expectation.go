package lease

import "github.com/understudy-ha/understudy/history"

// Permits is the rule of [Store.Acquire]: whether me, whose session lives, may
// acquire a lease that is as l, and the reason for the history. It is not asked
// when me holds the lease already. Stores that decide in Go call it; stores that
// decide in the database say the same there.
func (c Expectation) Permits(l Lease, me Instance) (reason string, ok bool) {
	switch {
	case l.Term != c.Seen.Term || l.Session != c.Seen.Session:
		// Another was faster. The compare-and-set: of all contenders that saw the
		// same holder, one gets through.
		return "", false
	case l.Session == "" && me.IsNamed(l.Successor):
		// Reserved for me, or the reservation has run out: either way it is mine.
		return history.Successor, true
	case l.Session == "":
		// Reserved for another; a whole T of waiting overrides that, because the
		// successor may be dead.
		return history.Vacant, l.Reserved <= 0 || c.Waited
	case l.Seq != c.Seen.Seq:
		// Renewed since it was seen: the holder lives, however little remains.
		return "", false
	case l.Ended || c.Waited:
		// Ended needs no clock. Waited: the contender has counted a whole T on its
		// own clock, so the holder's trust has ended.
		return history.Lapsed, true
	default:
		// Of a session whose row is gone, or of another boot, the store's clock says
		// nothing: only Waited frees those.
		gone := l.Timing == Timing{}
		return history.Lapsed, !gone && !l.Foreign && l.Remaining <= 0
	}
}
