package dispatchtest

import (
	"fmt"
	"slices"
	"sync"

	"github.com/understudy-ha/understudy/claim"
	"github.com/understudy-ha/understudy/dispatch"
)

// testAnew: a turn that was not answered is asked again, whether it was applied
// or not.
func testAnew(b *bench) {
	s := b.session("a")
	anew := func(results []dispatch.Result, c claim.Claim) dispatch.ExchangeResult {
		b.Helper()
		t, err := b.Queue.Exchange(b.ctx, dispatch.Exchange{Queue: q, Session: s.ID, Results: results, Begin: []claim.Claim{c}, Window: window, Restart: true})
		if err != nil || len(t.Begun) != 1 || t.Holdings[c.Key] != dispatch.InProgress {
			b.Fatalf("Turn anew = %+v, %v", t, err)
		}
		return t
	}
	b.add("k", "1", "2")
	a := b.starts(s, "k")
	for range 2 {
		b.is(anew(nil, claimOf(a)).Begun[0], dispatch.Send, "1", 1)
	}
	b.settles(s, done(a), claimOf(a))
	t := anew([]dispatch.Result{done(a)}, claimOf(a))
	if t.Receipts[0].Accepted {
		b.Error("a result was accepted twice")
	}
	b.is(t.Begun[0], dispatch.Send, "2", 1)
	b.settles(s, done(t.Begun[0]))

	b.add("k", "3")
	c := b.takes(s, "k")[0]
	b.is(anew(nil, c).Begun[0], dispatch.Send, "3", 1) // it had not been applied
	b.step(window + slack)
	s = b.session("c")
	c = b.takes(s, "k")[0]
	b.is(b.begins(s, c), dispatch.Resolve, "3", 1)
	b.is(anew(nil, c).Begun[0], dispatch.Resolve, "3", 1)
}

// Results.

func testOldTerm(b *bench) {
	s, other := b.session("a"), b.session("c")
	b.add("k", "1", "2")
	old := b.starts(s, "k")
	late := []dispatch.Result{done(old)}
	if err := b.Claims.Release(b.ctx, dispatch.Space(q), s.ID, []claim.Claim{claimOf(old)}); err != nil {
		b.Fatal(err)
	}
	ignored := func(when string) {
		b.Helper()
		t := b.turn(s, late)
		if t.Receipts[0].Accepted {
			b.Errorf("%s: a result under an old term was accepted", when)
		}
		b.stands(t, "k", dispatch.Lost)
	}
	ignored("free")
	a := b.starts(other, "k")
	b.is(a, dispatch.Resolve, "1", 1)
	ignored("in another's step")
	t := b.turn(other, late)
	if t.Receipts[0].Accepted {
		b.Error("a result under an old term was accepted from the present holder")
	}
	b.settles(other, result(a, dispatch.Delayed, dispatch.RetryLater))
	ignored("given back by another")
	a = b.starts(s, "k") // the same session, under a later term
	ignored("in a step of its own under a later term")
	b.is(a, dispatch.Send, "1", 2)
	b.settles(s, done(a))
	if t := b.turn(s, []dispatch.Result{done(a)}); t.Receipts[0].Accepted {
		b.Error("a result was accepted twice")
	}
	b.shows("1", dispatch.Committed)
	b.shows("2", dispatch.Queued)
}

func testNotHead(b *bench) {
	s := b.session("a")
	b.add("k", "1", "2", "3")
	a := b.starts(s, "k")
	for _, seq := range []int64{0, 2, 3, 4, -1} {
		r := done(a)
		r.Seq = seq
		t := b.turn(s, []dispatch.Result{r}, claimOf(a))
		if t.Receipts[0].Accepted || len(t.Begun) != 0 {
			b.Errorf("a result for message %d of which 1 is the head: %+v", seq, t)
		}
		b.stands(t, "k", dispatch.InProgress)
	}
	two := b.settles(s, done(a), claimOf(a)).Begun[0]
	if t := b.turn(s, []dispatch.Result{result(a, dispatch.Delayed, dispatch.RetryLater)}); t.Receipts[0].Accepted {
		b.Error("a result was accepted for a message that is over")
	}
	b.shows("1", dispatch.Committed)
	b.settles(s, done(two))
}

func testLapsedResult(b *bench) {
	s := b.session("a")
	b.add("k", "1", "2")
	a := b.starts(s, "k")
	b.step(timing.Timeout + slack)
	t := b.settles(s, done(a), claimOf(a))
	b.stands(t, "k", dispatch.Lost)
	if len(t.Begun) != 0 {
		b.Errorf("a lapsed session began %+v", t.Begun)
	}
	b.shows("1", dispatch.Committed)
	other := b.session("c")
	next := b.starts(other, "k") // no step keeps it any more
	b.is(next, dispatch.Send, "2", 1)
	if t := b.turn(s, []dispatch.Result{done(next)}); t.Receipts[0].Accepted {
		b.Error("a result was accepted from a session that does not hold the key")
	}
}

