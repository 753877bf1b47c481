package dispatchtest

import (
	"fmt"
	"time"

	"github.com/understudy-ha/understudy/claim"
	"github.com/understudy-ha/understudy/dispatch"
)

func testOrder(b *bench) {
	s := b.session("a")
	b.add("k", "z", "y", "x")
	a := b.starts(s, "k")
	for i, id := range []string{"z", "y", "x"} {
		b.is(a, dispatch.Send, id, 1)
		if a.Seq != int64(i+1) || a.ContentType != dispatch.DefaultContentType {
			b.Errorf("%s: seq %d, type %q", id, a.Seq, a.ContentType)
		}
		t := b.settles(s, done(a), claimOf(a))
		b.shows(id, dispatch.Committed)
		if i == 2 {
			b.stands(t, "k", dispatch.Released)
			break
		}
		b.stands(t, "k", dispatch.InProgress)
		a = t.Begun[0]
	}
}

func testOrderOfCalls(b *bench) {
	want := map[string][]string{}
	admins := []dispatch.Admin{b.Admin, b.h.Open(b.T).QueueAdmin(), b.h.Open(b.T).QueueAdmin()}
	for i := range 20 {
		var messages []dispatch.Message
		for j := range 5 {
			key := fmt.Sprint("k", (i+j)%3)
			id := fmt.Sprintf("%02d-%d", 99-i, j)
			want[key] = append(want[key], id)
			messages = append(messages, dispatch.Message{Queue: q, Key: key, ID: id, Payload: []byte(id)})
		}
		if _, err := admins[i%3].Add(b.ctx, messages); err != nil {
			b.Fatalf("Add: %v", err)
		}
	}
	got := b.drains(b.session("a"))
	for key, ids := range want {
		if !same(got[key], ids) {
			b.Errorf("%s was delivered as %q, enqueued as %q", key, got[key], ids)
		}
	}
}

func testOneInFlight(b *bench) {
	s, other := b.session("a"), b.session("c")
	b.add("k", "1", "2")
	a := b.starts(s, "k")
	t := b.turn(s, nil, claimOf(a))
	for _, again := range t.Begun {
		if again.Work == dispatch.Send {
			b.Errorf("begun twice: %+v", again)
		}
	}
	b.stands(t, "k", dispatch.InProgress)
	b.takes(other)
	t = b.turn(other, nil, claimOf(a))
	b.stands(t, "k", dispatch.Lost)
	if len(t.Begun) != 0 {
		b.Errorf("another began %+v", t.Begun)
	}
	b.shows("1", dispatch.Submitting)
	b.shows("2", dispatch.Queued)
	b.is(b.settles(s, done(a), claimOf(a)).Begun[0], dispatch.Send, "2", 1)
}

func testKeysApart(b *bench) {
	s := b.session("a")
	b.add("blocked", "b1", "b2")
	b.add("delayed", "d1", "d2")
	b.add("fine", "f1", "f2")
	t := b.turn(s, nil, b.takes(s, "blocked", "delayed", "fine")...)
	var results []dispatch.Result
	var again []claim.Claim
	for _, a := range t.Begun {
		r := done(a)
		switch a.Key {
		case "blocked":
			r.State, r.After = dispatch.Failed, dispatch.Block
		case "delayed":
			r.State, r.After, r.Wait = dispatch.Delayed, dispatch.RetryLater, time.Hour
		}
		results, again = append(results, r), append(again, claimOf(a))
	}
	t = b.turn(s, results, again...)
	if len(t.Begun) != 1 || t.Begun[0].ID != "f2" {
		b.Errorf("begun %+v, want f2 alone", t.Begun)
	}
	b.stands(t, "blocked", dispatch.Released)
	b.stands(t, "delayed", dispatch.Released)
	b.stands(t, "fine", dispatch.InProgress)
}

