package leasetest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/understudy-ha/understudy/lease"
)

func testFirstClaim(b *bench) {
	if l := b.get(role("r")); l.Term != 0 || !l.Free() || l.Held() || l.ID != role("r") {
		b.Errorf("a lease that was never held is shown as %+v", l)
	}
	a, c := b.session("a"), b.session("c")
	seen := b.get(role("r")).Seen()
	before := b.now()
	l, err := b.Acquire(b.ctx, lease.Expectation{Lease: role("r"), Session: a.ID, Seen: seen})
	if err != nil {
		b.Fatalf("first claim: %v", err)
	}
	if l.Term < before.UnixMilli() {
		b.Errorf("the first term is %d, below the store's clock %d", l.Term, before.UnixMilli())
	}
	got, err := b.Acquire(b.ctx, lease.Expectation{Lease: role("r"), Session: c.ID, Seen: seen})
	if !errors.Is(err, lease.ErrHeld) || got.Session != a.ID {
		b.Errorf("second claim with the same view: %+v, %v; want ErrHeld and the holder", got, err)
	}
}

func (b *bench) now() time.Time {
	b.Helper()
	info, err := b.Inspect(b.ctx)
	if err != nil {
		b.Fatalf("Inspect: %v", err)
	}
	return info.Now
}

func testHeldIsShown(b *bench) {
	a, c := b.session("a"), b.session("c")
	taken := b.take(role("r"), a)
	b.step(time.Minute)
	got, err := b.claim(role("r"), c, false)
	if !errors.Is(err, lease.ErrHeld) {
		b.Fatalf("claim of a held lease: %v, want ErrHeld", err)
	}
	if got.Term != taken.Term || got.Session != a.ID || got.Holder != a.Instance || got.Timing != timing ||
		got.Seq != a.Seq || got.Ended || !got.Held() || got.Free() || got.Since.IsZero() ||
		!near(got.Remaining, timing.Timeout-time.Minute) || !near(got.Age, time.Minute) {
		b.Errorf("a held lease is shown as %+v", got)
	}
	b.renew(a)
	after := b.get(role("r"))
	if after.Seq <= got.Seq || !near(after.Remaining, timing.Timeout) || after.Term != taken.Term {
		b.Errorf("after a renewal the lease is shown as %+v", after)
	}
	own, err := b.claim(role("r"), a, true)
	if err != nil || own.Term != taken.Term || own.Session != a.ID || own.Ended {
		b.Errorf("claim by the holder itself: %+v, %v; want the lease as it stands", own, err)
	}
}

func testTakeover(b *bench) {
	a, c := b.session("a"), b.session("c")
	before := b.take(role("r"), a)
	b.step(timing.Timeout - slack)
	b.renew(c)
	if _, err := b.claim(role("r"), c, false); !errors.Is(err, lease.ErrHeld) {
		b.Fatalf("claim before T: %v, want ErrHeld", err)
	}
	b.step(slack)
	if l := b.get(role("r")); l.Held() || l.Remaining > 0 || l.Holder != a.Instance {
		b.Errorf("a lapsed lease is shown as %+v", l)
	}
	after := b.take(role("r"), c)
	if after.Term <= before.Term || after.Holder != c.Instance {
		b.Errorf("after the takeover: %+v, before: %+v", after, before)
	}
}

