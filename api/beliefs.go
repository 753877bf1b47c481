package api

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/understudy-ha/understudy/lease"
)

// beliefs is what this server knows of leases that somebody asked for: a program
// that asks now and then, without waiting, is as patient as one that waits,
// because the server counts for it from one request to the next. The belief is
// about the holder, so that all who ask for a lease share it.
type beliefs struct {
	store lease.Store
	clock lease.Clock
	known *lru[lease.ID, *belief]
}

type belief struct {
	mu       sync.Mutex
	patience lease.Patience
	foreign  lease.Seen // the session of another boot, when last seen
}

func newBeliefs(store lease.Store, clock lease.Clock) *beliefs {
	return &beliefs{store: store, clock: clock, known: newLRU[lease.ID, *belief](maxKnown)}
}

// attempt takes the lease for the session if it can be had now, and otherwise
// returns a [heldError] that tells when it may be. Asking for what the session
// holds already succeeds.
func (b *beliefs) attempt(ctx context.Context, id lease.ID, n lease.Session) (lease.Lease, error) {
	known := b.known.getOrAdd(id, func() *belief { return &belief{} })
	var l lease.Lease
	var retry time.Duration
	// Read or claim; then, if that showed that it is free, claim; and once more
	// if it went to and fro meanwhile.
	for range 3 {
		var err error
		if seen, waited, due := known.claim(b.clock.Now()); due {
			l, err = b.store.Acquire(ctx, lease.Claim{Lease: id, Session: n.ID, Seen: seen, Waited: waited})
		} else {
			l, err = b.store.Get(ctx, id)
		}
		if err != nil && !errors.Is(err, lease.ErrHeld) {
			return lease.Lease{}, err
		}
		mine := l.Session == n.ID && !l.Ended
		switch {
		case mine && l.Held():
			return l, nil
		case mine:
			return lease.Lease{}, fmt.Errorf("%w: start another", lease.ErrLapsed)
		}
		if retry, err = known.observe(l, b.clock.Now(), n); err != nil {
			return lease.Lease{}, err
		}
		if retry > 0 {
			break
		}
	}
	return l, heldError{l, retry}
}

// claim is what to name in a claim, and whether the time for one has come. Of a
// lease that was never seen it names nothing: only one that was never held can
// be had so, and the refusal shows any other.
func (k *belief) claim(now time.Duration) (seen lease.Seen, waited, due bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	seen, waited = k.patience.Claim(now)
	return seen, waited, now >= k.patience.Due()
}

// observe takes in the lease as a reply showed it to the session n, and returns
// how long to wait.
func (k *belief) observe(l lease.Lease, received time.Duration, n lease.Session) (time.Duration, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if l.Foreign && l.Session == k.foreign.Session && l.Seq != k.foreign.Seq {
		return 0, fmt.Errorf("%w: a session of another boot moved while it was watched", lease.ErrTwoHosts)
	}
	k.foreign = lease.Seen{}
	if l.Foreign {
		k.foreign = l.Seen()
	}
	reserved := l.Reserved > 0 && !n.Instance.Named(l.Successor)
	k.patience.Observe(l, received, reserved, n.Timing.Timeout)
	retry := k.patience.Due() - received
	if k.patience.Unsure() {
		retry = min(retry, n.Timing.Interval) // another look soon may make it less
	}
	return retry, nil
}
