package lease

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// Contender waits for a lease, or for any one of several equal ones, on behalf of
// a session. It does not poll: it reads how long the holder has left, sleeps that
// long, and is woken earlier by the [Notifier] when a lease is released.
type Contender struct {
	Store        Store
	Roster       Roster // records that the session waits for the first lease; nil: none
	Notifier     *Notifier
	Clock        Clock
	Session      string          // that acquires
	SessionEnded <-chan struct{} // closed when that session has ended; nil: never
	Instance     Instance        // whose session that is
	Timing       Timing          // of that session
	Leases       []ID            // any one of which will do
	// Every, when not 0, lets a lease be taken only so long after its present
	// term began, by the store's clock: once per period, on any instance.
	Every time.Duration
	// Unless is called before each attempt to acquire; an error ends the wait with it. nil: never.
	Unless func(ctx context.Context) error
	Jitter func(time.Duration) time.Duration
	Logger *slog.Logger

	slots []*slot
}

// slot is what a contender knows of one lease.
type slot struct {
	id      ID
	policy  TakeoverPolicy
	last    Lease
	dueAt   time.Duration // when to do something next
	read    bool          // … and that is to read, not to acquire
	foreign Seen          // the session of another boot, when last seen
}

// Acquire waits until one of the leases is taken. It returns [ErrLapsed] when
// the contender's own session has ended, and the cause of ctx when that ends;
// after an unknown outcome it reads back before it believes either. Called again
// for the next session, it keeps what its takeover policies have counted.
func (c *Contender) Acquire(ctx context.Context) (Lease, error) {
	sub := c.Notifier.Subscribe(c.Leases...)
	defer sub.Close()
	joined := false
	defer func() {
		if joined {
			c.leave(ctx)
		}
	}()
	c.resetSlots()
	retry := retryWithin(c.Timing, c.Jitter)
	for {
		s := c.slots[0]
		for _, other := range c.slots[1:] {
			if other.dueAt < s.dueAt {
				s = other
			}
		}
		timer, stop := c.Clock.Timer(s.dueAt - c.Clock.Now())
		select {
		case <-ctx.Done():
			stop()
			return Lease{}, context.Cause(ctx)
		case change := <-sub.C():
			stop()
			for _, s := range c.slots {
				c.applyChange(s, change)
			}
			continue
		case <-c.SessionEnded:
			stop()
			return Lease{}, ErrLapsed
		case <-timer:
		}
		if c.Unless != nil && !s.read {
			if err := c.Unless(ctx); err != nil {
				return Lease{}, err
			}
		}
		if !joined {
			joined = c.join(ctx)
		}
		l, err := c.readOrAcquire(ctx, s)
		switch {
		case err == nil && l.Session == c.Session && !l.Ended:
			joined = joined && l.ID != c.Leases[0] // acquiring it took us off its list
			return l, nil
		case err == nil:
			retry.Reset()
		case ctx.Err() != nil:
			return Lease{}, c.undoUnknown(ctx, s, err)
		case errors.Is(err, ErrLapsed) || isPermanent(err):
			return Lease{}, err
		default:
			level := slog.LevelWarn
			if retry.Failures() > 0 {
				level = slog.LevelDebug // warn once per outage
			}
			c.Logger.Log(ctx, level, "contending; trying again", "lease", s.id.String(), "err", err)
			// Unknown: the acquisition may have been applied. Only a read tells; a
			// second Acquire under the old expectation would be refused by our own.
			s.read = s.read || errors.Is(err, ErrUnknown)
			s.dueAt = c.Clock.Now() + retry.Next()
		}
	}
}

func (c *Contender) resetSlots() {
	if c.slots == nil {
		for _, id := range c.Leases {
			c.slots = append(c.slots, &slot{id: id})
		}
	}
	for _, s := range c.slots {
		s.read, s.dueAt = true, c.Clock.Now()
	}
}

