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
// long, and is woken earlier by the [Notifier] when a lease is released. Only the
// first in line see to it that the process is told at once.
type Contender struct {
	Store        Store
	Through      Acquirer // acquires and releases; nil: Store
	Roster       Roster   // records that the session waits; nil: none
	Notifier     *Notifier
	Clock        Clock
	Session      string          // that acquires
	SessionEnded <-chan struct{} // closed when that session has ended; nil: never
	Instance     Instance        // whose session that is
	Timing       Timing          // of that session
	Leases       []ID            // any one of which will do
	Places       int             // see [Expectation]
	// Every, when not 0, lets a lease be taken only so long after its present
	// term began, by the store's clock: once per period, on any instance.
	Every time.Duration
	// Unless is called before each attempt to acquire; an error ends the wait with it. nil: never.
	Unless func(ctx context.Context) error
	Shown  func(Lease) // gets each lease as a reply shows it; nil: nobody
	Jitter func(time.Duration) time.Duration
	Logger *slog.Logger

	slots []*slot
}

// firstInLine is how many of those who wait for a lease listen for its release. The others learn from their renewals
// and reads: a release that wakes a crowd is slow for all. More than one, because the first may hang.
const firstInLine = 3

// slot is what a contender knows of one lease.
type slot struct {
	id      ID
	policy  TakeoverPolicy
	ahead   int           // how many wait that came before, when last told
	joined  bool          // the session is on the lease's waiting list
	replied time.Duration // when the last reply that showed the lease arrived
	renewed bool          // renewals show the lease, so that there is no need to read it
	dueAt   time.Duration // when to do something next
	read    bool          // … and that is to read, not to acquire
	sent    Expectation   // of its last acquisition
	unknown bool          // … which had no answer, and no reply has shown it since
	foreign Seen          // the session of another boot, when last seen
}

