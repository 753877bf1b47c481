package leasetest

import (
	"errors"
	"fmt"
	"sync"

	"github.com/understudy-ha/understudy/lease"
)

func testOneOfMany(b *bench) {
	const contenders = 12
	a := b.session("a")
	for round := range 3 {
		held := b.take(role("r"), a)
		b.release(held, "")
		seen := b.get(role("r")).Seen()
		var wg sync.WaitGroup
		var mu sync.Mutex
		var won []lease.Lease
		for i := range contenders {
			s := b.session(fmt.Sprintf("c%d", i))
			wg.Go(func() {
				l, err := b.Acquire(b.ctx, lease.Expectation{Lease: role("r"), Session: s.ID, Seen: seen})
				if err != nil && !errors.Is(err, lease.ErrHeld) {
					b.Errorf("Acquire: %v", err)
				}
				if err == nil {
					mu.Lock()
					won = append(won, l)
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		if len(won) != 1 {
			b.Fatalf("round %d: %d of %d contenders won", round, len(won), contenders)
		}
		b.release(won[0], "")
	}
}

func testPlaces(b *bench) {
	of := func(places int, s lease.Session) lease.Lease {
		b.Helper()
		l, err := b.Acquire(b.ctx, lease.Expectation{Lease: role("r"), Session: s.ID, Seen: b.get(role("r")).Seen(), Places: places})
		if err != nil || l.Places != places || b.get(role("r")).Places != places {
			b.Fatalf("acquired as one of %d, the lease is shown as one of %d, then of %d: %v", places, l.Places, b.get(role("r")).Places, err)
		}
		return l
	}
	a, c := b.session("a"), b.session("c")
	l := of(3, a)
	all, err := b.List(b.ctx, "role", "", 10)
	if err != nil || len(all) != 1 || all[0].Places != 3 {
		b.Errorf("listed as %+v, %v", all, err)
	}
	b.release(l, "")
	if l := b.get(role("r")); l.Places != 0 {
		b.Errorf("free, it is shown as one of %d", l.Places)
	}
	b.release(of(2, c), "")
	of(0, a)
	b.step(timing.Timeout)
	of(5, b.session("d"))
}