func testSeen(b *bench) {
	a, c, d := b.session("a"), b.session("c"), b.session("d")
	b.take(role("r"), a)
	seen := b.get(role("r")).Seen()
	b.renew(a)
	b.step(timing.Timeout)
	c, d = b.session("c"), b.session("d")
	for name, wrong := range map[string]lease.Seen{
		"an older renewal": seen,
		"nothing":          {},
		"another term":     {Term: seen.Term + 1, Session: seen.Session, Seq: seen.Seq + 1},
		"another session":  {Term: seen.Term, Session: c.ID, Seq: seen.Seq + 1},
		"a vacancy":        {Term: seen.Term},
	} {
		for _, waited := range []bool{false, true} {
			_, err := b.Acquire(b.ctx, lease.Expectation{Lease: role("r"), Session: c.ID, Seen: wrong, Waited: waited})
			if !errors.Is(err, lease.ErrHeld) {
				b.Errorf("claim that saw %s (waited %t): %v, want ErrHeld", name, waited, err)
			}
		}
	}
	right := b.get(role("r")).Seen()
	if _, err := b.Acquire(b.ctx, lease.Expectation{Lease: role("r"), Session: d.ID, Seen: right}); err != nil {
		b.Fatalf("claim of a lapsed lease: %v", err)
	}
	if _, err := b.Acquire(b.ctx, lease.Expectation{Lease: role("r"), Session: c.ID, Seen: right}); !errors.Is(err, lease.ErrHeld) {
		b.Errorf("a second claim with the same view: %v, want ErrHeld", err)
	}
}

func testWaited(b *bench) {
	a := b.session("a")
	b.take(role("r"), a)
	b.step(-time.Hour) // now the session seems to have more than an hour left
	c := b.session("c")
	if _, err := b.claim(role("r"), c, false); !errors.Is(err, lease.ErrHeld) {
		b.Fatalf("claim while the store's clock says held: %v, want ErrHeld", err)
	}
	if _, err := b.claim(role("r"), c, true); err != nil {
		b.Fatalf("claim after a whole T unmoved: %v", err)
	}
	if _, err := b.RenewSession(b.ctx, a.ID); !errors.Is(err, lease.ErrLapsed) {
		b.Errorf("the old holder's session was renewed after the takeover: %v", err)
	}
}

func testOwnSession(b *bench) {
	a := b.session("a")
	b.step(timing.Timeout)
	if _, err := b.claim(role("r"), a, true); !errors.Is(err, lease.ErrLapsed) {
		b.Errorf("claim by a lapsed session: %v, want ErrLapsed", err)
	}
	ended := b.session("ended")
	if err := b.EndSession(b.ctx, ended.ID, ""); err != nil {
		b.Fatal(err)
	}
	if _, err := b.claim(role("r"), ended, false); !errors.Is(err, lease.ErrLapsed) {
		b.Errorf("claim by an ended session: %v, want ErrLapsed", err)
	}
	if l := b.get(role("r")); l.Term != 0 {
		b.Errorf("a refused claim left %+v", l)
	}
}

func testTakeoverEnds(b *bench) {
	a := b.session("a")
	b.take(role("one"), a)
	b.take(role("two"), a)
	b.step(timing.Timeout)
	c := b.session("c")
	b.take(role("one"), c)
	l := b.get(role("two"))
	if !l.Ended || !l.Free() || l.Session != a.ID {
		b.Errorf("the other lease of a session that was taken over is shown as %+v", l)
	}
	b.step(-time.Hour)
	c = b.session("c2")
	if _, err := b.claim(role("two"), c, false); err != nil {
		b.Errorf("claim of a lease whose session was ended: %v", err)
	}
}

func testIndependent(b *bench) {
	a, c := b.session("a"), b.session("c")
	b.take(role("x"), a)
	b.take(role("y"), c)
	b.take(lease.ID{Space: "shard", Key: "x"}, c)
	if got := b.get(role("x")).Session; got != a.ID {
		b.Errorf("taking others moved role/x to %s", got)
	}
}

func testTerm(b *bench) {
	last := int64(0)
	for _, step := range []time.Duration{0, time.Second, -2 * time.Hour, 0, 3 * time.Hour} {
		b.step(step)
		a := b.session("a")
		l := b.take(role("r"), a)
		if l.Term <= last {
			b.Fatalf("after a step of %v the term is %d, was %d", step, l.Term, last)
		}
		last = l.Term
		b.release(l, "")
		if free := b.get(role("r")); free.Term != last || !free.Free() {
			b.Fatalf("a released lease is shown as %+v, want term %d", free, last)
		}
	}
	if now := b.now().UnixMilli(); last < now-slack.Milliseconds() {
		b.Errorf("the term %d lags the store's clock %d", last, now)
	}
}

