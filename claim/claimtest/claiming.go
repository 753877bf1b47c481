package claimtest

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/understudy-ha/understudy/claim"
	"github.com/understudy-ha/understudy/lease"
)

func testOldestFirst(b *bench) {
	a := b.session("a")
	b.offer(3*time.Minute, "third")
	b.offer(time.Minute, "first")
	b.offer(2*time.Minute, "second", "never")
	b.offer(time.Hour, "not yet")
	if err := b.Table.Withdraw(b.ctx, space, []string{"never"}); err != nil {
		b.Fatal(err)
	}
	b.step(4*time.Minute + slack)
	for _, want := range []string{"first", "second", "third"} {
		b.expect("taken", names(b.take(a, 1)), want)
	}
	b.takes(a)
}

// testLapsedFirst: keys of the dead come before those that are nobody's, however long these have been ready.
func testLapsedFirst(b *bench) {
	dead := b.session("dead")
	held := b.takeOne(dead, "held")
	b.begins(dead, 0, held)
	b.finish(dead, claim.StepResult{Key: "held", Term: held.Term, In: 2 * time.Minute})
	b.offer(time.Minute, "free")
	b.outlive()
	a := b.session("a")
	for _, want := range []string{"held", "free"} {
		b.expect("taken", names(b.take(a, 1)), want)
	}
}

// testMost: no more are taken than were wanted, of those of several dead holders
// and of nobody's, and in the end all are.
func testMost(b *bench) {
	var all []string
	for i := range 3 {
		s := b.session(fmt.Sprint("dead", i))
		mine := []string{fmt.Sprint(i, "a"), fmt.Sprint(i, "b"), fmt.Sprint(i, "c")}
		b.offer(0, mine...)
		b.begins(s, 0, b.takes(s, mine...)...)
		b.join(s, false)
		all = append(all, mine...)
	}
	b.outlive()
	b.offer(0, "x", "y")
	all = append(all, "x", "y")
	a := b.session("a")
	var got []string
	for _, most := range []int{1, 2, 4, 3, 5} {
		taken := b.take(a, most)
		got = append(got, names(taken)...)
		if len(got) < len(all) && len(taken) < most {
			b.Errorf("%d of %d wanted were taken, and there are more", len(taken), most)
		}
	}
	b.expect("taken", got, all...)
}

func testHeld(b *bench) {
	a, c := b.session("a"), b.session("c")
	x := b.takeOne(a, "x")
	b.offer(0, "x") // does not take it away
	b.takes(c)
	b.takes(a) // nor is it taken again by its holder
	b.step(timing.Timeout - slack)
	b.renew(a)
	b.renew(c)
	b.step(timing.Timeout - slack) // the session is the renewal
	b.takes(c)
	b.begins(a, hold, x)
}

func testTakerLives(b *bench) {
	a := b.session("a")
	b.offer(0, "x")
	b.outlive()
	for who, session := range map[string]string{"lapsed": a.ID, "unknown": "never-was"} {
		if got, err := b.Table.ClaimKeys(b.ctx, claim.ClaimRequest{Space: space, Session: session, Limit: 1, Fresh: 1}); !errors.Is(err, lease.ErrLapsed) {
			b.Errorf("Take by the %s = %v, %v; want ErrLapsed", who, got, err)
		}
		if got, err := b.Table.StartSteps(b.ctx, space, session, hold, []claim.Claim{{Key: "x", Term: 1}}); !errors.Is(err, lease.ErrLapsed) {
			b.Errorf("StartSteps by the %s = %v, %v; want ErrLapsed", who, got, err)
		}
		if _, err := b.Table.Join(b.ctx, claim.Member{Space: space, Session: session}); !errors.Is(err, lease.ErrLapsed) {
			b.Errorf("Join by the %s: %v, want ErrLapsed", who, err)
		}
	}
	b.takes(b.session("c"), "x")
}

