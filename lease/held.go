package lease

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Held is a lease that this process holds, under a session that a [Keeper]
// keeps. Whether it may still be believed in is for Live to say.
type Held struct {
	Lease
	Live *Live

	keeper *Keeper
	leave  func()
}

// Want tells [Keeper.Acquire] what to wait for.
type Want struct {
	// Leases, any one of which will do. At least one.
	Leases []ID
	// Every, when not 0, is the period in which the lease may be taken once:
	// see [Contender].
	Every time.Duration
	// Margin of trust without which a lease is of no use: see [Live.Bind].
	Margin time.Duration
}

// Acquire waits until this instance holds what it wants, with [Keeper.Run]
// running meanwhile. One process contends for the same first lease once at a
// time: a second call is [ErrInvalid]. It returns the cause of ctx when that
// ends first. The lease must be given back with [Held.Release].
func (k *Keeper) Acquire(ctx context.Context, want Want) (*Held, error) {
	if len(want.Leases) == 0 {
		return nil, fmt.Errorf("%w: no lease named", ErrInvalid)
	}
	for _, id := range want.Leases {
		if err := id.Validate(); err != nil {
			return nil, err
		}
	}
	leave, err := k.enter(want.Leases[0])
	if err != nil {
		return nil, err
	}
	c := Contender{
		Store: k.cfg.Store, Roster: k.cfg.Roster, Hub: k.hub, Clock: k.cfg.Clock,
		Instance: k.cfg.Instance, Timing: k.cfg.Timing,
		Leases: want.Leases, Every: want.Every, Jitter: k.cfg.Jitter, Logger: k.log,
	}
	for {
		live, err := k.trusted(ctx, want.Margin)
		if err != nil {
			leave()
			return nil, err
		}
		c.Session, c.Over = live.ID(), live.Done()
		l, err := c.Acquire(ctx)
		switch {
		case err == nil && k.first(l):
			return &Held{Lease: l, Live: live, keeper: k, leave: leave}, nil
		case err == nil:
			// Held before, and its release never arrived, or the store forgot it. A
			// term is used once.
			if err := k.giveBack(ctx, l, "", "held before"); permanent(err) {
				leave()
				return nil, err
			}
		case errors.Is(err, ErrLapsed):
			// The keeper hears it too, and starts another session; or its next
			// renewal is accepted, and the claim was refused by mistake.
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

// trusted waits for a session that may be believed in for longer than margin.
func (k *Keeper) trusted(ctx context.Context, margin time.Duration) (*Live, error) {
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
// named. It tries until the store has answered, or the session has lapsed and
// the lease with it, and returns nil when the lease is free of this process
// either way. ctx may already have ended; its values are kept.
func (h *Held) Release(ctx context.Context, successor, reason string) error {
	defer h.leave()
	return h.keeper.giveBack(ctx, h.Lease, successor, reason)
}

func (k *Keeper) giveBack(ctx context.Context, l Lease, successor, reason string) error {
	timing := k.cfg.Timing
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timing.Timeout)
	defer cancel()
	for pause := k.firstPause(); ; pause = min(2*pause, timing.Interval) {
		_, err := call(ctx, timing, func(ctx context.Context) (struct{}, error) {
			return struct{}{}, k.cfg.Store.Release(ctx, Handback{
				Lease: l.ID, Session: l.Session, Term: l.Term,
				Successor: successor, Reserve: timing.Timeout, Reason: CutReason(reason),
			})
		})
		// Not held: an earlier try whose answer was lost did it, or somebody took it.
		if err == nil || errors.Is(err, ErrNotHeld) {
			return nil
		}
		if permanent(err) || !Sleep(ctx, k.cfg.Clock, pause/2+k.cfg.Jitter(pause)) {
			return fmt.Errorf("releasing %s: %w; it is free %v after the last renewal", l.ID, err, timing.Timeout)
		}
	}
}

// first tells whether this process holds the lease's term for the first time.
func (k *Keeper) first(l Lease) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if l.Term <= k.used[l.ID] {
		return false
	}
	k.used[l.ID] = l.Term
	return true
}

// enter keeps one process from contending twice for the same lease under one
// session: the store could not tell the two apart.
func (k *Keeper) enter(id ID) (leave func(), err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.contends[id] {
		return nil, fmt.Errorf("%w: this instance already contends for %s", ErrInvalid, id)
	}
	k.contends[id] = true
	return func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		delete(k.contends, id)
	}, nil
}
