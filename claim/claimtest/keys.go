package claimtest

import (
	"fmt"
	"strings"
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
		claim.StepResult{Key: "x", Term: got[0].Term}, claim.StepResult{Key: "y", Term: got[1].Term}), "x")
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
	held(claim.Query{Session: a.ID}, "3", "5") // until someone takes them
	b.take(b.session("d"), claim.MaxKeys)
	held(claim.Query{Session: a.ID})
}

func testRows(b *bench) {
	a := b.session("a")
	b.offer(0, "free", "idle", "step")
	got := b.takes(a, "free", "idle", "step")
	b.begins(a, hold, got...)
	b.finish(a, claim.StepResult{Key: "free", Term: got[0].Term, Release: true},
		claim.StepResult{Key: "idle", Term: got[1].Term, Idle: true})
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
	var done []claim.StepResult
	for _, c := range got {
		done = append(done, claim.StepResult{Key: c.Key, Term: c.Term})
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
	done := make([]claim.StepResult, len(got))
	for i, c := range got {
		done[i] = claim.StepResult{Key: c.Key, Term: c.Term}
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
	if got, err := b.Table.StartSteps(b.ctx, "other", a.ID, hold, []claim.Claim{mine}); err != nil || len(got) != 0 {
		b.Errorf("StartSteps in another space = %v, %v", got, err)
	}
	if err := b.Table.Withdraw(b.ctx, "other", []string{"x"}); err != nil {
		b.Fatal(err)
	}
	b.begins(a, hold, mine)
}
