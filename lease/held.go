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
	for {
		live, err := k.Session(ctx)
		if err != nil {
			leave()
			return nil, err
		}
		c := Contender{
			Store: k.cfg.Store, Roster: k.cfg.Roster, Hub: k.hub, Clock: k.cfg.Clock,
			Session: live.ID(), Instance: k.cfg.Instance, Timing: k.cfg.Timing,
			Leases: want.Leases, Every: want.Every, Jitter: k.cfg.Jitter, Logger: k.log,
		}
		l, err := c.Acquire(ctx)
		switch {
		case err == nil:
			return &Held{Lease: l, Live: live, keeper: k, leave: leave}, nil
		case errors.Is(err, ErrLapsed):
			// The keeper hears it too, and starts another session.
			select {
			case <-ctx.Done():
			case <-live.Done():
			}
		default:
			leave()
			return nil, err
		}
	}
}

// Release gives the lease back, kept for the successor for one T if one is
// named. It tries until the store has answered, or the session has lapsed and
// the lease with it, and returns nil when the lease is free of this process
// either way. ctx may already have ended; its values are kept.
func (h *Held) Release(ctx context.Context, successor, reason string) error {
	defer h.leave()
	timing, clock := h.keeper.cfg.Timing, h.keeper.cfg.Clock
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timing.Timeout)
	defer cancel()
	for pause := h.keeper.firstPause(); ; pause = min(2*pause, timing.Interval) {
		_, err := call(ctx, timing, func(ctx context.Context) (struct{}, error) {
			return struct{}{}, h.keeper.cfg.Store.Release(ctx, Handback{
				Lease: h.ID, Session: h.Session, Term: h.Term,
				Successor: successor, Reserve: timing.Timeout, Reason: CutReason(reason),
			})
		})
		// Not held: an earlier try whose answer was lost did it, or somebody took it.
		if err == nil || errors.Is(err, ErrNotHeld) {
			return nil
		}
		if permanent(err) || !sleep(ctx, clock, pause/2+h.keeper.cfg.Jitter(pause)) {
			return fmt.Errorf("releasing %s: %w; it is free %v after the last renewal", h.ID, err, timing.Timeout)
		}
	}
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
