package dispatchtest

import (
	"time"

	"github.com/understudy-ha/understudy/dispatch"
)

// testDeadLetters: they are counted until they are retried or pruned, and never as done.
func testDeadLetters(b *bench) {
	counts := func(when string, depth, done, dead int64) {
		b.Helper()
		if o := b.queue(); o.Depth != depth || o.Done != done || o.DeadLetters != dead {
			b.Errorf("%s: depth %d, done %d, %d dead letters; want %d, %d, %d", when, o.Depth, o.Done, o.DeadLetters, depth, done, dead)
		}
	}
	s := b.session("a")
	b.add("k", "1", "2", "3")
	a := b.starts(s, "k")
	a = b.settles(s, result(a, dispatch.Invalid, dispatch.Next), claimOf(a)).Begun[0]
	a = b.settles(s, done(a), claimOf(a)).Begun[0]
	b.settles(s, result(a, dispatch.Failed, dispatch.Next))
	b.add("blocked", "4")
	b.settles(s, result(b.starts(s, "blocked"), dispatch.Failed, dispatch.Block))
	counts("after a result of each kind", 1, 1, 2)
	b.act(dispatch.Retry, "3")
	counts("after one was retried", 2, 1, 1)
	b.settles(s, done(b.starts(s, "k")))
	counts("after that was committed", 1, 2, 1)
	b.step(time.Hour)
	b.prunes(time.Minute, 10)
	counts("after all were pruned", 1, 2, 0)
}
