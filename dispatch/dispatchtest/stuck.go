package dispatchtest

import (
	"errors"
	"fmt"
	"time"

	"github.com/understudy-ha/understudy/claim"
	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/history"
	"github.com/understudy-ha/understudy/lease"
)

// stick brings message "1" of the key "k", with "2" behind it, to a target that does not decide.
func (b *bench) stick(s lease.Session) dispatch.Assignment {
	b.Helper()
	b.add("k", "1", "2")
	a := b.starts(s, "k")
	b.settles(s, result(a, dispatch.Pending, dispatch.Hold))
	r := result(a, dispatch.Pending, dispatch.Stuck)
	r.Detail = "undecided for long"
	b.stands(b.settles(s, r, claimOf(a)), "k", dispatch.InProgress)
	return a
}

func (b *bench) isBlocked(when string, want bool) {
	b.Helper()
	keys, err := b.Admin.Keys(b.ctx, dispatch.KeyQuery{Queue: q, Blocked: true})
	if err != nil {
		b.Fatalf("Keys: %v", err)
	}
	if got := b.record("1"); got.Blocks != want || (len(keys) == 1) != want || b.queue().Blocked != int64(len(keys)) {
		b.Errorf("%s: blocks is %t, the blocked keys are %+v", when, got.Blocks, keys)
	}
	if want && (keys[0].State != dispatch.Pending && keys[0].State != dispatch.Valid || keys[0].Reason != "undecided for long") {
		b.Errorf("%s: %+v", when, keys)
	}
}

// testStuck: what a target does not decide is shown as blocked and polled on, by whoever has the key.
func testStuck(b *bench) {
	s := b.session("a")
	a := b.stick(s)
	b.isBlocked("stuck", true)
	holder := s.Instance.Label()
	blocked := history.Event{From: holder, To: holder, Term: a.Term, Reason: "blocked: undecided for long"}
	b.wantEvents("k", blocked)
	r := result(a, dispatch.Valid, dispatch.Stuck)
	r.Detail = "undecided for long"
	b.settles(s, r)
	b.isBlocked("still stuck", true)
	b.is(b.begins(s, claimOf(a)), dispatch.Poll, "1", 1)

	if err := b.Claims.Release(b.ctx, dispatch.Space(q), s.ID, []claim.Claim{claimOf(a)}); err != nil {
		b.Fatal(err)
	}
	next := b.session("c")
	poll := b.starts(next, "k")
	b.is(poll, dispatch.Poll, "1", 1)
	b.isBlocked("taken by another", true)
	b.wantEvents("k", blocked)
	b.is(b.settles(next, done(poll), claimOf(poll)).Begun[0], dispatch.Send, "2", 1)
	b.isBlocked("decided", false)
	holder = next.Instance.Label()
	b.wantEvents("k", blocked, history.Event{From: holder, To: holder, Term: poll.Term, Reason: "unblocked: committed"})
}

// testStuckEnds: any other result ends it.
func testStuckEnds(b *bench) {
	s := b.session("a")
	a := b.stick(s)
	b.settles(s, result(a, dispatch.Valid, dispatch.Hold))
	b.isBlocked("the target is at it", false)
	r := result(a, dispatch.Valid, dispatch.Stuck)
	r.Detail = "undecided for long"
	b.settles(s, r)
	b.isBlocked("again", true)
	b.settles(s, result(a, dispatch.Unknown, dispatch.RetryLater))
	b.isBlocked("the target forgot it", false)
	b.is(b.starts(s, "k"), dispatch.Resolve, "1", 1)
}

// testStuckActs: operators may act on it, and whoever polls for it changes nothing any more.
func testStuckActs(action dispatch.Action) func(*bench) {
	return func(b *bench) {
		s := b.session("a")
		a := b.stick(s)
		if err := b.Admin.Act(b.ctx, q, "1", dispatch.Retry, "operator"); !errors.Is(err, dispatch.ErrUncertain) {
			b.Errorf("retry: %v, want ErrUncertain", err)
		}
		b.act(action, "1")
		b.isBlocked(string(action), false)
		late := b.turn(s, []dispatch.Result{done(a)})
		if late.Receipts[0].Accepted || late.Holdings["k"] != dispatch.Lost {
			b.Errorf("%s: a late result: %+v", action, late)
		}
		next := b.starts(b.session("c"), "k")
		if action == dispatch.RetryUnknown {
			if b.is(next, dispatch.Send, "1", 1); !next.Retried {
				b.Errorf("it is not said that it was sent before: %+v", next)
			}
			return
		}
		if b.is(next, dispatch.Send, "2", 1); next.Retried {
			b.Errorf("never sent, and said to be: %+v", next)
		}
		if err := b.Admin.Act(b.ctx, q, "1", dispatch.Retry, "operator"); !errors.Is(err, dispatch.ErrUncertain) {
			b.Errorf("retry after %s: %v, want ErrUncertain", action, err)
		}
	}
}

// testRetrySkipped: what the target may have is not sent again for having been skipped meanwhile, unless whoever asks
// knows that.
func testRetrySkipped(b *bench) {
	s := b.session("a")
	b.add("k", "1")
	b.starts(s, "k")
	b.step(window + slack)
	b.takes(b.session("c"), "k")
	b.act(dispatch.Skip, "1") // nobody has said yet that its sender was interrupted
	if err := b.Admin.Act(b.ctx, q, "1", dispatch.Retry, "operator"); !errors.Is(err, dispatch.ErrUncertain) {
		b.Errorf("retry of one that was skipped after an interruption: %v, want ErrUncertain", err)
	}
	s = b.session("b")
	for i, state := range []dispatch.State{dispatch.Unknown, dispatch.Delayed, dispatch.Failed} {
		key := fmt.Sprint("k", i)
		id, after := key+" 1", dispatch.RetryLater
		if state == dispatch.Failed {
			after = dispatch.Block
		}
		b.add(key, id)
		r := result(b.startsAmong(s, key), state, after)
		r.Wait = time.Hour
		b.settles(s, r)
		b.act(dispatch.Skip, id)
		err := b.Admin.Act(b.ctx, q, id, dispatch.Retry, "operator")
		if state != dispatch.Unknown {
			b.shows(id, dispatch.Queued)
			continue
		}
		if !errors.Is(err, dispatch.ErrUncertain) {
			b.Errorf("retry of one that was skipped while it was unknown: %v, want ErrUncertain", err)
		}
		b.shows(id, dispatch.Failed)
		b.act(dispatch.RetryUnknown, id)
		b.shows(id, dispatch.Queued)
	}
}
