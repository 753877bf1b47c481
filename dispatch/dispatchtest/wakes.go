package dispatchtest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/understudy-ha/understudy/claim"
	"github.com/understudy-ha/understudy/claim/claimtest"
	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/lease"
)

func testWakeByAdd(b *bench) {
	c := b.session("sleeper")
	changes := claimtest.Watch(b.ctx, b, b.h.Open(b.T))
	check := func(what string, want int) {
		b.Helper()
		if got := claimtest.Woken(b.ctx, b, b.Store, changes, dispatch.Space(q), c.ID); got != want {
			b.Errorf("%s: woken %d times, want %d", what, got, want)
		}
	}
	b.join(c, true)
	b.add("k", "1", "2")
	check("a new key", 1)
	b.add("j", "3")
	check("a new key, for one that was woken", 0)
	b.drains(c)
	b.join(c, true)
	b.add("k", "4")
	check("an idle key", 1)
	a := b.starts(c, "k")
	b.join(c, true)
	b.add("k", "5")
	check("a key that is held", 0)
	r := result(a, dispatch.Delayed, dispatch.RetryLater)
	r.Wait = time.Hour
	b.settles(c, r)
	b.add("k", "6")
	check("a key that waits", 0)
}

// testWakeByResult: a key that is released for another attempt at once is anybody's.
func testWakeByResult(b *bench) {
	s, c := b.session("a"), b.session("sleeper")
	changes := claimtest.Watch(b.ctx, b, b.h.Open(b.T))
	b.add("k", "1")
	for i, wait := range []time.Duration{time.Minute, 0} {
		a := b.starts(s, "k")
		b.join(c, true)
		r := result(a, dispatch.Delayed, dispatch.RetryLater)
		r.Wait = wait
		b.settles(s, r)
		if got := claimtest.Woken(b.ctx, b, b.Store, changes, dispatch.Space(q), c.ID); got != i {
			b.Errorf("after a pause of %v: woken %d times, want %d", wait, got, i)
		}
		b.step(wait + time.Second)
	}
}

func testWakeByAct(b *bench) {
	s, c := b.session("a"), b.session("sleeper")
	changes := claimtest.Watch(b.ctx, b, b.h.Open(b.T))
	for i, sit := range situations() {
		if !strings.ContainsAny(sit.may, "ru") {
			continue
		}
		for _, a := range []dispatch.Action{sit.retry(), dispatch.Skip} {
			if a == dispatch.Skip && !strings.Contains(sit.may, "s") {
				continue
			}
			key := fmt.Sprintf("%d %s", i, a)
			id, _ := b.arrange(s, sit, key)
			switch {
			case sit.after == dispatch.Next: // it stepped aside, and the key goes on
				b.stands(b.settles(s, done(b.begins(s, b.held(key)))), key, dispatch.Released)
			case sit.state == dispatch.Cancelled:
				b.drains(s)
			}
			b.join(c, true)
			b.act(a, id)
			if got := claimtest.Woken(b.ctx, b, b.Store, changes, dispatch.Space(q), c.ID); got != 1 {
				b.Errorf("%s of one that is %s: woken %d times", a, sit.name, got)
			}
			b.drains(s)
		}
	}
}

// held is the claim on a key, whoever holds it.
func (b *bench) held(key string) claim.Claim {
	b.Helper()
	rows, err := b.Claims.List(b.ctx, claim.Query{Space: dispatch.Space(q)})
	if err != nil {
		b.Fatalf("List: %v", err)
	}
	i := slices.IndexFunc(rows, func(r claim.Row) bool { return r.Key == key && r.Session != "" })
	if i < 0 {
		b.Fatalf("%s is not held: %+v", key, rows)
	}
	return claim.Claim{Key: key, Term: rows[i].Term}
}

func (b *bench) join(s lease.Session, asleep bool) {
	b.Helper()
	if _, err := b.Claims.Join(b.ctx, claim.Member{Space: dispatch.Space(q), Session: s.ID, Asleep: asleep}); err != nil {
		b.Fatalf("Join: %v", err)
	}
}
