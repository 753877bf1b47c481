package monitor

import (
	"math"
	"time"
)

// StoreTime is a time on the monitor's own clock, in microseconds, roughly since 1970. It follows
// the store's clock, except that it never goes back: when that clock is stepped back, it goes on from where it was.
type StoreTime int64

// Never is later than every other time.
const Never = StoreTime(1<<63 - 1)

// Add returns the time d later, at most [Never]. Never plus anything is Never.
func (t StoreTime) Add(d time.Duration) StoreTime {
	us := StoreTime(d.Microseconds())
	if t == Never || us > 0 && t > Never-us {
		return Never
	}
	return t + us
}

// Sub returns t − other, limited to what a Duration can hold (292 years).
func (t StoreTime) Sub(other StoreTime) time.Duration {
	const most = StoreTime(math.MaxInt64 / int64(time.Microsecond))
	return time.Duration(min(max(t-other, -most), most)) * time.Microsecond
}
