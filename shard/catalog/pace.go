package catalog

import (
	"time"

	"github.com/understudy-ha/understudy/shard"
)

// How much of a store's time one reader may take.
const (
	restPerWork = 10 // it rests so many times as long as it reads, unless what it read would end
	workPerRest = 4  // and at least this part of what it took even then
)

// NextReading tells how long after a reading the next one starts, for whoever keeps what a store says fresh: at once
// after least when something changed, after most in any case. The reading took took, the reader would like one every
// interval, and what was read can be believed for life, counted from the start of the reading.
//
// It starts when half of that life has ended, so that it may take the other half: nothing ends before it was read again as long as
// no reading takes longer than two fifths of a life. The load is bounded: one reader reads once at a time, a
// tenth of the time or less unless what it read would end, and never more than four fifths of it.
func NextReading(interval, took, life time.Duration) (least, most time.Duration) {
	floor := max(took/workPerRest, interval/10)
	gentle, inTime := restPerWork*took, life/2-took
	least = max(floor, min(gentle, inTime))
	most = max(floor, min(max(interval, gentle), inTime))
	return least, most
}

// remainingLife is how long what is in the view can be believed: until the lease that it shows ends, or an agent counts as
// silent, unless they are heard of again. It is at most most.
func remainingLife(v shard.View, most time.Duration) time.Duration {
	if v.Lease.HasLiveHolder() {
		most = min(most, v.Lease.Remaining)
	}
	for _, r := range v.Nodes {
		if r.Live() {
			most = min(most, r.Timeout-r.Age)
		}
	}
	return most
}
