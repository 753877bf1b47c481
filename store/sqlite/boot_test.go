package sqlite_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/elect"
	"github.com/understudy-ha/understudy/internal/testkit/realserver"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/store/sqlite"
)

// reboot returns a store as it was before a reboot, and as it is after one.
func reboot(t *testing.T) (before, after *sqlite.Store) {
	path := filepath.Join(t.TempDir(), "store.db")
	fresh := &clock{Clock: lease.BootClock()}
	fresh.step(-fresh.Now()) // the clock of the new boot began a moment ago
	before = open(t, sqlite.Config{Path: path, BootID: "before"})
	after = open(t, sqlite.Config{Path: path, BootID: "after", Clock: fresh})
	return before, after
}

func TestASessionOfAnotherBoot(t *testing.T) {
	before, after := reboot(t)
	old := session(t, before, "old", patient)
	first := take(t, before, old, "r")
	me := session(t, after, "me", patient)

	l, err := acquire(t, after, me, "r", false)
	if !errors.Is(err, lease.ErrHeld) || !l.Foreign || l.Remaining > 0 || !l.Held() || l.Holder != old.Instance || l.Timing != patient {
		t.Fatalf("claim of a lease of another boot: %+v, %v; want ErrHeld, and the lease shown as foreign", l, err)
	}
	if living, err := after.Sessions(t.Context()); err != nil || len(living) != 1 || living[0].ID != me.ID {
		t.Errorf("Sessions = %+v, %v; want only that of this boot", living, err)
	}
	l, err = acquire(t, after, me, "r", true)
	if err != nil || l.Term <= first.Term || l.Foreign || l.Session != me.ID {
		t.Fatalf("claim after a whole T: %+v, %v", l, err)
	}
	if _, err := before.RenewSession(t.Context(), old.ID); !errors.Is(err, lease.ErrLapsed) {
		t.Errorf("RenewSession of what was taken over: %v, want ErrLapsed", err)
	}
}

// hasty is a clock whose timers are early: nothing in the test needs the time that they are for.
type hasty struct{ lease.Clock }

func (h hasty) Timer(time.Duration) (<-chan time.Time, func() bool) { return h.Clock.Timer(0) }

// A role whose holder died with the host is vacant for as long as that was silent, and a server forgets it in the end.
func TestARoleAfterAReboot(t *testing.T) {
	const down = 31 * 24 * time.Hour
	path := filepath.Join(t.TempDir(), "store.db")
	before := open(t, sqlite.Config{Path: path, BootID: "before"})
	after := open(t, sqlite.Config{Path: path, BootID: "after", Wall: func() time.Time { return time.Now().Add(down) }})
	held := take(t, before, session(t, before, "old", patient), "r")

	if _, err := elect.Resolve(t.Context(), before, "r"); err != nil {
		t.Fatalf("before the reboot: %v", err)
	}
	if p, err := elect.Resolve(t.Context(), after, "r"); !errors.Is(err, elect.ErrVacant) {
		t.Errorf("after the reboot the role resolves to %+v, %v; want ErrVacant", p, err)
	}
	if err := after.RequestRelease(t.Context(), held.ID, "", "me"); !errors.Is(err, lease.ErrNotHeld) {
		t.Errorf("RequestRelease of a holder that is dead: %v, want ErrNotHeld", err)
	}
	roles, err := elect.Roles(t.Context(), after)
	if err != nil || len(roles) != 1 || len(roles[0].Primary) != 0 || (roles[0].VacantFor-down).Abs() > 2*patient.Timeout {
		t.Errorf("Roles = %+v, %v; want one that is vacant for about %v", roles, err, down)
	}
	for _, step := range []struct {
		vacant time.Duration
		want   int
	}{{down + 2*patient.Timeout, 0}, {down - 2*patient.Timeout, 1}} {
		if n, err := elect.ForgetVacant(t.Context(), after, hasty{lease.BootClock()}, step.vacant, "age"); err != nil || n != step.want {
			t.Errorf("of the roles that are vacant for %v, %d were forgotten, %v; want %d", step.vacant, n, err, step.want)
		}
	}
}

