package elect

import (
	"context"
	"time"

	"github.com/understudy-ha/understudy/lease"
)

// awaitCondition evaluates a condition against the store whenever one of the leases may
// have changed, and at least once per the given time, until it is true. A store that
// does not answer is asked again after an interval. It returns the cause of ctx when
// that ends first, and the error of a keeper that cannot continue.
func awaitCondition(ctx context.Context, k *lease.Keeper, ids []lease.ID, every time.Duration, question func(context.Context) (bool, error)) error {
	sub := k.Notifier().SubscribeIfFew(ids...)
	defer sub.Close()
	timing, clock := k.Timing(), k.Clock()
	for {
		call, cancel := context.WithTimeout(ctx, timing.CallTimeout())
		yes, err := question(call)
		cancel()
		if err == nil && yes {
			return nil
		}
		if stopped := k.Err(); stopped != nil {
			return stopped
		}
		wait := every
		if err != nil {
			wait = min(every, timing.Interval)
		}
		timer, stop := clock.Timer(wait)
		select {
		case <-ctx.Done():
			stop()
			return context.Cause(ctx)
		case change := <-sub.C():
			// The zero change comes with a renewal and is not about this lease: pause, so
			// that a busy store is not read at every renewal.
			if change == (lease.Change{}) && !lease.Sleep(ctx, clock, timing.Interval/10) {
				stop()
				return context.Cause(ctx)
			}
		case <-timer:
		}
		stop()
	}
}