// readOrAcquire reads the slot's lease or tries to acquire it, and updates the slot
// with the lease as the store returned it.
func (c *Contender) readOrAcquire(ctx context.Context, s *slot) (Lease, error) {
	l, err := callStore(ctx, c.Timing, func(ctx context.Context) (Lease, error) {
		if s.read {
			return c.Store.Get(ctx, s.id)
		}
		seen, waited := s.policy.Expectation(c.Clock.Now())
		return c.Store.Acquire(ctx, Expectation{Lease: s.id, Session: c.Session, Seen: seen, Waited: waited})
	})
	if err != nil && !errors.Is(err, ErrHeld) {
		return Lease{}, err
	}
	if l.Foreign && l.Session == s.foreign.Session && l.Seq != s.foreign.Seq {
		// A session of an earlier boot of this host cannot renew. If it does, another
		// kernel shares the file, and neither one's clock judges the other.
		return Lease{}, fmt.Errorf("%w: session %s of another boot moved while it was watched", ErrTwoHosts, l.Session)
	}
	s.foreign = Seen{}
	if l.Foreign {
		s.foreign = l.Seen()
	}
	s.last, s.read = l, false
	reserved := l.Reserved > 0 && !c.Instance.IsNamed(l.Successor)
	s.policy.Observe(l, c.Clock.Now(), reserved, c.Timing.Timeout)
	s.dueAt = s.policy.Due()
	if l.Session != "" {
		// Contenders that count the same lapse try one after the other.
		s.dueAt += c.Jitter(c.spread(s))
	}
	if now := c.Clock.Now(); err != nil && s.dueAt <= now {
		// Refused, although the policy says that it is due (the session moved, or the
		// clocks disagree): no busy loop.
		s.dueAt = now + c.Timing.Interval/16 + c.Jitter(c.Timing.Interval/16)
	}
	if s.policy.IsUncertain() {
		c.rereadWithin(s, c.Timing.Interval+c.Jitter(c.Timing.Interval/4))
	}
	if c.Every > 0 && l.Term > 0 {
		// Due once per period by the store's clock, which may be stepped while the
		// period passes: read again every minute.
		s.dueAt = max(s.dueAt, c.Clock.Now()+min(c.Every, c.Every-l.termAge()))
		c.rereadWithin(s, time.Minute)
	}
	return l, nil
}

// rereadWithin reads the lease after the given time if no attempt is due before.
func (c *Contender) rereadWithin(s *slot, wait time.Duration) {
	if look := c.Clock.Now() + wait; s.dueAt > look {
		s.read, s.dueAt = true, look
	}
}

// join and leave put the session on the waiting list and take it off. Only what
// operators see depends on it, so a failure is retried and otherwise harmless.
func (c *Contender) join(ctx context.Context) bool {
	if c.Roster == nil {
		return false
	}
	_, err := callStore(ctx, c.Timing, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, c.Roster.Join(ctx, c.Leases[0], c.Session)
	})
	return err == nil
}

func (c *Contender) leave(ctx context.Context) {
	_, err := callStore(context.WithoutCancel(ctx), c.Timing, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, c.Roster.Leave(ctx, c.Leases[0], c.Session)
	})
	if err != nil {
		c.Logger.Debug("leaving the waiting list; it ends with the session", "lease", c.Leases[0].String(), "err", err)
	}
}

// applyChange reacts to a wake-up.
func (c *Contender) applyChange(s *slot, change Change) {
	now := c.Clock.Now()
	known, _ := s.policy.Expectation(now)
	switch {
	case change == Change{}:
		// Something changed somewhere. Spread the reads of many contenders.
		s.read, s.dueAt = true, min(s.dueAt, now+c.Jitter(c.Timing.Interval/4))
	case change.Lease != s.id:
	case c.Every == 0 && change.Free && (change.Successor == "" || c.Instance.IsNamed(change.Successor)):
		// The change says all that an expectation must name; no need to read first.
		s.policy.Observe(Lease{ID: s.id, Term: change.Term}, now, false, c.Timing.Timeout)
		s.read, s.dueAt = false, now
		if change.Successor == "" {
			s.dueAt += c.Jitter(c.spread(s))
		}
	case change.Term > 0 && change.Term <= known.Term && known.Session == "" && !change.Free:
		// An old notification: the release of that term is known already.
	default:
		// Acquired, reserved, or asked to be released: it cannot lapse within an
		// interval.
		s.read, s.dueAt = true, now+c.Jitter(c.Timing.Interval)
	}
}

// spread is the time over which the waiting contenders try one after the other:
// a millisecond for each, so that the first comes at once however many there are,
// and the others learn that the lease is taken before they try.
func (c *Contender) spread(s *slot) time.Duration {
	return min(time.Duration(s.last.Waiting)*time.Millisecond, c.Timing.Interval/4)
}

// undoUnknown cleans up when ctx ended during a call whose outcome is unknown: a
// lease that was acquired after all is released.
func (c *Contender) undoUnknown(ctx context.Context, s *slot, err error) error {
	if s.read || !errors.Is(err, ErrUnknown) {
		return context.Cause(ctx)
	}
	clean := context.WithoutCancel(ctx)
	l, err := callStore(clean, c.Timing, func(ctx context.Context) (Lease, error) { return c.Store.Get(ctx, s.id) })
	if err == nil && l.Session == c.Session && !l.Ended {
		_, err = callStore(clean, c.Timing, func(ctx context.Context) (struct{}, error) {
			return struct{}{}, c.Store.Release(ctx, ReleaseRequest{Lease: s.id, Session: c.Session, Term: l.Term, Reason: "campaign stopped"})
		})
	}
	if err != nil {
		return errors.Join(context.Cause(ctx), err)
	}
	return context.Cause(ctx)
}