func testSettleAndBegin(b *bench) {
	s := b.session("a")
	b.add("k", "1", "2", "3")
	a := b.starts(s, "k")
	t := b.settles(s, done(a)) // not asked for the next
	b.stands(t, "k", dispatch.Ready)
	if len(t.Begun) != 0 {
		b.Errorf("begun without being asked: %+v", t.Begun)
	}
	a = b.begins(s, claimOf(a))
	b.is(a, dispatch.Send, "2", 1)
	t = b.settles(s, result(a, dispatch.Invalid, dispatch.Next), claimOf(a))
	b.is(t.Begun[0], dispatch.Send, "3", 1)
	b.shows("2", dispatch.Invalid)
	t = b.settles(s, done(t.Begun[0]))
	b.stands(t, "k", dispatch.Released)
	b.takes(s)
}

func testAgain(b *bench) {
	s := b.session("a")
	b.add("k", "1", "2")
	a := b.starts(s, "k")
	r := result(a, dispatch.Delayed, dispatch.RetryLater)
	r.Wait, r.Code, r.Detail = 2*time.Minute, 503, "busy"
	b.stands(b.settles(s, r, claimOf(a)), "k", dispatch.Released)
	b.takes(s)
	if got := b.record("1"); got.State != dispatch.Delayed || got.Code != 503 || got.Detail != "busy" || got.Attempts != 1 || got.Term != a.Term || !got.Ended.IsZero() {
		b.Errorf("delayed: %+v", got)
	}
	b.step(2*time.Minute + slack)
	a = b.starts(s, "k")
	b.is(a, dispatch.Send, "1", 2)
	b.settles(s, result(a, dispatch.Delayed, dispatch.RetryLater)) // at once
	a = b.starts(s, "k")
	b.is(a, dispatch.Send, "1", 3)
	b.settles(s, result(a, dispatch.Unknown, dispatch.RetryLater))
	a = b.starts(s, "k")
	b.is(a, dispatch.Resolve, "1", 3)
	b.is(b.settles(s, done(a), claimOf(a)).Begun[0], dispatch.Send, "2", 1)
}

// testUnsent: an attempt that was certainly not sent is returned, so that a target is not told of a second attempt
// when it sees the first.
func testUnsent(b *bench) {
	s := b.session("a")
	b.add("k", "1")
	for range 2 {
		a := b.starts(s, "k")
		b.is(a, dispatch.Send, "1", 1)
		r := result(a, dispatch.Delayed, dispatch.RetryLater)
		r.Attempt--
		b.settles(s, r)
		if got := b.record("1"); got.State != dispatch.Delayed || got.Attempts != 0 {
			b.Errorf("not sent: %+v", got)
		}
	}
	a := b.starts(s, "k")
	b.settles(s, result(a, dispatch.Delayed, dispatch.RetryLater))
	a = b.starts(s, "k")
	b.is(a, dispatch.Send, "1", 2)
	r := result(a, dispatch.Delayed, dispatch.RetryLater)
	r.Attempt--
	b.settles(s, r)
	got := b.record("1")
	if last := got.Trail[len(got.Trail)-1]; got.Attempts != 1 || last.State != dispatch.Delayed || last.Attempt != 1 {
		b.Errorf("not sent: %d attempts, last in the history: %+v", got.Attempts, last)
	}
	b.is(b.starts(s, "k"), dispatch.Send, "1", 2)
}

func testHold(b *bench) {
	s, other := b.session("a"), b.session("c")
	b.add("k", "1", "2")
	a := b.starts(s, "k")
	r := result(a, dispatch.Pending, dispatch.Hold)
	r.Link = "/status?id=1"
	t := b.settles(s, r, claimOf(a))
	b.stands(t, "k", dispatch.InProgress)
	for _, a := range t.Begun {
		if a.Work != dispatch.Poll {
			b.Errorf("begun %+v, and its target has not decided", a)
		}
	}
	b.takes(other)
	poll := b.begins(s, claimOf(a))
	b.is(poll, dispatch.Poll, "1", 1)
	if poll.Link != r.Link || poll.Seq != a.Seq {
		b.Errorf("poll is %+v", poll)
	}
	b.shows("1", dispatch.Pending)
	if rows, err := b.Claims.List(b.ctx, claim.Query{Space: dispatch.Space(q)}); err != nil || len(rows) != 1 || rows[0].InStep {
		b.Errorf("asking how far it is began a step: %+v, %v", rows, err)
	}
	t = b.settles(s, result(poll, dispatch.Valid, dispatch.Hold))
	b.stands(t, "k", dispatch.InProgress)
	b.is(b.begins(s, claimOf(a)), dispatch.Poll, "1", 1)
	b.shows("1", dispatch.Valid)
	if got := b.record("1"); got.Link != r.Link {
		b.Errorf("the link became %q", got.Link)
	}
	b.is(b.settles(s, done(a), claimOf(a)).Begun[0], dispatch.Send, "2", 1)
}

