package lease

import (
	"context"
	"time"
)

// Clock is a host's own time. It is used to bound trust and to be patient, never
// to judge another host.
type Clock interface {
	// Now is the time since an arbitrary fixed point. It never steps and continues
	// while the host is suspended.
	Now() time.Duration
	// Wall is the wall clock. It is read only to notice that it was stepped.
	Wall() time.Time
	// Timer delivers once on c after d. It may be late: the receiver must ask Now.
	Timer(d time.Duration) (c <-chan time.Time, stop func() bool)
}

// BootClock is the [Clock] of this host: CLOCK_BOOTTIME on Linux, and the
// monotonic clock of the Go runtime elsewhere.
func BootClock() Clock { return bootClock{} }

type bootClock struct{}

func (bootClock) Now() time.Duration { return sinceBoot() }
func (bootClock) Wall() time.Time    { return time.Now().Round(0) }
func (bootClock) Timer(d time.Duration) (<-chan time.Time, func() bool) {
	t := time.NewTimer(d)
	return t.C, t.Stop
}

// Sleep waits for d on the clock, or until ctx ends, and reports whether it waited to the
// end. It may be late.
func Sleep(ctx context.Context, clock Clock, d time.Duration) bool {
	c, stop := clock.Timer(d)
	defer stop()
	select {
	case <-ctx.Done():
		return false
	case <-c:
		return true
	}
}
