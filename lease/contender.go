package lease

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// Contender waits for a lease, or for any one of several equal ones, on behalf
// of a session. It does not poll blindly: it learns from the store how long the
// holder has left, sleeps that long, and is woken earlier by the [Hub] when a
// lease is released.
type Contender struct {
	Store    Store
	Roster   Roster // told that the session waits for the first lease; nil: nobody is
	Hub      *Hub
	Clock    Clock
	Session  string          // for whom
	Over     <-chan struct{} // closed when that session is over; nil: never
	Instance Instance        // whose session that is
	Timing   Timing          // of that session
	Leases   []ID            // any one of which will do
	// Every, when not 0, lets a lease be taken only so long after its present
	// term began, by the store's clock: once per period, whoever takes it.
	Every  time.Duration
	Jitter func(time.Duration) time.Duration
	Logger *slog.Logger

	slots []*slot
}

// slot is what a contender knows of one lease.
type slot struct {
	id       ID
	patience Patience
	last     Lease
	due      time.Duration // when to do something next
	read     bool          // … and that is to read, not to claim
	foreign  Seen          // the session of another boot, when last seen
}

// Acquire waits until one of the leases is taken. It returns [ErrLapsed] when
// the contender's own session is over, and the cause of ctx when that ends;
// after an unknown outcome it reads back before it believes either. Called again
// for the next session, it goes on with the patience that it had.
func (c *Contender) Acquire(ctx context.Context) (Lease, error) {
	sub := c.Hub.Subscribe(c.Leases...)
	defer sub.Close()
	joined := false
	defer func() {
		if joined {
			c.leave(ctx)
		}
	}()
	c.begin()
	pause := c.Timing.Interval / 8
	for {
		s := c.slots[0]
		for _, other := range c.slots[1:] {
			if other.due < s.due {
				s = other
			}
		}
		timer, stop := c.Clock.Timer(s.due - c.Clock.Now())
		select {
		case <-ctx.Done():
			stop()
			return Lease{}, context.Cause(ctx)
		case change := <-sub.C():
			stop()
			for _, s := range c.slots {
				c.note(s, change)
			}
			continue
		case <-c.Over:
			stop()
			return Lease{}, ErrLapsed
		case <-timer:
		}
		if !joined {
			joined = c.join(ctx)
		}
		l, err := c.step(ctx, s)
		switch {
		case err == nil && l.Session == c.Session && !l.Ended:
			joined = joined && l.ID != c.Leases[0] // taking it took us off the list
			return l, nil
		case err == nil:
			pause = c.Timing.Interval / 8
		case ctx.Err() != nil:
			return Lease{}, c.abandon(ctx, s, err)
		case errors.Is(err, ErrLapsed) || permanent(err):
			return Lease{}, err
		default:
			level := slog.LevelWarn
			if pause > c.Timing.Interval/8 {
				level = slog.LevelDebug // the first time was enough
			}
			c.Logger.Log(ctx, level, "contending; trying again", "lease", s.id.String(), "err", err)
			s.read = s.read || errors.Is(err, ErrUnknown)
			s.due = c.Clock.Now() + pause/2 + c.Jitter(pause)
			pause = min(2*pause, c.Timing.Interval)
		}
	}
}

func (c *Contender) begin() {
	if c.slots == nil {
		for _, id := range c.Leases {
			c.slots = append(c.slots, &slot{id: id})
		}
	}
	for _, s := range c.slots {
		s.read, s.due = true, c.Clock.Now()
	}
}

