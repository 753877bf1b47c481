package claimtest

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/understudy-ha/understudy/claim"
	"github.com/understudy-ha/understudy/lease"
)

func testOffer(b *bench) {
	a := b.session("a")
	b.offer(0, "x", "y")
	b.offer(0, "y") // twice is no error
	got := b.takes(a, "x", "y")
	if err := b.Table.Withdraw(b.ctx, space, []string{"y", "never was"}); err != nil {
		b.Fatalf("Withdraw: %v", err)
	}
	b.expect("begun after a withdrawal", names(b.begin(a, hold, got...)), "x")
	b.expect("finished after a withdrawal", b.finish(a,
		claim.Finished{Key: "x", Term: got[0].Term}, claim.Finished{Key: "y", Term: got[1].Term}), "x")
	if rows := b.list("", 10); len(rows) != 1 || rows[0].Key != "x" {
		b.Errorf("after the withdrawal there are %+v", rows)
	}
	b.offer(0, "y")
	if again := b.takes(a, "y"); again[0].Interrupted {
		b.Error("a key that is offered anew was interrupted")
	}
}

func testReadyLater(b *bench) {
	a := b.session("a")
	b.offer(2*time.Minute, "later")
	b.takes(a)
	if r := b.row("later"); r.Idle || !near(r.In, 2*time.Minute) {
		b.Errorf("a key that is ready in 2 min is shown as %+v", r)
	}
	b.step(2*time.Minute + slack)
	b.takes(a, "later")
}

func testSooner(b *bench) {
	a := b.session("a")
	b.offer(time.Hour, "x", "y")
	b.offer(0, "x")
	b.offer(2*time.Hour, "x", "y") // changes nothing
	b.takes(a, "x")
	if r := b.row("y"); !near(r.In, time.Hour) {
		b.Errorf("a later offer moved a key from 1 h to %v", r.In)
	}
}

func testList(b *bench) {
	keys := []string{"B", "a", "a b", "aa", "b", "ä", "日本", "🙂"} // in the order of their bytes
	b.offer(0, "日本", "b", "aa", "🙂", "B", "a b", "ä", "a")
	var got []string
	for after := ""; ; {
		page := b.list(after, 3)
		for _, r := range page {
			got = append(got, r.Key)
		}
		if len(page) < 3 {
			break
		}
		after = page[2].Key
	}
	if strings.Join(got, "|") != strings.Join(keys, "|") {
		b.Errorf("pages of 3: %q, want %q", got, keys)
	}
	if rows, err := b.Table.List(b.ctx, claim.Query{Space: "nothing-here", Limit: 10}); err != nil || len(rows) != 0 {
		b.Errorf("List of an empty space = %v, %v", rows, err)
	}
}

func testListHeld(b *bench) {
	a, c := b.session("a"), b.session("c")
	b.offer(0, "1", "3", "5")
	mine := b.takes(a, "1", "3", "5")
	b.offer(0, "0", "2", "4")
	b.takes(c, "0", "2", "4")
	b.offer(0, "6") // nobody's
	held := func(q claim.Query, want ...string) {
		b.Helper()
		q.Space = space
		rows, err := b.Table.List(b.ctx, q)
		if err != nil {
			b.Fatalf("List(%+v): %v", q, err)
		}
		var got []string
		for _, r := range rows {
			got = append(got, r.Key)
		}
		if strings.Join(got, " ") != strings.Join(want, " ") {
			b.Errorf("List(%+v): %q, want %q", q, got, want)
		}
	}
	held(claim.Query{}, "0", "1", "2", "3", "4", "5", "6")
	held(claim.Query{Session: a.ID}, "1", "3", "5")
	held(claim.Query{Session: a.ID, Limit: 2}, "1", "3")
	held(claim.Query{Session: a.ID, After: "1", Limit: 1}, "3")
	held(claim.Query{Session: a.ID, After: "5"})
	held(claim.Query{Session: "never-was"})
	b.release(a, mine[0])
	held(claim.Query{Session: a.ID}, "3", "5")
	b.outlive()
	held(claim.Query{Session: a.ID}, "3", "5") // until somebody takes them
	b.take(b.session("d"), claim.MaxKeys)
	held(claim.Query{Session: a.ID})
}

func testRows(b *bench) {
	a := b.session("a")
	b.offer(0, "free", "idle", "step")
	got := b.takes(a, "free", "idle", "step")
	b.begins(a, hold, got...)
	b.finish(a, claim.Finished{Key: "free", Term: got[0].Term, Release: true},
		claim.Finished{Key: "idle", Term: got[1].Term, Idle: true})
	b.step(time.Minute)
	for _, r := range b.list("", 10) {
		free, step := r.Key == "free", r.Key == "step"
		if (r.Session == "") != free || r.InStep != step || r.Idle != (r.Key == "idle") || r.Lapsed || r.Interrupted {
			b.Errorf("row %+v", r)
		}
		if !free && (r.Session != a.ID || r.Holder != a.Instance) {
			b.Errorf("%s is held by %q, %+v", r.Key, r.Session, r.Holder)
		}
		if step && !near(r.Hold, hold-time.Minute) || !r.Idle && !near(r.In, -time.Minute) {
			b.Errorf("%s: hold %v, in %v", r.Key, r.Hold, r.In)
		}
		if r.Term == 0 || !near(time.UnixMilli(r.Term).Sub(r.Since), 0) {
			b.Errorf("%s changed hands at %v under term %d", r.Key, r.Since, r.Term)
		}
	}
	b.outlive()
	if r := b.row("step"); !r.Lapsed || r.Session != a.ID || !r.InStep {
		b.Errorf("the lapsed holder's row is %+v", r)
	}
}