func TestARenewalAfterAReboot(t *testing.T) {
	before, after := reboot(t)
	old := session(t, before, "old", patient)
	if _, err := after.RenewSession(t.Context(), old.ID); !errors.Is(err, lease.ErrLapsed) {
		t.Errorf("RenewSession in another boot: %v, want ErrLapsed", err)
	}
	if _, err := before.RenewSession(t.Context(), old.ID); !errors.Is(err, lease.ErrLapsed) {
		t.Errorf("RenewSession of what was refused once: %v, want ErrLapsed", err)
	}
}

func TestAReservationEndsWithTheBoot(t *testing.T) {
	before, after := reboot(t)
	l := take(t, before, session(t, before, "old", patient), "r")
	err := before.Release(t.Context(), lease.ReleaseRequest{Lease: l.ID, Session: l.Session, Term: l.Term, Successor: "gone", Reserve: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	take(t, after, session(t, after, "me", patient), "r")
}

func contender(s *sqlite.Store, me lease.Session) *lease.Contender {
	clock := lease.BootClock()
	return &lease.Contender{
		Store: s, Notifier: lease.NewNotifier(s, clock, nil), Clock: clock, Session: me.ID, Instance: me.Instance, Timing: quick,
		Leases: []lease.ID{{Space: "role", Key: "r"}}, Logger: slog.New(slog.DiscardHandler),
		Jitter: func(d time.Duration) time.Duration { return d / 2 },
	}
}

// keep renews a session until the returned function is called.
func keep(t *testing.T, s *sqlite.Store, n lease.Session) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for tick := time.NewTicker(quick.Interval); ctx.Err() == nil; {
			_, _ = s.RenewSession(ctx, n.ID)
			select {
			case <-ctx.Done():
				tick.Stop()
			case <-tick.C:
			}
		}
	}()
	return func() { cancel(); <-done }
}

// After a reboot the newcomer's own clock has to count the whole T.
func TestTakeoverAfterAReboot(t *testing.T) {
	before, after := reboot(t)
	timing := lease.Timing{Interval: time.Second, Timeout: 6 * time.Second}
	first := take(t, before, session(t, before, "old", timing), "r")
	me := session(t, after, "me", patient)
	began := time.Now()
	l, err := contender(after, me).Acquire(t.Context())
	took := time.Since(began)
	if err != nil || l.Term <= first.Term {
		t.Fatalf("Acquire after a reboot: %+v, %v", l, err)
	}
	if took < timing.Timeout || took > ample {
		t.Errorf("the takeover came after %v, want T = %v and little more", took, timing.Timeout)
	}
}

// Two kernels that share a file are noticed by whoever contends.
func TestTwoHosts(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for 12 s, which -short leaves out")
	}
	here, there := reboot(t)
	// Whoever contends looks again when this T has ended.
	theirs := session(t, there, "theirs", lease.Timing{Interval: time.Second, Timeout: 12 * time.Second})
	take(t, there, theirs, "r")
	mine := session(t, here, "mine", patient)
	defer keep(t, there, theirs)()
	l, err := contender(here, mine).Acquire(t.Context())
	if !errors.Is(err, lease.ErrTwoHosts) {
		t.Fatalf("Acquire of a lease that another kernel renews: %+v, %v; want ErrTwoHosts", l, err)
	}
	if l, err := there.Get(t.Context(), lease.ID{Space: "role", Key: "r"}); err != nil || l.Session != theirs.ID {
		t.Errorf("the other host lost its lease: %+v, %v", l, err)
	}
	realserver.Eventually(t, ample, "a warning", func() error {
		info, err := here.Inspect(t.Context())
		if err != nil || len(info.Warnings) == 0 {
			return fmt.Errorf("%+v, %v", info, err)
		}
		return nil
	})
}