// step reads the slot's lease or claims it, and learns from what it is shown.
func (c *Contender) step(ctx context.Context, s *slot) (Lease, error) {
	l, err := call(ctx, c.Timing, func(ctx context.Context) (Lease, error) {
		if s.read {
			return c.Store.Get(ctx, s.id)
		}
		seen, waited := s.patience.Claim(c.Clock.Now())
		return c.Store.Acquire(ctx, Claim{Lease: s.id, Session: c.Session, Seen: seen, Waited: waited})
	})
	if err != nil && !errors.Is(err, ErrHeld) {
		return Lease{}, err
	}
	if l.Foreign && l.Session == s.foreign.Session && l.Seq != s.foreign.Seq {
		return Lease{}, fmt.Errorf("%w: session %s of another boot moved while it was watched", ErrTwoHosts, l.Session)
	}
	s.foreign = Seen{}
	if l.Foreign {
		s.foreign = l.Seen()
	}
	s.last, s.read = l, false
	reserved := l.Reserved > 0 && !c.Instance.Named(l.Successor)
	s.patience.Observe(l, c.Clock.Now(), reserved, c.Timing.Timeout)
	s.due = s.patience.Due()
	if l.Session != "" {
		// Contenders that count the same lapse come in one after the other.
		s.due += c.Jitter(c.spread(s))
	}
	if now := c.Clock.Now(); err != nil && s.due <= now {
		// Refused, and it seems that it can be had: not again without a pause.
		s.due = now + c.Timing.Interval/16 + c.Jitter(c.Timing.Interval/16)
	}
	if s.patience.Unsure() {
		c.lookAfter(s, c.Timing.Interval+c.Jitter(c.Timing.Interval/4))
	}
	if c.Every > 0 && l.Term > 0 {
		// The store's clock may be stepped while the period passes.
		s.due = max(s.due, c.Clock.Now()+min(c.Every, c.Every-l.termAge()))
		c.lookAfter(s, time.Minute)
	}
	return l, nil
}

// lookAfter reads the lease after the given time if no claim is due before.
func (c *Contender) lookAfter(s *slot, wait time.Duration) {
	if look := c.Clock.Now() + wait; s.due > look {
		s.read, s.due = true, look
	}
}

// join and leave tell the roster that the session waits. Nothing depends on it
// but what people see, so that a failure is tried again and otherwise harmless.
func (c *Contender) join(ctx context.Context) bool {
	if c.Roster == nil {
		return false
	}
	_, err := call(ctx, c.Timing, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, c.Roster.Join(ctx, c.Leases[0], c.Session)
	})
	return err == nil
}

func (c *Contender) leave(ctx context.Context) {
	_, err := call(context.WithoutCancel(ctx), c.Timing, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, c.Roster.Leave(ctx, c.Leases[0], c.Session)
	})
	if err != nil {
		c.Logger.Debug("leaving the waiting list; it ends with the session", "lease", c.Leases[0].String(), "err", err)
	}
}

// note takes in a wake-up.
func (c *Contender) note(s *slot, change Change) {
	now := c.Clock.Now()
	known, _ := s.patience.Claim(now)
	switch {
	case change == Change{}:
		s.read, s.due = true, min(s.due, now+c.Jitter(c.Timing.Interval/4))
	case change.Lease != s.id:
	case c.Every == 0 && change.Free && (change.Successor == "" || c.Instance.Named(change.Successor)):
		// The change says all that a claim must name; no need to read first.
		s.patience.Observe(Lease{ID: s.id, Term: change.Term}, now, false, c.Timing.Timeout)
		s.read, s.due = false, now
		if change.Successor == "" {
			s.due += c.Jitter(c.spread(s))
		}
	case change.Term > 0 && change.Term <= known.Term && known.Session == "" && !change.Free:
		// Overtaken by the release of that term.
	default:
		// Taken, reserved, or asked for: it cannot lapse within an interval.
		s.read, s.due = true, now+c.Jitter(c.Timing.Interval)
	}
}

// spread is the time over which as many contenders as wait for the lease try
// one after the other: a millisecond for each, so that the first comes at once
// however many there are, and the others learn that it is gone before they try.
func (c *Contender) spread(s *slot) time.Duration {
	return min(time.Duration(s.last.Waiting)*time.Millisecond, c.Timing.Interval/4)
}

// abandon clears up when ctx ended during a call whose outcome is unknown: a
// lease that was taken after all is given back.
func (c *Contender) abandon(ctx context.Context, s *slot, err error) error {
	if s.read || !errors.Is(err, ErrUnknown) {
		return context.Cause(ctx)
	}
	clean := context.WithoutCancel(ctx)
	l, err := call(clean, c.Timing, func(ctx context.Context) (Lease, error) { return c.Store.Get(ctx, s.id) })
	if err == nil && l.Session == c.Session && !l.Ended {
		_, err = call(clean, c.Timing, func(ctx context.Context) (struct{}, error) {
			return struct{}{}, c.Store.Release(ctx, Handback{Lease: s.id, Session: c.Session, Term: l.Term, Reason: "campaign stopped"})
		})
	}
	if err != nil {
		return errors.Join(context.Cause(ctx), err)
	}
	return context.Cause(ctx)
}
