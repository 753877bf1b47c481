package lease

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// HeldLease is a lease that this process holds, under a session that a [Keeper]
// keeps. Active says how long it may still be trusted.
type HeldLease struct {
	Lease
	Active *ActiveSession

	keeper *Keeper
	store  Acquirer
	leave  func()
}

// Acquirer is what acquires and releases leases: a [Store], or one that does something else in the same transaction.
type Acquirer interface {
	Acquire(ctx context.Context, e Expectation) (Lease, error)
	Release(ctx context.Context, r ReleaseRequest) error
}

// AcquireRequest tells [Keeper.Acquire] what to wait for.
type AcquireRequest struct {
	// Leases, any one of which will do. At least one.
	Leases []ID
	// Every, when not 0, is the period in which the lease may be taken once:
	// see [Contender].
	Every time.Duration
	// Unless is called before each attempt to acquire; an error ends the wait with it. nil: never.
	Unless func(ctx context.Context) error
	// Shown, when not nil, gets each of the leases as replies show it. It must not block.
	Shown func(Lease)
	// Once: try the first lease, if it is free, and do not wait for it: [ErrHeld] if another holds it. No line is joined, and
	// Every, Unless and Shown are not used.
	Once bool
	// Through acquires and releases the lease. Default: the keeper's store. Its methods promise what the store's do.
	Through Acquirer
	// Margin of trust without which a lease is of no use: see [ActiveSession.Bind].
	Margin time.Duration
}

// Acquire waits until this instance holds one of the leases; [Keeper.Run] must be
// running. A process can wait for a lease only once at a time, and not while it
// holds one that it waited for together with that: a second call is [ErrInvalid].
// Acquire returns the cause of ctx when that ends first. Call [HeldLease.Release]
// when the work has stopped.
func (k *Keeper) Acquire(ctx context.Context, want AcquireRequest) (*HeldLease, error) {
	if len(want.Leases) == 0 {
		return nil, fmt.Errorf("%w: no lease named", ErrInvalid)
	}
	for _, id := range want.Leases {
		if err := id.Validate(); err != nil {
			return nil, err
		}
	}
	leave, err := k.startContending(slices.Clone(want.Leases))
	if err != nil {
		return nil, err
	}
	var through Acquirer = k.cfg.Store
	if want.Through != nil {
		through = want.Through
	}
	c := Contender{
		Store: k.cfg.Store, Through: through, Roster: k.cfg.Roster, Notifier: k.notifier, Clock: k.cfg.Clock,
		Instance: k.cfg.Instance, Timing: k.cfg.Timing,
		Leases: want.Leases, Places: len(want.Leases), Every: want.Every, Unless: k.awaitTrust(want), Shown: want.Shown, Jitter: k.cfg.Jitter, Logger: k.log,
	}
	for {
		live, err := k.trustedSession(ctx, want.Margin)
		if err != nil {
			leave()
			return nil, err
		}
		c.Session, c.SessionEnded = live.ID(), live.Done()
		attempt := c.Acquire
		if want.Once {
			attempt = c.acquireOnce
		}
		l, err := attempt(ctx)
		if !errors.Is(err, ErrLapsed) { // what a lapsed one holds is free, or the next attempt reads it first
			k.giveBackUnknown(ctx, &c, live)
		}
		switch {
		case err == nil && k.isFirstUse(l):
			return &HeldLease{Lease: l, Active: live, keeper: k, store: through, leave: leave}, nil
		case err == nil:
			// Held before: its release never arrived, or the store forgot it. One term
			// stands for one run of the work, so it is not used twice.
			if err := k.release(ctx, live, through, l, "", "held before"); isPermanent(err) {
				leave()
				return nil, err
			}
		case errors.Is(err, ErrLapsed):
			// Either the keeper learns it too and starts another session, or its next
			// renewal is accepted: the session looked lapsed only while the store's
			// clock was wrong. Both change the session or its trust.
			_, changed := live.Until()
			select {
			case <-ctx.Done():
			case <-live.Done():
			case <-changed:
			}
		default:
			leave()
			return nil, err
		}
	}
}

// awaitTrust waits, before an attempt to acquire, until there is trust for the work: acquired without, as just after an
// outage of the store, a term would be used up for nothing, and with [AcquireRequest.Every] a period.
func (k *Keeper) awaitTrust(want AcquireRequest) func(context.Context) error {
	return func(ctx context.Context) error {
		if _, err := k.trustedSession(ctx, want.Margin); err != nil || want.Unless == nil {
			return err
		}
		return want.Unless(ctx)
	}
}

