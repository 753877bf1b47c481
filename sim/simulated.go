package sim

import (
	"sync/atomic"
	"time"
)

// simulated is how much time all histories of this process have lived through, in nanoseconds.
var simulated atomic.Int64

// countSimulated counts the time of a bubble since it began.
func countSimulated(began time.Time) { simulated.Add(int64(time.Since(began))) }