func testTerms(b *bench) {
	last := int64(0)
	took := func(when string, c claim.Claim) {
		b.Helper()
		if c.Term <= last {
			b.Errorf("%s: term %d after %d", when, c.Term, last)
		}
		last = c.Term
	}
	a := b.session("a")
	x := b.takeOne(a, "x")
	took("first", x)
	b.release(a, x)
	x = b.takes(a, "x")[0]
	took("after a release", x)
	b.begins(a, hold, x)
	b.finish(a, claim.StepResult{Key: "x", Term: x.Term, Release: true})
	b.step(-time.Hour)
	c := b.session("c") // a's session may count as it likes on a clock that fell
	b.offer(0, "x")
	x = b.takes(c, "x")[0]
	took("under a clock that is behind", x)
	b.release(c, x)
	took("again", b.takes(c, "x")[0])
	b.step(3 * time.Hour)
	d := b.session("d")
	took("after a takeover", b.takes(d, "x")[0])
	if r := b.row("x"); !near(time.UnixMilli(last).Sub(r.Since), 0) {
		b.Errorf("term %d is not the store's clock at %v", last, r.Since)
	}
}

func testFresh(b *bench) {
	a := b.session("a")
	b.offer(0, "old", "given back")
	b.step(10 * time.Minute)
	b.renewOr(&a)
	b.offer(0, "new 1", "new 2", "new 3")
	got := b.want(claim.ClaimRequest{Space: space, Session: a.ID, Limit: 2})
	b.expect("what lay for long, or without linger", names(got), "given back", "old")
	for _, c := range got {
		if c.Key == "given back" {
			b.release(a, c)
		}
	}
	w := claim.ClaimRequest{Space: space, Session: a.ID, Limit: 10, Linger: time.Minute}
	b.expect("nothing fresh", names(b.want(w)))
	w.Fresh = 2
	if got := b.want(w); len(got) != 2 {
		b.Errorf("2 fresh ones wanted, %d taken", len(got))
	}
	w.Fresh = 0
	b.expect("nothing fresh again", names(b.want(w)))
	b.step(time.Minute + slack)
	if got := b.want(w); len(got) != 2 {
		b.Errorf("%q taken after they had lain, want the other 2", names(got))
	}
}

// renewOr renews a session, or starts another for its instance.
func (b *bench) renewOr(s *lease.Session) {
	b.Helper()
	if _, err := b.Store.RenewSession(b.ctx, s.ID); err != nil {
		*s = b.session(s.Instance.Name)
	}
}

func testOneOfMany(b *bench) {
	const takers, keys = 6, 60
	all := make([]string, keys)
	for i := range all {
		all[i] = fmt.Sprint("k", i)
	}
	tables := make([]claim.KeyTable, takers)
	for i := range tables {
		tables[i] = b.h.Open(b.T).Claims()
	}
	for range 5 {
		b.offer(0, all...)
		var mu sync.Mutex
		var done sync.WaitGroup
		holders := map[string]string{}
		for _, table := range tables {
			s := b.session("taker")
			done.Go(func() {
				for empty := 0; empty < 3; {
					got, err := table.ClaimKeys(b.ctx, claim.ClaimRequest{Space: space, Session: s.ID, Limit: 7, Fresh: 7})
					if err != nil {
						b.Errorf("ClaimKeys: %v", err)
						return
					}
					if len(got) == 0 {
						empty++
					}
					mu.Lock()
					for _, c := range got {
						if other := holders[c.Key]; other != "" {
							b.Errorf("%s was given to two, under term %d", c.Key, c.Term)
						}
						holders[c.Key] = s.ID
					}
					mu.Unlock()
				}
			})
		}
		done.Wait()
		if len(holders) != keys {
			b.Errorf("%d of %d keys were taken", len(holders), keys)
		}
		for _, r := range b.list("", claim.MaxKeys) {
			if holders[r.Key] != r.Session {
				b.Errorf("%s is held by %s, was given to %s", r.Key, r.Session, holders[r.Key])
			}
		}
		if err := b.Table.Withdraw(b.ctx, space, all); err != nil {
			b.Fatal(err)
		}
	}
}
