package elect

import (
	"context"
	"time"

	"github.com/understudy-ha/understudy/lease"
)

// await asks a question of the store whenever one of the leases may have
// changed, and at least once in the given time, until the answer is yes. A store
// that does not answer is asked again after an interval. It returns the cause of
// ctx when that ends first.
func await(ctx context.Context, k *lease.Keeper, ids []lease.ID, every time.Duration, question func(context.Context) (bool, error)) error {
	sub := k.Hub().Subscribe(ids...)
	defer sub.Close()
	timing, clock := k.Timing(), k.Clock()
	for {
		call, cancel := context.WithTimeout(ctx, timing.CallTimeout())
		yes, err := question(call)
		cancel()
		if err == nil && yes {
			return nil
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
			// The zero change comes with a renewal: it is not about this lease alone.
			if change == (lease.Change{}) && !lease.Sleep(ctx, clock, timing.Interval/10) {
				stop()
				return context.Cause(ctx)
			}
		case <-timer:
		}
		stop()
	}
}
