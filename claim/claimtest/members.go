package claimtest

import (
	"context"
	"errors"
	"time"

	"github.com/understudy-ha/understudy/claim"
	"github.com/understudy-ha/understudy/history"
	"github.com/understudy-ha/understudy/lease"
)

func testJoin(b *bench) {
	a, c, stranger := b.session("a"), b.session("c"), b.session("stranger")
	b.offer(0, "1", "2", "3", "4", "5")
	if s := b.join(a, false); s != (claim.Share{Members: 1, Free: true}) {
		b.Errorf("alone: %+v", s)
	}
	b.take(a, 3)
	b.take(stranger, 1) // holds, and has not joined
	if s := b.join(c, false); s != (claim.Share{Members: 2, Held: 3, Free: true}) {
		b.Errorf("the second: %+v", s)
	}
	b.take(c, 1)
	if s := b.join(a, true); s != (claim.Share{Members: 2, Mine: 3, Held: 4, Least: 1}) {
		b.Errorf("again: %+v", s)
	}
	if s := b.join(stranger, false); s != (claim.Share{Members: 3, Mine: 1, Held: 5, Least: 1}) {
		b.Errorf("the third: %+v", s)
	}
}

func testDeadMembers(b *bench) {
	a, gone := b.session("a"), b.session("gone")
	b.offer(0, "x", "y")
	b.join(gone, false)
	b.take(gone, 2)
	b.join(a, false)
	b.step(timing.Timeout - slack)
	b.renew(a)
	b.step(2 * slack)
	if s := b.join(a, false); s != (claim.Share{Members: 1, Free: true}) {
		b.Errorf("with a lapsed member whose keys can be had: %+v", s)
	}
	ended := b.session("ended")
	b.join(ended, false)
	if err := b.Store.EndSession(b.ctx, ended.ID, "stopped"); err != nil {
		b.Fatal(err)
	}
	b.takes(a, "x", "y")
	if s := b.join(a, false); s != (claim.Share{Members: 1, Mine: 2, Held: 2, Least: 2}) {
		b.Errorf("with an ended member: %+v", s)
	}
}

func testFreeKeys(b *bench) {
	a, gone := b.session("a"), b.session("gone")
	free := func(when string, want bool) {
		b.Helper()
		if got := b.join(a, false).Free; got != want {
			b.Errorf("%s: Free is %t", when, got)
		}
	}
	free("no keys", false)
	b.offer(2*time.Minute, "x")
	free("ready in 2 min", false)
	b.offer(0, "x")
	free("ready", true)
	x := b.takes(gone, "x")[0]
	free("held", false)
	b.begins(gone, hold, x)
	b.step(timing.Timeout - slack)
	b.renew(a)
	b.step(2 * slack)
	free("lapsed, in a step", false)
	for passed := time.Duration(0); passed < hold; passed += timing.Timeout - slack {
		b.renew(a)
		b.step(timing.Timeout - slack)
	}
	b.renew(a)
	free("past the second window", true)
	x = b.takes(a, "x")[0]
	b.begins(a, hold, x)
	b.finish(a, claim.StepResult{Key: "x", Term: x.Term, Idle: true, Release: true})
	free("idle", false)
}

// watcher sees the changes of a store.
type watcher struct {
	b       *bench
	changes <-chan lease.Change
}

// watch starts to watch on a handle of its own.
func (b *bench) watch() *watcher {
	b.Helper()
	return &watcher{b: b, changes: Watch(b.T.Context(), b, b.h.Open(b.T))}
}

// fataler is the part of testing.TB that Watch needs.
type fataler interface {
	Helper()
	Cleanup(func())
	Fatalf(string, ...any)
	Skip(...any)
}

// Watch returns the changes that a store tells of from now on, until the test
// ends. It skips the test if the store is only polled.
func Watch(ctx context.Context, t fataler, s lease.Store) <-chan lease.Change {
	t.Helper()
	ctx, cancel := context.WithCancel(ctx)
	changes := make(chan lease.Change, 10_000)
	over := make(chan error, 1)
	go func() { over <- s.Watch(ctx, func(c lease.Change) { changes <- c }) }()
	ended := false
	t.Cleanup(func() {
		cancel()
		if !ended {
			<-over
		}
	})
	select {
	case <-changes:
	case err := <-over:
		ended = true
		if errors.Is(err, errors.ErrUnsupported) {
			t.Skip("this store is only polled")
		}
		t.Fatalf("Watch: %v", err)
	case <-time.After(2 * time.Minute):
		t.Fatalf("Watch is not ready")
	}
	return changes
}