// testHoldTakenOver: what the target has is in no step, so that it is taken over
// past the first window, and asked for, not sent.
func testHoldTakenOver(b *bench) {
	s := b.session("a")
	b.add("k", "1", "2")
	a := b.starts(s, "k")
	b.settles(s, result(a, dispatch.Pending, dispatch.Hold))
	b.step(timing.Timeout + slack)
	next := b.session("c")
	c := b.takes(next, "k")[0]
	if c.Interrupted {
		b.Error("a step that was over is told of as interrupted")
	}
	poll := b.begins(next, c)
	b.is(poll, dispatch.Poll, "1", 1)
	if poll.Term <= a.Term || poll.Undecided < timing.Timeout || poll.Undecided > time.Hour {
		b.Errorf("term %d after %d; the target has had it for %v", poll.Term, a.Term, poll.Undecided)
	}
	if poll.Age < poll.Undecided || poll.Age > time.Hour {
		b.Errorf("it was enqueued %v ago, and the target has had it for %v", poll.Age, poll.Undecided)
	}
	// The target forgot it: it is sent again.
	r := result(poll, dispatch.Delayed, dispatch.RetryLater)
	b.settles(next, r)
	again := b.starts(next, "k")
	b.is(again, dispatch.Send, "1", 2)
	if again.Age < timing.Timeout || again.Age > time.Hour {
		b.Errorf("it was enqueued %v ago", again.Age)
	}
}

// testHoldGivenUp: what a target has is in no step, and yet may become unknown,
// with what was known of it, and block its key for an operator.
func testHoldGivenUp(b *bench) {
	s := b.session("a")
	b.add("k", "1", "2")
	a := b.starts(s, "k")
	r := result(a, dispatch.Pending, dispatch.Hold)
	r.Link = "/status?id=1"
	b.settles(s, r, claimOf(a))
	poll := b.begins(s, claimOf(a))
	r = result(poll, dispatch.Unknown, dispatch.RetryLater)
	r.Code, r.Detail = 500, "HTTP 500: no room"
	b.stands(b.settles(s, r), "k", dispatch.Released)
	ask := b.starts(s, "k")
	b.is(ask, dispatch.Resolve, "1", 1)
	if ask.Code != r.Code || ask.Detail != r.Detail {
		b.Errorf("it is asked about with code %d and detail %q; recorded were %d, %q", ask.Code, ask.Detail, r.Code, r.Detail)
	}
	b.settles(s, result(ask, dispatch.Pending, dispatch.Hold), claimOf(ask))
	poll = b.begins(s, claimOf(ask))
	b.is(poll, dispatch.Poll, "1", 1)
	r = result(poll, dispatch.Unknown, dispatch.Block)
	r.Detail = "cannot be asked"
	b.stands(b.settles(s, r), "k", dispatch.Released)
	b.takes(s)
	if got := b.record("1"); !got.Blocks || got.State != dispatch.Unknown || got.Detail != r.Detail || got.Link != "/status?id=1" || got.Attempts != 1 || !got.Ended.IsZero() {
		b.Errorf("blocking: %+v", got)
	}
	if es := b.events("k"); len(es) != 1 {
		b.Errorf("blocking made %d events: %+v", len(es), es)
	}
	b.act(dispatch.RetryUnknown, "1")
	a = b.starts(s, "k")
	b.is(a, dispatch.Send, "1", 1)
	if a.Link != "" {
		b.Errorf("sent again, with the link %q of the earlier attempt", a.Link)
	}
	b.is(b.settles(s, done(a), claimOf(a)).Begun[0], dispatch.Send, "2", 1)
}