func testRelease(b *bench) {
	a, c := b.session("a"), b.session("c")
	l := b.take(role("r"), a)
	for name, h := range map[string]lease.ReleaseRequest{
		"another session": {Lease: l.ID, Session: c.ID, Term: l.Term},
		"another term":    {Lease: l.ID, Session: a.ID, Term: l.Term - 1},
		"no session":      {Lease: l.ID, Term: l.Term},
		"another lease":   {Lease: role("other"), Session: a.ID, Term: l.Term},
	} {
		if err := b.Release(b.ctx, h); !errors.Is(err, lease.ErrNotHeld) {
			b.Errorf("Release with %s: %v, want ErrNotHeld", name, err)
		}
	}
	b.release(l, "")
	err := b.Release(b.ctx, lease.ReleaseRequest{Lease: l.ID, Session: a.ID, Term: l.Term})
	if !errors.Is(err, lease.ErrNotHeld) {
		b.Errorf("second Release: %v, want ErrNotHeld", err)
	}
	b.renew(a) // the session continues
	b.take(role("r"), c)
}

func testSuccessor(b *bench) {
	a, c, heir := b.session("a"), b.session("c"), b.session("heir")
	b.release(b.take(role("r"), a), "heir")
	got, err := b.claim(role("r"), c, false)
	if !errors.Is(err, lease.ErrHeld) || got.Successor != "heir" || !near(got.Reserved, timing.Timeout) || !got.Free() {
		b.Fatalf("claim of a reserved lease: %+v, %v; want ErrHeld and the reservation", got, err)
	}
	l := b.take(role("r"), heir)
	if l.Successor != "" || l.Reserved != 0 {
		b.Errorf("the reservation outlives its use: %+v", l)
	}
	b.release(l, c.Instance.ID) // by id
	b.take(role("r"), c)

	b.release(b.get(role("r")), "nobody")
	if _, err := b.claim(role("r"), a, true); err != nil {
		b.Errorf("claim of a reserved lease after waiting: %v", err)
	}
	b.release(b.get(role("r")), "nobody")
	b.step(timing.Timeout)
	b.take(role("r"), b.session("anybody"))
}

func testEndSession(b *bench) {
	a, c := b.session("a"), b.session("c")
	for i := range 5 {
		b.take(role(fmt.Sprint("r", i)), a)
	}
	b.take(role("other"), c)
	if err := b.EndSession(b.ctx, a.ID, "stopped"); err != nil {
		b.Fatal(err)
	}
	for i := range 5 {
		if l := b.get(role(fmt.Sprint("r", i))); !l.Free() || l.Session != "" || l.Term == 0 {
			b.Errorf("after the end of its session a lease is shown as %+v", l)
		}
		b.take(role(fmt.Sprint("r", i)), c)
	}
	if l := b.get(role("other")); l.Session != c.ID {
		b.Errorf("the end of one session touched another's lease: %+v", l)
	}
	// A session that was refused is over, and still holds until it is ended.
	b.step(timing.Timeout)
	if _, err := b.RenewSession(b.ctx, c.ID); !errors.Is(err, lease.ErrLapsed) {
		b.Errorf("RenewSession after T: %v, want ErrLapsed", err)
	}
	for range 2 {
		if err := b.EndSession(b.ctx, c.ID, "lapsed"); err != nil {
			b.Fatal(err)
		}
		if l := b.get(role("other")); l.Session != "" {
			b.Errorf("after the end of a session that was refused, its lease is shown as %+v", l)
		}
	}
}