// Woken counts the changes that wake a session in a space, up to those of what
// is done now: it takes a lease of its own and waits for the news of it.
func Woken(ctx context.Context, t fataler, s lease.Store, changes <-chan lease.Change, space, session string) (n int) {
	t.Helper()
	mark := lease.ID{Space: "mark", Key: lease.NewID()}
	who := lease.Session{ID: lease.NewID(), Instance: lease.NewInstance("mark", ""), Timing: timing}
	if _, err := s.StartSession(ctx, who); err != nil {
		t.Fatalf("StartSession: %v", err)
	}
	if _, err := s.Acquire(ctx, lease.Expectation{Lease: mark, Session: who.ID}); err != nil {
		t.Fatalf("Acquire: %v", err)
	}
	for deadline := time.After(2 * time.Minute); ; {
		select {
		case c := <-changes:
			switch {
			case c.Lease == mark:
				return n
			case c.Lease == claim.WakeID(space) && (c.Successor == "" || c.Successor == session):
				n++
			}
		case <-deadline:
			t.Fatalf("no news of a lease that was taken")
			return n
		}
	}
}

func (w *watcher) woken(s lease.Session) int {
	w.b.Helper()
	return Woken(w.b.ctx, w.b, w.b.Store, w.changes, space, s.ID)
}

func testWake(b *bench) {
	a, c := b.session("a"), b.session("c")
	w := b.watch()
	asleep := func() {
		b.Helper()
		if s := b.join(c, true); s.Free {
			b.Fatalf("asleep with keys that are free: %+v", s)
		}
	}
	check := func(what string, want int) {
		b.Helper()
		if got := w.woken(c); got != want {
			b.Errorf("%s: woken %d times, want %d", what, got, want)
		}
	}
	asleep()
	check("asleep", 0)
	b.offer(0, "x")
	check("an offer", 1)
	b.offer(0, "y")
	check("an offer to one that was woken", 0)
	got := b.takes(a, "x", "y")
	asleep()
	b.release(a, got[0])
	check("a release", 1)
	b.release(a, got[1])
	check("a release to one that was woken", 0)
}

// testWakeAmongDead: sleepers that died do not swallow the wake of one that lives.
func testWakeAmongDead(b *bench) {
	c := b.session("c")
	w := b.watch()
	b.join(c, true)
	var dead []lease.Session
	for range 4 {
		s := b.session("dead")
		b.join(s, true)
		dead = append(dead, s)
	}
	for _, s := range dead[:2] {
		if err := b.Store.EndSession(b.ctx, s.ID, "stopped"); err != nil {
			b.Fatal(err)
		}
	}
	b.step(timing.Timeout - slack)
	b.renew(c)
	b.step(2 * slack) // and the others lapse
	b.offer(0, "x")
	if got := w.woken(c); got != 1 {
		b.Errorf("among dead sleepers, the live one was woken %d times", got)
	}
}

func testNoWake(b *bench) {
	a, c := b.session("a"), b.session("c")
	w := b.watch()
	b.join(c, true)
	b.join(c, false) // awake again
	b.offer(0, "x")
	if got := w.woken(c); got != 0 {
		b.Errorf("nobody asleep: woken %d times", got)
	}
	x := b.takes(a, "x")[0]
	b.join(c, true)
	b.begins(a, hold, x)
	b.offer(time.Hour, "later")
	b.finish(a, claim.StepResult{Key: "x", Term: x.Term})
	b.renew(a)
	if got := w.woken(c); got != 0 {
		b.Errorf("no key became ready: woken %d times", got)
	}
}

func testEvents(b *bench) {
	a := b.session("a")
	b.offer(0, "busy", "x", "y")
	got := b.takes(a, "busy", "x", "y")
	b.begins(a, hold, got[0])
	b.release(a, got[1])
	c := b.session("c")
	x := b.takes(c, "x")[0]
	b.begins(c, hold, x)
	b.finish(c, claim.StepResult{Key: "x", Term: x.Term})
	if es := b.events(); len(es) != 0 {
		b.Errorf("free keys changed hands, and there are %d events: %+v", len(es), es)
	}
	b.step(hold + slack)
	d := b.session("d")
	terms := map[string]int64{}
	for _, n := range b.takes(d, "busy", "x", "y") {
		terms[n.Key] = n.Term
	}
	want := map[string]int64{a.Instance.Label(): max(terms["busy"], terms["y"]), c.Instance.Label(): terms["x"]}
	es := b.events()
	if len(es) != len(want) {
		b.Fatalf("two lapsed holders, and %d events: %+v", len(es), es)
	}
	for _, e := range es {
		if e.Term != want[e.From] || e.To != d.Instance.Label() || e.Reason != history.Lapsed || e.At.IsZero() {
			b.Errorf("event %+v; want terms %v, to %s", e, want, d.Instance.Label())
		}
	}
}

func (b *bench) events() []history.Event {
	b.Helper()
	es, err := b.Store.Read(b.ctx, history.Query{Part: "claim", Subject: space})
	if err != nil {
		b.Fatalf("Read: %v", err)
	}
	return es
}
