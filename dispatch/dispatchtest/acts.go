package dispatchtest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/understudy-ha/understudy/claim"
	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/history"
	"github.com/understudy-ha/understudy/lease"
)

// situation brings a message "1" of the key "k", with "2" behind it, into a state.
type situation struct {
	name  string
	state dispatch.State // what it is then
	after dispatch.After // how its last result went; "" when it had none
	wait  time.Duration
	may   string // what an operator may do: r, s, c; u: retry only as one who knows that the outcome is unknown
}

func situations() []situation {
	return []situation{
		{"queued", dispatch.Queued, "", 0, "c"},
		{"submitting", dispatch.Submitting, "", 0, ""},
		{"pending", dispatch.Pending, dispatch.Hold, 0, ""},
		{"valid", dispatch.Valid, dispatch.Hold, 0, ""},
		{"stuck", dispatch.Valid, dispatch.Stuck, 0, "usc"},
		{"delayed", dispatch.Delayed, dispatch.RetryLater, time.Hour, "rs"},
		{"unknown", dispatch.Unknown, dispatch.RetryLater, time.Hour, "us"},
		{"unknown and blocks", dispatch.Unknown, dispatch.Block, 0, "us"},
		{"committed", dispatch.Committed, dispatch.Next, 0, ""},
		{"invalid", dispatch.Invalid, dispatch.Next, 0, "r"},
		{"invalid and blocks", dispatch.Invalid, dispatch.Block, 0, "rs"},
		{"failed", dispatch.Failed, dispatch.Next, 0, "r"},
		{"failed and blocks", dispatch.Failed, dispatch.Block, 0, "rs"},
		{"cancelled", dispatch.Cancelled, "", 0, "r"},
	}
}

// retry is the action that sends the message of this situation again.
func (sit situation) retry() dispatch.Action {
	if strings.Contains(sit.may, "u") {
		return dispatch.RetryUnknown
	}
	return dispatch.Retry
}

// arrange makes a situation in a key of its own and returns the ids of the message
// and of the one behind it.
func (b *bench) arrange(s lease.Session, sit situation, key string) (id, behind string) {
	b.Helper()
	id, behind = key+" 1", key+" 2"
	b.add(key, id, behind)
	switch sit.state {
	case dispatch.Queued:
	case dispatch.Cancelled:
		b.act(dispatch.Cancel, id)
	default:
		a := b.startsAmong(s, key)
		if sit.after != "" {
			r := result(a, sit.state, sit.after)
			r.Wait, r.Detail = sit.wait, "because"
			b.settles(s, r)
		}
		return id, behind
	}
	return id, behind
}

func testActions(b *bench) {
	s := b.session("a")
	for i, sit := range situations() {
		for _, a := range []dispatch.Action{dispatch.Retry, dispatch.RetryUnknown, dispatch.Skip, dispatch.Cancel} {
			id, behind := b.arrange(s, sit, fmt.Sprintf("%d %s", i, a))
			b.shows(id, sit.state)
			may, refusal := strings.Contains(sit.may, string(a[0])), dispatch.ErrState
			switch {
			case a == dispatch.RetryUnknown:
				may = strings.ContainsAny(sit.may, "ru")
			case a == dispatch.Retry && strings.Contains(sit.may, "u"):
				refusal = dispatch.ErrUncertain
			}
			err := b.Admin.Act(b.ctx, q, id, a, "operator")
			if may && err != nil || !may && !errors.Is(err, refusal) {
				b.Errorf("%s of one that is %s: %v", a, sit.name, err)
			}
			b.shows(behind, dispatch.Queued)
			want := sit.state
			switch {
			case !may:
			case a.Retries():
				want = dispatch.Queued
			case a == dispatch.Cancel:
				want = dispatch.Cancelled
			case sit.state != dispatch.Invalid:
				want = dispatch.Failed
			}
			b.shows(id, want)
			if got := b.record(id); got.Blocks && (may || sit.after != dispatch.Block && sit.after != dispatch.Stuck) {
				b.Errorf("%s of one that is %s: it blocks", a, sit.name)
			}
		}
	}
}

func testRetryInPlace(b *bench) {
	s := b.session("a")
	for i, sit := range situations() {
		if sit.after != dispatch.Block && sit.after != dispatch.RetryLater {
			continue
		}
		key := fmt.Sprint("k", i)
		id, behind := b.arrange(s, sit, key)
		b.act(sit.retry(), id)
		if got := b.record(id); got.State != dispatch.Queued || got.Seq != 1 || got.Blocks || got.Attempts != 0 || !got.Ended.IsZero() {
			b.Errorf("%s, then retried: %+v", sit.name, got)
		}
		if err := b.Admin.Act(b.ctx, q, id, dispatch.Cancel, "operator"); !errors.Is(err, dispatch.ErrState) {
			b.Errorf("%s, then retried: cancelled though it had been sent: %v", sit.name, err)
		}
		a := b.starts(s, key)
		b.is(a, dispatch.Send, id, 1)
		a = b.settles(s, done(a), claimOf(a)).Begun[0]
		b.is(a, dispatch.Send, behind, 1)
		b.settles(s, done(a))
	}
}