// hostile are texts that a store must not mistake for anything else.
var hostile = []string{
	`'; DROP TABLE claim; --`, `"quoted" \ and 'single'`, `<script>alert(1)</script>`,
	"%s %d %%", "{}[]:*?", "{a,b}", `{"a":"b"}`, "$1 $$ ? @x :y", "日本語 ✓ 🙂", strings.Repeat("k", lease.MaxKey),
	"a:b/c{d}e|f", "NULL", "-1", "*", "a,b", "(1,2)", "e\u0301", "é",
}

// Hostile are texts that a store must not mistake for anything else.
func Hostile() []string { return append([]string(nil), hostile...) }

func testHostileText(b *bench) {
	a := b.session("a")
	b.offer(0, hostile...)
	got := b.takes(a, hostile...)
	b.begins(a, hold, got...)
	var done []claim.Finished
	for _, c := range got {
		done = append(done, claim.Finished{Key: c.Key, Term: c.Term})
	}
	b.expect("finished", b.finish(a, done...), hostile...)
	b.release(a, got...)
	if n := len(b.list("", claim.MaxKeys)); n != len(hostile) {
		b.Errorf("%d rows, want %d", n, len(hostile))
	}
	if err := b.Table.Withdraw(b.ctx, space, hostile); err != nil {
		b.Fatal(err)
	}
	if rows := b.list("", 10); len(rows) != 0 {
		b.Errorf("after the withdrawal there are %+v", rows)
	}
}

func testThousand(b *bench) {
	a := b.session("a")
	keys := make([]string, claim.MaxKeys)
	for i := range keys {
		keys[i] = fmt.Sprintf("key-%d", i*7919%claim.MaxKeys) // in no order
	}
	b.offer(0, keys...)
	got := b.takes(a, keys...)
	b.begins(a, hold, got...)
	done := make([]claim.Finished, len(got))
	for i, c := range got {
		done[i] = claim.Finished{Key: c.Key, Term: c.Term}
	}
	b.expect("finished", b.finish(a, done...), keys...)
	if n := len(b.list("", claim.MaxKeys)); n != claim.MaxKeys {
		b.Errorf("List returns %d", n)
	}
	b.release(a, got...)
	b.takes(a, keys...)
	if err := b.Table.Withdraw(b.ctx, space, keys); err != nil {
		b.Fatal(err)
	}

	b.offer(0)
	b.begins(a, hold)
	b.expect("finished", b.finish(a))
	b.release(a)
	if err := b.Table.Withdraw(b.ctx, space, nil); err != nil {
		b.Errorf("Withdraw of nothing: %v", err)
	}
	b.takes(a)
}

func testSpaces(b *bench) {
	a := b.session("a")
	if err := b.Table.Offer(b.ctx, "other", []string{"x"}, 0); err != nil {
		b.Fatal(err)
	}
	b.takes(a)
	mine := b.takeOne(a, "x")
	for _, w := range []string{"other", space} {
		if _, err := b.Table.Join(b.ctx, claim.Member{Space: w, Session: a.ID}); err != nil {
			b.Fatal(err)
		}
	}
	if s := b.join(a, false); s.Held != 1 || s.Free {
		b.Errorf("the share counts another space: %+v", s)
	}
	if got, err := b.Table.Begin(b.ctx, "other", a.ID, hold, []claim.Claim{mine}); err != nil || len(got) != 0 {
		b.Errorf("Begin in another space = %v, %v", got, err)
	}
	if err := b.Table.Withdraw(b.ctx, "other", []string{"x"}); err != nil {
		b.Fatal(err)
	}
	b.begins(a, hold, mine)
}

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
		if got, err := b.Table.Take(b.ctx, claim.Want{Space: space, Session: session, Most: 1, Fresh: 1}); !errors.Is(err, lease.ErrLapsed) {
			b.Errorf("Take by the %s = %v, %v; want ErrLapsed", who, got, err)
		}
		if got, err := b.Table.Begin(b.ctx, space, session, hold, []claim.Claim{{Key: "x", Term: 1}}); !errors.Is(err, lease.ErrLapsed) {
			b.Errorf("Begin by the %s = %v, %v; want ErrLapsed", who, got, err)
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
	b.finish(a, claim.Finished{Key: "x", Term: x.Term, Release: true})
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
	got := b.want(claim.Want{Space: space, Session: a.ID, Most: 2})
	b.expect("what lay for long, or without linger", names(got), "given back", "old")
	for _, c := range got {
		if c.Key == "given back" {
			b.release(a, c)
		}
	}
	w := claim.Want{Space: space, Session: a.ID, Most: 10, Linger: time.Minute}
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
	tables := make([]claim.Table, takers)
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
					got, err := table.Take(b.ctx, claim.Want{Space: space, Session: s.ID, Most: 7, Fresh: 7})
					if err != nil {
						b.Errorf("Take: %v", err)
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