func testList(b *bench) {
	a := b.session("a")
	for _, key := range []string{"b", "a", "B", "é", "c"} {
		b.take(role(key), a)
	}
	b.take(lease.ID{Space: "shard", Key: "x"}, a)
	list := func(after string, limit int) (keys []string) {
		b.Helper()
		ls, err := b.List(b.ctx, "role", after, limit)
		if err != nil {
			b.Fatalf("List: %v", err)
		}
		for _, l := range ls {
			keys = append(keys, l.Key)
			if l.Session != a.ID || l.Holder != a.Instance || !l.Held() {
				b.Errorf("List shows %+v", l)
			}
		}
		return keys
	}
	if got := list("", 100); !slices.Equal(got, []string{"B", "a", "b", "c", "é"}) {
		b.Errorf("List = %q", got)
	}
	if got := list("a", 2); !slices.Equal(got, []string{"b", "c"}) {
		b.Errorf("List after a, 2 = %q", got)
	}
	for _, limit := range []int{0, -1} {
		if got := list("a", limit); !slices.Equal(got, []string{"b"}) {
			b.Errorf("List after a, %d = %q", limit, got)
		}
	}
	if got := list("é", 2); len(got) != 0 {
		b.Errorf("List after the last = %q", got)
	}
}

func testHostileText(b *bench) {
	for _, text := range []string{
		`'; DROP TABLE lease; --`, `"quoted" \ and 'single'`, `<script>alert(1)</script>`,
		"%s %d %%", "{}[]:*?", "$1 $$ ?", "日本語 ✓ 🙂", strings.Repeat("k", lease.MaxKey),
		"a:b/c{d}e|f", "NULL", "-1", "*",
	} {
		s := lease.Session{ID: lease.NewID(), Instance: lease.NewInstance(text, text), Timing: timing}
		if _, err := b.StartSession(b.ctx, s); err != nil {
			b.Fatalf("StartSession named %q: %v", text, err)
		}
		l := b.take(role(text), s)
		if l.Holder != s.Instance || l.Key != text {
			b.Errorf("%q came back as %+v", text, l)
		}
		if _, err := b.Join(b.ctx, role(text+"2"), s.ID); err != nil {
			b.Errorf("Join %q: %v", text, err)
		}
		if err := b.RequestRelease(b.ctx, role(text), text, text); err != nil {
			b.Errorf("Ask %q: %v", text, err)
		}
		if got := b.get(role(text)); !got.ReleaseRequested || got.RequestedSuccessor != text {
			b.Errorf("Ask for %q came back as %+v", text, got)
		}
		b.release(l, text)
		if got := b.get(role(text)); got.Successor != text {
			b.Errorf("successor %q came back as %q", text, got.Successor)
		}
	}
}

func testAsk(b *bench) {
	if err := b.RequestRelease(b.ctx, role("r"), "", "test"); !errors.Is(err, lease.ErrNotHeld) {
		b.Errorf("Ask for a lease that was never held: %v, want ErrNotHeld", err)
	}
	a, c := b.session("a"), b.session("c")
	l := b.take(role("r"), a)
	for _, successor := range []string{"", "c"} {
		if err := b.RequestRelease(b.ctx, role("r"), successor, "test"); err != nil {
			b.Fatalf("Ask: %v", err)
		}
		if got := b.get(role("r")); !got.ReleaseRequested || got.RequestedSuccessor != successor || got.Session != a.ID || got.Term != l.Term {
			b.Errorf("after Ask for %q: %+v", successor, got)
		}
	}
	b.release(l, "c")
	if got := b.get(role("r")); got.ReleaseRequested || got.RequestedSuccessor != "" {
		b.Errorf("a request outlives the release: %+v", got)
	}
	if err := b.RequestRelease(b.ctx, role("r"), "", "test"); !errors.Is(err, lease.ErrNotHeld) {
		b.Errorf("Ask for a free lease: %v, want ErrNotHeld", err)
	}
	if got := b.take(role("r"), c); got.ReleaseRequested {
		b.Errorf("a request outlives the takeover: %+v", got)
	}
	b.step(timing.Timeout)
	if err := b.RequestRelease(b.ctx, role("r"), "", "test"); !errors.Is(err, lease.ErrNotHeld) {
		b.Errorf("Ask for a lapsed lease: %v, want ErrNotHeld", err)
	}
}