func testRetryAtEnd(b *bench) {
	s := b.session("a")
	for i, sit := range situations() {
		if !sit.state.IsFinal() || sit.state == dispatch.Committed || sit.after == dispatch.Block {
			continue
		}
		key := fmt.Sprint("k", i)
		ids := []string{key + " 1", key + " 2", key + " 3"}
		b.add(key, ids...)
		want := []string{ids[1], ids[2], ids[0]}
		if sit.state == dispatch.Cancelled {
			b.act(dispatch.Cancel, ids[0])
		} else {
			a := b.starts(s, key)
			b.settles(s, result(a, sit.state, sit.after))
			if err := b.Claims.Release(b.ctx, dispatch.Space(q), s.ID, []claim.Claim{claimOf(a)}); err != nil {
				b.Fatal(err)
			}
		}
		b.act(dispatch.Retry, ids[0])
		if got := b.record(ids[0]); got.Seq != 4 || got.State != dispatch.Queued || got.Attempts != 0 || !got.Ended.IsZero() {
			b.Errorf("%s, then retried: %+v", sit.name, got)
		}
		if got := b.drains(s)[key]; !same(got, want) {
			b.Errorf("%s, then retried: delivered %q, want %q", sit.name, got, want)
		}
		// … and once more, when the key has nothing else to do.
		b.add(key, key+" 4")
		a := b.starts(s, key)
		b.settles(s, result(a, dispatch.Invalid, dispatch.Next))
		b.act(dispatch.Retry, key+" 4")
		if got := b.drains(s)[key]; !same(got, []string{key + " 4"}) {
			b.Errorf("retried in an idle key: delivered %q", got)
		}
	}
	// Its age counts from then on, and its history from when it was queued first.
	b.add("old", "old")
	b.settles(s, result(b.starts(s, "old"), dispatch.Invalid, dispatch.Next))
	before := b.record("old").Trail
	b.step(time.Hour)
	b.act(dispatch.Retry, "old")
	if a := b.starts(b.session("later"), "old"); !near(a.Age, 0) {
		b.Errorf("retried at the end, it is %v old", a.Age)
	}
	equal := func(x, y dispatch.TrailEntry) bool { return x.At.Equal(y.At) && x.State == y.State }
	if got := b.record("old").Trail; len(got) < len(before) || !slices.EqualFunc(got[:len(before)], before, equal) {
		b.Errorf("the trail was %+v; retried at the end, it is %+v", before, got)
	}
}

func testSkip(b *bench) {
	s := b.session("a")
	for i, sit := range situations() {
		if sit.after != dispatch.Block && sit.after != dispatch.RetryLater {
			continue
		}
		key := fmt.Sprint("k", i)
		id, behind := b.arrange(s, sit, key)
		b.act(dispatch.Skip, id)
		if got := b.record(id); got.Blocks || !got.State.IsFinal() || got.Ended.IsZero() || got.Seq != 1 {
			b.Errorf("%s, then skipped: %+v", sit.name, got)
		}
		a := b.starts(s, key) // at once, whatever the first one waited for
		b.is(a, dispatch.Send, behind, 1)
		// The last of a key, skipped, leaves it idle.
		r := result(a, sit.state, sit.after)
		r.Wait = sit.wait
		b.settles(s, r)
		b.act(dispatch.Skip, behind)
		if got := b.drains(s); len(got) != 0 {
			b.Errorf("%s, then skipped: %q were delivered", sit.name, got)
		}
		b.add(key, key+" 3")
		if got := b.drains(s)[key]; !same(got, []string{key + " 3"}) {
			b.Errorf("%s, then skipped: %q were delivered", sit.name, got)
		}
	}
}

func testCancel(b *bench) {
	s := b.session("a")
	b.add("k", "1", "2", "3", "4")
	b.act(dispatch.Cancel, "3")
	b.act(dispatch.Cancel, "1")
	if got := b.record("1"); got.State != dispatch.Cancelled || got.Ended.IsZero() || got.Seq != 1 {
		b.Errorf("cancelled: %+v", got)
	}
	if got := b.drains(s)["k"]; !same(got, []string{"2", "4"}) {
		b.Errorf("delivered %q", got)
	}
	b.add("k", "5", "6")
	b.act(dispatch.Cancel, "5")
	b.act(dispatch.Cancel, "6")
	if got := b.drains(s); len(got) != 0 {
		b.Errorf("delivered %q", got)
	}
	b.add("k", "7")
	a := b.starts(s, "k")
	if b.is(a, dispatch.Send, "7", 1); a.Seq != 7 {
		b.Errorf("seq %d, want 7", a.Seq)
	}
}