func testBlock(b *bench) {
	s := b.session("a")
	b.add("k", "1", "2")
	a := b.starts(s, "k")
	r := result(a, dispatch.Failed, dispatch.Block)
	r.Code, r.Detail = 404, "no such address"
	b.stands(b.settles(s, r, claimOf(a)), "k", dispatch.Released)
	b.takes(s)
	b.add("k", "3") // does not unblock it
	b.takes(s)
	b.step(24 * time.Hour)
	s = b.session("a")
	b.takes(s)
	if got := b.record("1"); !got.Blocks || got.State != dispatch.Failed || got.Detail != r.Detail || got.Code != 404 || got.Ended.IsZero() {
		b.Errorf("blocking: %+v", got)
	}
	if got := b.record("2"); got.Blocks || got.State != dispatch.Queued {
		b.Errorf("behind it: %+v", got)
	}
	if es := b.events("k"); len(es) != 1 {
		b.Errorf("blocking made %d events: %+v", len(es), es)
	}
	b.act(dispatch.Skip, "1")
	if got := b.drains(s)["k"]; !same(got, []string{"2", "3"}) {
		b.Errorf("then %q were delivered", got)
	}
}

func testIdle(b *bench) {
	s := b.session("a")
	b.add("k", "1")
	a := b.starts(s, "k")
	t := b.settles(s, done(a), claimOf(a))
	b.stands(t, "k", dispatch.Released)
	if len(t.Begun) != 0 {
		b.Errorf("begun %+v", t.Begun)
	}
	b.takes(s)
	b.add("k", "2")
	again := b.starts(s, "k")
	b.is(again, dispatch.Send, "2", 1)
	if again.Term <= a.Term || again.Seq != 2 {
		b.Errorf("the second is %+v, the first was under term %d", again, a.Term)
	}
	// A key whose only message was taken out has no head either.
	b.settles(s, done(again))
	b.add("k", "3")
	got, err := b.Claims.ClaimKeys(b.ctx, claim.ClaimRequest{Space: dispatch.Space(q), Session: s.ID, Limit: 1, Fresh: 1})
	if err != nil || len(got) != 1 {
		b.Fatalf("Take = %v, %v", got, err)
	}
	b.act(dispatch.Cancel, "3")
	t = b.turn(s, nil, got...)
	if len(t.Begun) != 0 {
		b.Errorf("begun %+v", t.Begun)
	}
	b.stands(t, "k", dispatch.Released)
}

func testLost(b *bench) {
	s, other := b.session("a"), b.session("c")
	b.add("k", "1", "2")
	c := b.takes(s, "k")[0]
	lost := func(what string, t dispatch.ExchangeResult, key string) {
		b.Helper()
		b.stands(t, key, dispatch.Lost)
		if len(t.Begun) != 0 {
			b.Errorf("%s: begun %+v", what, t.Begun)
		}
	}
	lost("another", b.turn(other, nil, c), "k")
	lost("older", b.turn(s, nil, claim.Claim{Key: "k", Term: c.Term - 1}), "k")
	lost("no such key", b.turn(s, nil, claim.Claim{Key: "none", Term: c.Term}), "none")
	if err := b.Claims.Release(b.ctx, dispatch.Space(q), s.ID, []claim.Claim{c}); err != nil {
		b.Fatal(err)
	}
	lost("released", b.turn(s, nil, c), "k")
	c = b.takes(s, "k")[0]
	if err := b.Store.EndSession(b.ctx, s.ID, "stopped"); err != nil {
		b.Fatal(err)
	}
	lost("ended", b.turn(s, nil, c), "k")
	b.shows("1", dispatch.Queued)
	b.is(b.starts(other, "k"), dispatch.Send, "1", 1)
}