// Acquire waits until one of the leases is taken. It returns [ErrLapsed] when
// the contender's own session has ended, and the cause of ctx when that ends;
// after an unknown outcome it reads back before it believes either. If it returns before it could,
// the session may hold a lease that nobody knows of: its caller asks again, or gives it back as
// [Keeper.Acquire] does. Called again for the next session, it keeps what its takeover policies have counted.
func (c *Contender) Acquire(ctx context.Context) (Lease, error) {
	sub := c.Notifier.SubscribeIfFew(c.Leases...)
	defer sub.Close()
	c.resetSlots()
	defer c.leave(ctx)
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
		case o := <-sub.shown:
			stop()
			if err := c.observe(o); err != nil {
				return Lease{}, err
			}
			sub.SetDemand(c.demand())
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
		l, err := c.readOrAcquire(ctx, s)
		switch {
		case err == nil && l.Session == c.Session && !l.Ended:
			s.joined = false // acquiring it took us off its list
			return l, nil
		case err == nil:
			retry.Reset()
			sub.SetDemand(c.demand())
		case ctx.Err() != nil:
			return Lease{}, context.Cause(ctx)
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

// acquireOnce acquires the first lease if it is free, without joining a line.
func (c *Contender) acquireOnce(ctx context.Context) (Lease, error) {
	id := c.Leases[0]
	l, err := callStore(ctx, c.Timing, func(ctx context.Context) (Lease, error) { return c.Store.Get(ctx, id) })
	switch {
	case err != nil || l.Session == c.Session && !l.Ended:
		return l, err
	case l.Session != "" || l.Reserved > 0 && !c.Instance.IsNamed(l.Successor):
		// Also of a session that the store has ended: its holder may not know it yet. See [TakeoverPolicy].
		return l, fmt.Errorf("%s: %w", id, ErrHeld)
	}
	sent := Expectation{Lease: id, Session: c.Session, Seen: l.Seen(), Places: c.Places}
	l, err = callStore(ctx, c.Timing, func(ctx context.Context) (Lease, error) { return c.through().Acquire(ctx, sent) })
	c.slots = []*slot{{id: id, sent: sent, unknown: errors.Is(err, ErrUnknown) && ctx.Err() != nil}}
	return l, err
}

func (c *Contender) through() Acquirer {
	if c.Through == nil {
		return c.Store
	}
	return c.Through
}

func (c *Contender) resetSlots() {
	if c.slots == nil {
		for _, id := range c.Leases {
			c.slots = append(c.slots, &slot{id: id})
		}
	}
	for _, s := range c.slots {
		s.read, s.dueAt, s.joined, s.renewed, s.ahead = true, c.Clock.Now(), false, false, 0
	}
}

// readOrAcquire reads the slot's lease or tries to acquire it, and updates the slot
// with the lease as the store returned it.
func (c *Contender) readOrAcquire(ctx context.Context, s *slot) (Lease, error) {
	l, err := callStore(ctx, c.Timing, func(ctx context.Context) (Lease, error) {
		switch {
		case s.read && c.Roster == nil:
			return c.Store.Get(ctx, s.id)
		case s.read:
			return c.Roster.Join(ctx, s.id, c.Session)
		}
		seen, waited := s.policy.Expectation(c.Clock.Now())
		s.sent = Expectation{Lease: s.id, Session: c.Session, Seen: seen, Waited: waited, Places: c.Places}
		return c.through().Acquire(ctx, s.sent)
	})
	if err != nil && !errors.Is(err, ErrHeld) {
		s.unknown = s.unknown || !s.read && errors.Is(err, ErrUnknown)
		return Lease{}, err
	}
	s.unknown, s.joined = false, s.joined || s.read && c.Roster != nil
	if err := c.see(s, l, c.Clock.Now()); err != nil {
		return Lease{}, err
	}
	if now := c.Clock.Now(); err != nil && s.dueAt <= now {
		// Refused, although the policy says that it is due (the session moved, or the
		// clocks disagree): no busy loop.
		s.dueAt = now + c.Timing.Interval/16 + c.Jitter(c.Timing.Interval/16)
	}
	return l, nil
}

// observe updates the slots with what a renewal showed.
func (c *Contender) observe(o observation) error {
	for _, l := range o.leases {
		for _, s := range c.slots {
			known, _ := s.policy.Expectation(o.received)
			switch {
			case s.id != l.ID || !s.joined || l.Session == c.Session:
				continue
			case o.received < s.replied || l.Session != "" && l.Term == known.Term && known.Session == "":
				continue // a reply or a wake-up that came since showed more
			}
			s.renewed = true
			if err := c.see(s, l, o.received); err != nil {
				return err
			}
			if l.Session == "" && l.Term != 0 && known != l.Seen() && s.ahead >= firstInLine && !c.Instance.IsNamed(l.Successor) {
				// The first in line were told of it. The rest, who may all renew at the same moment, come when the
				// next renewal shows it free, too.
				s.dueAt = o.received + c.Timing.Interval + c.Jitter(c.Timing.Interval/4)
			}
		}
	}
	return nil
}

// see updates the slot with the lease as a reply showed it.
func (c *Contender) see(s *slot, l Lease, received time.Duration) error {
	if l.Foreign && l.Session == s.foreign.Session && l.Seq != s.foreign.Seq {
		// A session of an earlier boot of this host cannot renew. If it does, another
		// kernel shares the file, and neither one's clock judges the other.
		return fmt.Errorf("%w: session %s of another boot moved while it was watched", ErrTwoHosts, l.Session)
	}
	if c.Shown != nil {
		c.Shown(l)
	}
	s.foreign = Seen{}
	if l.Foreign {
		s.foreign = l.Seen()
	}
	s.ahead, s.read, s.replied = l.Waiting, false, received
	reserved := l.Reserved > 0 && !c.Instance.IsNamed(l.Successor)
	s.policy.Observe(l, received, reserved, c.Timing.Timeout)
	// Contenders that count the same lapse, or see the same free lease, try one after the other.
	s.dueAt = s.policy.Due() + c.turn(s, l.Successor)
	if s.policy.IsUncertain() {
		c.rereadWithin(s, c.Timing.Interval+c.Jitter(c.Timing.Interval/4))
	}
	if c.Every > 0 && l.Term > 0 {
		// Due once per period by the store's clock, which may be stepped while the
		// period passes: read again every minute.
		s.dueAt = max(s.dueAt, c.Clock.Now()+min(c.Every, c.Every-l.TermAge()))
		c.rereadWithin(s, time.Minute)
	}
	return nil
}

// rereadWithin reads the lease after the given time if no attempt is due before.
func (c *Contender) rereadWithin(s *slot, wait time.Duration) {
	if look := c.Clock.Now() + wait; s.dueAt > look {
		s.read, s.dueAt = true, look
	}
}

// leave takes the session off the waiting lists. All of it has the time of one call: the work, or the end of the process,
// waits for it. What is left on a list ends with the session.
func (c *Contender) leave(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.Timing.CallTimeout())
	defer cancel()
	for _, s := range c.slots {
		if !s.joined {
			continue
		}
		if err := c.Roster.Leave(ctx, s.id, c.Session); err != nil {
			c.Logger.Debug("leaving the waiting lists; they end with the session", "lease", s.id.String(), "err", err)
			if ctx.Err() != nil {
				return
			}
		}
	}
}

// demand is what the contender asks of notifications: the first in line listen, and whoever cannot tell yet listens
// while few do. To the rest their renewals show the lease, and they leave the few places to holders, which would learn
// from theirs alone that they were asked to resign.
func (c *Contender) demand() Demand {
	d := NoWatch
	for _, s := range c.slots {
		switch {
		case s.ahead < firstInLine:
			return WatchAlways
		case !s.renewed:
			d = WatchIfFew
		}
	}
	return d
}

// applyChange reacts to a wake-up.
func (c *Contender) applyChange(s *slot, change Change) {
	now := c.Clock.Now()
	known, _ := s.policy.Expectation(now)
	switch {
	case change == Change{} && s.renewed:
		// The next renewal shows it.
	case change == Change{}:
		// Something changed somewhere. Spread the reads of many contenders.
		s.read, s.dueAt = true, min(s.dueAt, now+c.Jitter(c.Timing.Interval/4))
	case change.Lease != s.id:
	case c.Every == 0 && change.Free && (change.Successor == "" || c.Instance.IsNamed(change.Successor)):
		// The change says all that an expectation must name; no need to read first.
		s.policy.Observe(Lease{ID: s.id, Term: change.Term}, now, false, c.Timing.Timeout)
		s.read, s.dueAt = false, now+c.turn(s, change.Successor)
	case change.Term > 0 && change.Term <= known.Term && known.Session == "" && !change.Free:
		// An old notification: the release of that term is known already.
	default:
		// Acquired, reserved, or asked to be released: it cannot lapse within an
		// interval.
		s.read, s.dueAt = true, now+c.Jitter(c.Timing.Interval)
		if s.renewed {
			s.dueAt = now + c.Timing.Interval + c.Jitter(c.Timing.Interval/2) // a renewal comes before that and shows it
		}
	}
}

// turn is how long the contender lets those before it in line go first: they take the lease, or they hang. All have had
// their turn after a quarter of an interval. The successor that the last holder named waits for none.
func (c *Contender) turn(s *slot, successor string) time.Duration {
	step := min(25*time.Millisecond, c.Timing.Interval/32)
	switch {
	case c.Instance.IsNamed(successor):
		return 0
	case s.ahead < firstInLine:
		return time.Duration(s.ahead) * step
	default:
		return firstInLine*step + c.Jitter(c.Timing.Interval/8)
	}
}