// testActInFlight: what may have been sent is not taken out, nor sent again.
func testActInFlight(b *bench) {
	refused := func(when, id string, actions ...dispatch.Action) {
		b.Helper()
		for _, a := range actions {
			if err := b.Admin.Act(b.ctx, q, id, a, "operator"); !errors.Is(err, dispatch.ErrState) {
				b.Errorf("%s: %s is %v, want ErrState", when, a, err)
			}
		}
	}
	s := b.session("a")
	b.add("k", "1", "2")
	a := b.starts(s, "k")
	refused("in a step", "1", dispatch.Retry, dispatch.Skip, dispatch.Cancel)
	b.settles(s, result(a, dispatch.Delayed, dispatch.RetryLater))
	a = b.starts(s, "k")
	refused("in a step, again", "1", dispatch.Retry, dispatch.Skip, dispatch.Cancel)
	b.step(window + slack)
	refused("past the window", "1", dispatch.Cancel)
	other := b.session("c")
	c := b.takes(other, "k")[0]
	refused("interrupted", "1", dispatch.Cancel)
	b.is(b.begins(other, c), dispatch.Resolve, "1", 2)
	refused("asked for", "1", dispatch.Retry, dispatch.RetryUnknown, dispatch.Skip, dispatch.Cancel)
	b.shows("1", dispatch.Unknown) // all the while
	if keys, err := b.Admin.Keys(b.ctx, dispatch.KeyQuery{Queue: q}); err != nil || len(keys) != 1 || keys[0].State != dispatch.Unknown || !keys[0].InStep {
		b.Errorf("asked for: the keys are %+v, %v", keys, err)
	}
	if rows := b.rows(dispatch.MessageQuery{Queue: q, State: dispatch.Unknown}); len(rows) != 1 || rows[0].ID != "1" {
		b.Errorf("asked for: of unknown outcome are %+v", rows)
	}
	_ = a
}

func testActNothing(b *bench) {
	b.add("k", "1")
	if err := b.Admin.Act(b.ctx, q, "none", dispatch.Retry, "x"); !errors.Is(err, dispatch.ErrNoMessage) {
		b.Errorf("an unknown message: %v, want ErrNoMessage", err)
	}
	if err := b.Admin.Act(b.ctx, "none", "1", dispatch.Retry, "x"); !errors.Is(err, dispatch.ErrNoMessage) && !errors.Is(err, dispatch.ErrNoQueue) {
		b.Errorf("an unknown queue: %v", err)
	}
	if err := b.Admin.Act(b.ctx, q, "1", "explode", "x"); err == nil {
		b.Error("an unknown action is accepted")
	}
	b.shows("1", dispatch.Queued)
}

// testActRecorded: the history says the same in every store, of keys that block and of actions.
func testActRecorded(b *bench) {
	for i, a := range []dispatch.Action{dispatch.Retry, dispatch.Skip, dispatch.Cancel} {
		s := b.session("a")
		holder := s.Instance.Label()
		key, who := fmt.Sprint("k", i), "somebody-"+string(a)
		id := key + " 1"
		b.add(key, id)
		was := string(a) + " by " + who + ": "
		var want []history.Event
		switch a {
		case dispatch.Cancel:
			want = []history.Event{{Reason: was + "queued, " + id}}
		case dispatch.Skip: // without a detail
			r := result(b.starts(s, key), dispatch.Invalid, dispatch.Block)
			b.settles(s, r)
			want = []history.Event{{From: holder, To: holder, Term: r.Term, Reason: "blocked: invalid"}, {Term: r.Term, Reason: was + "invalid, " + id}}
		default:
			r := result(b.starts(s, key), dispatch.Failed, dispatch.Block)
			r.Detail = "no such address"
			b.settles(s, r)
			want = []history.Event{{From: holder, To: holder, Term: r.Term, Reason: "blocked: no such address"}, {Term: r.Term, Reason: was + "failed, no such address"}}
		}
		b.step(3 * time.Minute)
		want[len(want)-1].Duration = 3 * time.Minute // for so long it was in that state
		if err := b.Admin.Act(b.ctx, q, id, a, who); err != nil {
			b.Fatalf("%s: %v", a, err)
		}
		b.wantEvents(key, want...)
		trail := b.record(id).Trail
		if len(trail) == 0 || !strings.Contains(trail[len(trail)-1].Detail, who) {
			b.Errorf("%s: the message's history tells %+v", a, trail)
		}
		b.drains(s)
	}
}

// Waking.