// Interruptions.

func testInterrupted(b *bench) {
	s := b.session("a")
	b.add("k", "1", "2")
	old := b.starts(s, "k")
	b.step(window + slack)
	next := b.session("c")
	c := b.takes(next, "k")[0]
	if !c.Interrupted {
		b.Errorf("the claim is %+v", c)
	}
	ask := b.begins(next, c)
	b.is(ask, dispatch.Resolve, "1", 1)
	if !slices.ContainsFunc(b.record("1").Trail, func(n dispatch.TrailEntry) bool { return n.State == dispatch.Unknown }) {
		b.Errorf("its trail does not tell: %+v", b.record("1").Trail)
	}
	if t := b.turn(s, []dispatch.Result{done(old)}); t.Receipts[0].Accepted {
		b.Error("the result of the interrupted one was accepted")
	}
	t := b.settles(next, done(ask), c)
	b.is(t.Begun[0], dispatch.Send, "2", 1) // the interruption was the first one's
	b.settles(next, done(t.Begun[0]))
}

func testInterruptedAsk(b *bench) {
	b.add("k", "1", "2")
	b.starts(b.session("a"), "k")
	for i := range 3 {
		b.step(window + slack)
		s := b.session(fmt.Sprint("s", i))
		ask := b.starts(s, "k")
		b.is(ask, dispatch.Resolve, "1", 1)
		if i == 2 {
			b.settles(s, result(ask, dispatch.Delayed, dispatch.RetryLater))
			b.is(b.starts(s, "k"), dispatch.Send, "1", 2)
		}
	}
}

func testReleaseInStep(b *bench) {
	s, other := b.session("a"), b.session("c")
	b.add("k", "1")
	a := b.starts(s, "k")
	if err := b.Claims.Release(b.ctx, dispatch.Space(q), s.ID, []claim.Claim{claimOf(a)}); err != nil {
		b.Fatal(err)
	}
	b.is(b.starts(other, "k"), dispatch.Resolve, "1", 1)
}

func testWindow(b *bench) {
	s := b.session("a")
	b.add("k", "1", "2")
	b.starts(s, "k")
	b.step(window - slack)
	other := b.session("c")
	b.takes(other)
	b.step(2 * slack)
	b.is(b.starts(other, "k"), dispatch.Resolve, "1", 1)

	// A window of nothing keeps it no longer than the session lives.
	b.add("j", "3")
	c := b.takes(other, "j")[0]
	t, err := b.Queue.Exchange(b.ctx, dispatch.Exchange{Queue: q, Session: other.ID, Begin: []claim.Claim{c}})
	if err != nil || len(t.Begun) != 1 {
		b.Fatalf("Turn = %+v, %v", t, err)
	}
	b.step(timing.Timeout + slack)
	b.is(b.starts(b.session("d"), "j"), dispatch.Resolve, "3", 1)
}

// testIdleRace enqueues in the very moments in which keys run dry: nothing is
// left behind.
func testIdleRace(b *bench) {
	const keys, each, enqueuers, workers = 3, 60, 3, 3
	var enqueueing, working sync.WaitGroup
	for e := range enqueuers {
		queueAdmin := b.h.Open(b.T).QueueAdmin()
		enqueueing.Go(func() {
			for i := range each {
				x := dispatch.Message{Queue: q, Key: fmt.Sprint("k", i%keys), ID: fmt.Sprintf("%d-%d", e, i)}
				if added, err := queueAdmin.Add(b.ctx, []dispatch.Message{x}); err != nil || !added[0] {
					b.Errorf("Add = %v, %v", added, err)
				}
			}
		})
	}
	stop := make(chan struct{})
	for w := range workers {
		store, s := b.h.Open(b.T), b.session(fmt.Sprint("w", w))
		working.Go(func() {
			h := &hand{store: store, session: s.ID}
			for last := false; ; {
				select {
				case <-stop:
					last = true // all was enqueued before this round
				default:
				}
				busy, err := h.work(b.ctx, q)
				if err != nil {
					b.Errorf("work: %v", err)
					return
				}
				if last && !busy {
					return
				}
			}
		})
	}
	enqueueing.Wait()
	close(stop)
	working.Wait()
	rest, err := b.Admin.Messages(b.ctx, dispatch.MessageQuery{Queue: q})
	if err != nil || len(rest) != enqueuers*each {
		b.Fatalf("Messages = %d, %v", len(rest), err)
	}
	left := 0
	for _, r := range rest {
		if r.State != dispatch.Committed {
			left++
		}
	}
	if left > 0 {
		b.Errorf("%d of %d messages were left behind, and nothing was ready", left, len(rest))
	}
}
