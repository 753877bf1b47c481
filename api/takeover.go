package api

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/understudy-ha/understudy/internal/lru"
	"github.com/understudy-ha/understudy/lease"
)

// takeovers holds, for each lease that sessions try to acquire over HTTP, how long its holder has been silent. A program
// that polls without waiting then takes over as early as one that waits, because the server counts between its requests.
// The count is about the holder, so that all candidates share it.
type takeovers struct {
	store   lease.Store
	quota   *quota // of leases that were never held
	clock   lease.Clock
	byLease *lru.Cache[lease.ID, *takeover]
}

type takeover struct {
	mu      sync.Mutex
	policy  lease.TakeoverPolicy
	foreign lease.Seen // the session of another boot, when last seen
}

func newTakeovers(store lease.Store, clock lease.Clock, quota *quota) *takeovers {
	return &takeovers{store: store, clock: clock, quota: quota, byLease: lru.New[lease.ID, *takeover](maxKnown)}
}

// acquire gives the lease to the session if it is free, and otherwise returns a [heldError] that says when to retry.
// Acquiring a lease that the session holds already succeeds.
func (b *takeovers) acquire(ctx context.Context, id lease.ID, n lease.Session) (lease.Lease, error) {
	known := b.byLease.GetOrAdd(id, func() *takeover { return &takeover{} })
	var l lease.Lease
	var retry time.Duration
	// Three rounds: read or acquire; acquire if that showed a free lease; once more if another session acquired and
	// released it in between. More would let one request race without end.
	for range 3 {
		var err, full error
		seen, waited, due := known.expectation(b.clock.Now())
		adds := seen == lease.Seen{}
		if adds {
			full = b.quota.check(ctx, id.Space)
		}
		if due && full == nil {
			l, err = b.store.Acquire(ctx, lease.Expectation{Lease: id, Session: n.ID, Seen: seen, Waited: waited})
		} else {
			l, err = b.store.Get(ctx, id)
		}
		switch {
		case err != nil && !errors.Is(err, lease.ErrHeld):
			return lease.Lease{}, err
		case full != nil && l.Term == 0:
			return lease.Lease{}, full
		case adds && err == nil && l.Session == n.ID:
			b.quota.add(id.Space)
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

// expectation returns what an acquisition may assume about the holder, and whether it is due. Of a lease that was never
// seen it assumes nothing: then only a lease that was never held can be acquired, and the refusal shows any other.
func (k *takeover) expectation(now time.Duration) (seen lease.Seen, waited, due bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	seen, waited = k.policy.Expectation(now)
	return seen, waited, now >= k.policy.Due()
}

// observe records the lease as a reply showed it to the session n, and returns how long to wait.
func (k *takeover) observe(l lease.Lease, received time.Duration, n lease.Session) (time.Duration, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	// A session of another boot cannot be renewed by anyone but a process of another host on the same file: two hosts
	// share a store that only one may use, and no timing protects that.
	if l.Foreign && l.Session == k.foreign.Session && l.Seq != k.foreign.Seq {
		return 0, fmt.Errorf("%w: a session of another boot moved while it was watched", lease.ErrTwoHosts)
	}
	k.foreign = lease.Seen{}
	if l.Foreign {
		k.foreign = l.Seen()
	}
	reserved := l.Reserved > 0 && !n.Instance.IsNamed(l.Successor)
	k.policy.Observe(l, received, reserved, n.Timing.Timeout)
	retry := k.policy.Due() - received
	if k.policy.IsUncertain() {
		retry = min(retry, n.Timing.Interval) // an observation soon may shorten it
	}
	return retry, nil
}
