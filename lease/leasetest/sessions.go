package leasetest

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/understudy-ha/understudy/lease"
)

func testSession(b *bench) {
	s := b.session("a")
	if r := b.renew(s); r.Seq <= s.Seq {
		b.Errorf("Seq after a renewal is %d, was %d", r.Seq, s.Seq)
	}
	if _, err := b.StartSession(b.ctx, s); !errors.Is(err, lease.ErrLapsed) {
		b.Errorf("StartSession with a used id: %v, want ErrLapsed", err)
	}
	for range 2 {
		if err := b.EndSession(b.ctx, s.ID, "done"); err != nil {
			b.Errorf("EndSession: %v", err)
		}
	}
	if _, err := b.RenewSession(b.ctx, s.ID); !errors.Is(err, lease.ErrLapsed) {
		b.Errorf("RenewSession after the end: %v, want ErrLapsed", err)
	}
	if _, err := b.RenewSession(b.ctx, "never-was"); !errors.Is(err, lease.ErrLapsed) {
		b.Errorf("RenewSession of no session: %v, want ErrLapsed", err)
	}
	if err := b.EndSession(b.ctx, "never-was", ""); err != nil {
		b.Errorf("EndSession of no session: %v", err)
	}
}

func testSessionLapse(b *bench) {
	s := b.session("a")
	b.step(timing.Timeout - slack)
	b.renew(s)
	b.step(timing.Timeout - slack)
	b.renew(s) // the deadline moved with the first renewal
	b.step(timing.Timeout)
	if _, err := b.RenewSession(b.ctx, s.ID); !errors.Is(err, lease.ErrLapsed) {
		b.Fatalf("RenewSession at age T: %v, want ErrLapsed", err)
	}
	b.step(-time.Hour)
	if _, err := b.RenewSession(b.ctx, s.ID); !errors.Is(err, lease.ErrLapsed) {
		b.Errorf("a lapsed session was renewed after the clock stepped back: %v", err)
	}
}

func testWaiters(b *bench) {
	first, second, gone := b.session("first"), b.session("second"), b.session("gone")
	for i, s := range []lease.Session{first, second, first, gone} {
		l, err := b.Join(b.ctx, role("r"), s.ID)
		if want := []int{0, 1, 0, 2}[i]; err != nil || l.Waiting != want || l.ID != role("r") {
			b.Fatalf("Join of %s: %+v, %v; want %d before it", s.Instance.Name, l, err, want)
		}
	}
	if _, err := b.Join(b.ctx, role("a"), second.ID); err != nil {
		b.Fatalf("Join: %v", err)
	}
	check := func(when string, want ...string) {
		b.Helper()
		ws, err := b.Waiters(b.ctx, "role")
		if err != nil {
			b.Fatalf("Waiters: %v", err)
		}
		var got []string
		for _, w := range ws {
			got = append(got, w.Lease.Key+":"+w.Session.Instance.Name)
			if w.Session.Instance.Address == "" || w.Session.Timing != timing || w.Session.Remaining <= 0 {
				b.Errorf("%s: waiter is shown as %+v", when, w.Session)
			}
		}
		if !slices.Equal(got, want) {
			b.Errorf("%s: waiters are %q, want %q", when, got, want)
		}
	}
	check("after joining", "a:second", "r:first", "r:second", "r:gone")
	if got := b.get(role("r")).Waiting; got != 3 {
		b.Errorf("Waiting = %d before the lease was ever held, want 3", got)
	}
	if err := b.EndSession(b.ctx, gone.ID, "done"); err != nil {
		b.Fatal(err)
	}
	check("after an end", "a:second", "r:first", "r:second")
	b.take(role("r"), first)
	check("after taking", "a:second", "r:second")
	if l, err := b.Acquire(b.ctx, lease.Expectation{Lease: role("r"), Session: second.ID}); !errors.Is(err, lease.ErrHeld) || l.Waiting != 0 {
		b.Errorf("refused to the first in line: %+v, %v", l, err)
	}
	if got := b.get(role("r")).Waiting; got != 1 {
		b.Errorf("Waiting = %d, want 1", got)
	}
	for range 2 {
		if err := b.Leave(b.ctx, role("a"), second.ID); err != nil {
			b.Fatalf("Leave: %v", err)
		}
	}
	check("after leaving", "r:second")
	if _, err := b.Join(b.ctx, role("r"), gone.ID); !errors.Is(err, lease.ErrLapsed) {
		b.Errorf("Join for an ended session: %v, want ErrLapsed", err)
	}
	b.step(timing.Timeout)
	check("after the waiter lapsed")
	if got := b.get(role("r")).Waiting; got != 0 {
		b.Errorf("Waiting counts a lapsed session: %d", got)
	}
}

func testSessions(b *bench) {
	first := b.session("first")
	b.step(time.Second)
	second := b.session("second")
	third := b.session("third")
	if err := b.EndSession(b.ctx, third.ID, ""); err != nil {
		b.Fatal(err)
	}
	got, err := b.Sessions(b.ctx)
	if err != nil {
		b.Fatalf("Sessions: %v", err)
	}
	if len(got) != 2 || got[0].ID != first.ID || got[1].ID != second.ID {
		b.Fatalf("Sessions = %+v, want first and second", got)
	}
	if s := got[0]; s.Instance != first.Instance || s.Timing != timing || s.Seq != first.Seq ||
		!near(s.Remaining, timing.Timeout) || s.Ended || s.Started.IsZero() {
		b.Errorf("session is shown as %+v, was started as %+v", s, first)
	}
	b.step(timing.Timeout)
	if got, err := b.Sessions(b.ctx); err != nil || len(got) != 0 {
		b.Errorf("Sessions after T = %+v, %v; want none", got, err)
	}
}

func testContext(b *bench) {
	ctx, cancel := context.WithCancel(b.ctx)
	cancel()
	if b.Store != nil {
		info, err := b.Inspect(b.ctx)
		if err != nil {
			b.Fatal(err)
		}
		if info.Kind == "memory" {
			b.Skip("nothing in memory waits")
		}
	}
	s := b.session("a")
	if _, err := b.RenewSession(ctx, s.ID); err == nil {
		b.Error("RenewSession under an ended context reports success")
	} else if !errors.Is(err, lease.ErrUnavailable) && !errors.Is(err, lease.ErrUnknown) {
		b.Errorf("RenewSession under an ended context: %v, want ErrUnavailable or ErrUnknown", err)
	}
	b.renew(s) // the handle still works
}

func testAdmin(b *bench) {
	info, err := b.Inspect(b.ctx)
	if err != nil {
		b.Fatalf("Inspect: %v", err)
	}
	if info.Kind == "" || info.Location == "" || info.Server == "" || info.Schema != info.Wanted || info.Wanted < 1 || info.Now.IsZero() {
		b.Errorf("Inspect = %+v", info)
	}
	from, to, err := b.Migrate(b.ctx)
	if err != nil || from != to || to != info.Wanted {
		b.Errorf("Migrate of a store that is up to date = %d, %d, %v", from, to, err)
	}
}