// trustedSession waits for a session that may be believed in for longer than margin.
func (k *Keeper) trustedSession(ctx context.Context, margin time.Duration) (*ActiveSession, error) {
	for {
		live, err := k.Session(ctx)
		if err != nil {
			return nil, err
		}
		_, changed := live.Until()
		if live.Remaining() > margin {
			return live, nil
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-changed:
		}
	}
}

// Release gives the lease back, kept for the successor for one T if one is
// named. It returns nil when the lease is free of this process. It tries until the session ends, and no
// longer than two T: a session that is renewed after one T shows that the store answers again. After
// an error the session, if it still lives, keeps the lease until it ends, or until this process
// acquires the lease again. ctx may already have ended; its values are kept.
func (h *HeldLease) Release(ctx context.Context, successor, reason string) error {
	defer h.leave()
	return h.keeper.release(ctx, h.Active, h.store, h.Lease, successor, reason)
}

func (k *Keeper) release(ctx context.Context, live *ActiveSession, through Acquirer, l Lease, successor, reason string) error {
	err := k.retryWhileKept(ctx, live, func(ctx context.Context) error {
		err := through.Release(ctx, ReleaseRequest{
			Lease: l.ID, Session: l.Session, Term: l.Term,
			Successor: successor, Reserve: k.cfg.Timing.Timeout, Reason: TruncateReason(reason),
		})
		if errors.Is(err, ErrNotHeld) {
			return nil // an earlier attempt whose answer was lost released it, or another has acquired it
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("releasing %s: %w; it is free %v after the last renewal of its session", l.ID, err, k.cfg.Timing.Timeout)
	}
	return nil
}

// giveBackUnknown releases each lease whose acquisition had no answer, if the session holds it after all or still may: nobody
// would work under it, and it would be free for nobody else.
func (k *Keeper) giveBackUnknown(ctx context.Context, c *Contender, live *ActiveSession) {
	for _, s := range c.slots {
		if !s.unknown {
			continue
		}
		s.unknown = false
		if err := k.takeAndRelease(ctx, c, live, s); err != nil {
			k.log.Warn("it may be held by nobody's work until this session ends", "lease", s.id.String(), "err", err)
		}
	}
}

func (k *Keeper) takeAndRelease(ctx context.Context, c *Contender, live *ActiveSession, s *slot) error {
	defer live.Retain()()
	var held Lease
	err := k.retryWhileKept(ctx, live, func(ctx context.Context) (err error) {
		held, err = c.Store.Get(ctx, s.id)
		if err != nil || held.Session == c.Session || held.Seen() != s.sent.Seen || s.sent.Session != c.Session {
			return err
		}
		// The request may still be on its way to the store. Sent again, it cannot be applied later: it expects what is no more.
		held, err = c.through().Acquire(ctx, s.sent)
		if errors.Is(err, ErrLapsed) {
			return nil // nor is that one applied
		}
		return err
	})
	if err != nil || held.Session != c.Session || held.Ended {
		return err
	}
	return k.release(ctx, live, c.through(), held, "", "its acquisition had no answer")
}

// retryWhileKept calls the store until that answers or refuses for good, for as long as [HeldLease.Release] says.
func (k *Keeper) retryWhileKept(ctx context.Context, live *ActiveSession, call func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*k.cfg.Timing.Timeout)
	defer cancel()
	go func() {
		select {
		case <-live.Done():
			cancel()
		case <-ctx.Done():
		}
	}()
	for retry := k.retry(); ; {
		_, err := callStore(ctx, k.cfg.Timing, func(ctx context.Context) (struct{}, error) { return struct{}{}, call(ctx) })
		if err == nil || isPermanent(err) || !Sleep(ctx, k.cfg.Clock, retry.Next()) {
			return err
		}
	}
}

// isFirstUse reports whether this process holds the lease's term for the first time.
func (k *Keeper) isFirstUse(l Lease) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if l.Term <= k.usedTerms[l.ID] {
		return false
	}
	k.usedTerms[l.ID] = l.Term
	return true
}

// startContending keeps one process from contending twice for the same lease under one
// session: the store could not tell the two apart, and the second would take what the
// first holds for a lease whose release was lost, and release it. leave may be called
// more than once: by then another may contend.
func (k *Keeper) startContending(ids []ID) (leave func(), err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, id := range ids {
		if k.contending[id] {
			return nil, fmt.Errorf("%w: this instance already contends for %s", ErrInvalid, id)
		}
	}
	for _, id := range ids {
		k.contending[id] = true
	}
	return sync.OnceFunc(func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		for _, id := range ids {
			delete(k.contending, id)
		}
	}), nil
}
