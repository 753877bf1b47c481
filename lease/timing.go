package lease

import (
	"fmt"
	"time"
)

// Timing is how a session is kept: renewed every Interval (I), live for Timeout
// (T) after each renewal.
type Timing struct {
	// Interval between two renewals. Default 1 s, or a fifth of the timeout where
	// that is less; at least 10 ms.
	Interval time.Duration
	// Timeout after which a session that was not renewed has lapsed, by the
	// store's clock. Default five intervals; more than two; at most 24 h.
	Timeout time.Duration
}

// Defaults and limits of a [Timing].
const (
	DefaultInterval = time.Second
	DefaultTimeout  = 5 * time.Second
	MinInterval     = 10 * time.Millisecond
	MaxTimeout      = 24 * time.Hour
)

// WithDefaults fills what is zero.
func (t Timing) WithDefaults() Timing {
	if t.Interval == 0 {
		t.Interval = DefaultInterval
		if t.Timeout != 0 {
			t.Interval = min(t.Interval, t.Timeout/5)
		}
	}
	if t.Timeout == 0 {
		t.Timeout = 5 * t.Interval
	}
	return t
}

// Validate refuses unsafe timings, with an error that wraps [ErrUnsafeTiming] and
// names a safe one.
//
// T > 2·I always: a renewal may be lost, and the next must still come in time.
// T ≥ 3·I + stopGrace for guarded work: work is asked to stop 2·I after the last
// accepted renewal, or later, so one failed renewal costs nothing if the next
// succeeds at once. A store that never answers uses up more: see
// [Timing.CallTimeout].
func (t Timing) Validate(stopGrace time.Duration) error {
	least := 2*t.Interval + time.Millisecond
	rule := "T > 2·I"
	if stopGrace > 0 {
		least = 3*t.Interval + stopGrace
		rule = fmt.Sprintf("T ≥ 3·I + stop grace (%v)", stopGrace)
	}
	switch {
	case stopGrace < 0:
		return fmt.Errorf("%w: a stop grace of %v is negative", ErrUnsafeTiming, stopGrace)
	case t.Interval < MinInterval:
		return fmt.Errorf("%w: an interval of %v is below %v", ErrUnsafeTiming, t.Interval, MinInterval)
	case t.Timeout > MaxTimeout:
		return fmt.Errorf("%w: a timeout of %v is above %v", ErrUnsafeTiming, t.Timeout, MaxTimeout)
	case t.Timeout < least:
		safe := Timing{Interval: t.Interval, Timeout: least}
		return fmt.Errorf("%w: interval I = %v and timeout T = %v break %s; with T = %v a takeover would take %v at worst",
			ErrUnsafeTiming, t.Interval, t.Timeout, rule, safe.Timeout, safe.WorstTakeover())
	}
	return nil
}

// WorstTakeover is the longest that a lease goes without a successor once its
// holder has died, while at least one contender and the store work: T + I.
func (t Timing) WorstTakeover() time.Duration { return t.Timeout + t.Interval }

// RateTolerance is how far, as a fraction, the rate of each host's clock may be
// off before trust could outlast the lease: the spare interval, shared among
// the holder's T, the contender's T, and the 2·T within which the contender
// tells a step of the store's clock from its own drift. It is 0.05 for the
// default timing; real clocks stay below 0.0005.
func (t Timing) RateTolerance() float64 {
	return float64(t.Interval) / float64(4*t.Timeout-t.Interval)
}

// CallTimeout is the deadline of one call to the store under this timing: long
// enough for a slow store, short enough that two attempts fit into T−I.
func (t Timing) CallTimeout() time.Duration {
	return max(t.Interval, (t.Timeout-t.Interval)/2)
}

// Trust is how long a holder may trust its session, on its own clock.
// The zero Trust is never valid.
type Trust struct {
	until time.Duration
}

// NewTrust returns the trust won by a renewal that was sent at the given
// reading of the holder's clock: until sent + T − I. It must be read before the
// request is sent: the store may have counted from any moment after.
func NewTrust(sent time.Duration, t Timing) Trust {
	return Trust{until: sent + t.Timeout - t.Interval}
}

// Until is the reading of the holder's clock at which trust ends.
func (t Trust) Until() time.Duration { return t.until }

// Remaining is what is left of it at now, never negative.
func (t Trust) Remaining(now time.Duration) time.Duration { return max(0, t.until-now) }
