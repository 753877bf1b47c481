package dispatchtest

import (
	"fmt"
	"slices"
	"time"

	"github.com/understudy-ha/understudy/dispatch"
)

func testTrail(b *bench) {
	s := b.session("a")
	b.add("happy", "h")
	a := b.starts(s, "happy")
	b.settles(s, done(a))
	got := b.record("h")
	if states := statesOf(got.Trail); !slices.Equal(states, []dispatch.State{dispatch.Queued, dispatch.Submitting, dispatch.Committed}) {
		b.Errorf("committed at once: %q", states)
	}
	if got.Begun.IsZero() || got.Ended.Before(got.Begun) || got.Begun.Before(got.Enqueued) || got.Attempts != 1 || got.Term != a.Term || got.Code != 200 {
		b.Errorf("committed at once: %+v", got)
	}
	last := got.Trail[len(got.Trail)-1]
	if last.Term != a.Term || last.Attempt != 1 || last.Code != 200 || !last.At.Equal(got.Ended) {
		b.Errorf("its last step is %+v", last)
	}

	b.add("long", "l")
	a = b.starts(s, "long")
	want := []dispatch.TrailEntry{}
	result := func(state dispatch.State, after dispatch.After, code int, detail string) {
		b.Helper()
		r := result(a, state, after)
		r.Code, r.Detail = code, detail
		want = append(want, dispatch.TrailEntry{State: state, Term: a.Term, Attempt: a.Attempt, Code: code, Detail: detail})
		b.settles(s, r)
		switch after {
		case dispatch.RetryLater:
			a = b.starts(s, "long")
		case dispatch.Hold:
			a = b.begins(s, claimOf(a))
		}
	}
	result(dispatch.Delayed, dispatch.RetryLater, 503, "busy")
	result(dispatch.Unknown, dispatch.RetryLater, 0, "no answer")
	result(dispatch.Pending, dispatch.Hold, 202, "has it")
	result(dispatch.Valid, dispatch.Hold, 200, "executed it")
	result(dispatch.Invalid, dispatch.Block, 200, "refused it")
	b.act(dispatch.Retry, "l")
	a = b.starts(s, "long")
	result(dispatch.Failed, dispatch.Next, 404, "gave up")

	trail := b.record("l").Trail
	if !slices.IsSortedFunc(trail, func(a, b dispatch.TrailEntry) int { return a.At.Compare(b.At) }) {
		b.Errorf("a trail that is not in order: %+v", trail)
	}
	if len(trail) == 0 || trail[0].State != dispatch.Queued || trail[0].At.IsZero() {
		b.Errorf("a trail that begins with %+v", trail)
	}
	i := 0
	for _, n := range trail {
		n.At = time.Time{}
		if i < len(want) && n == want[i] {
			i++
		}
	}
	if i < len(want) {
		b.Errorf("the trail\n %+v\nlacks, in their order,\n %+v", trail, want[i:])
	}
}

// testActTrail: what an action leaves of the attempts before is the same in every store.
func testActTrail(b *bench) {
	for i, c := range []struct {
		state  dispatch.State
		after  dispatch.After
		action dispatch.Action
		want   dispatch.TrailEntry
	}{
		{dispatch.Delayed, dispatch.RetryLater, dispatch.Retry, dispatch.TrailEntry{State: dispatch.Queued}},
		{dispatch.Unknown, dispatch.Block, dispatch.RetryUnknown, dispatch.TrailEntry{State: dispatch.Queued}},
		{dispatch.Invalid, dispatch.Next, dispatch.Retry, dispatch.TrailEntry{State: dispatch.Queued}},
		{dispatch.Failed, dispatch.Block, dispatch.Skip, dispatch.TrailEntry{State: dispatch.Failed, Attempt: 1, Code: 503}},
	} {
		s, key := b.session("a"), fmt.Sprint("k", i)
		b.add(key, key)
		r := result(b.starts(s, key), c.state, c.after)
		r.Code = 503
		b.settles(s, r)
		b.act(c.action, key)
		got := b.record(key)
		last := got.Trail[len(got.Trail)-1]
		c.want.At, c.want.Detail, c.want.Term, c.want.Action = last.At, last.Detail, r.Term, c.action
		if last != c.want || got.Term != r.Term || got.Code != c.want.Code || got.Attempts != c.want.Attempt {
			b.Errorf("%s of one that is %s: %+v, want %+v; the message is %+v", c.action, c.state, last, c.want, got)
		}
		b.drains(s)
	}
}

func statesOf(trail []dispatch.TrailEntry) (out []dispatch.State) {
	for _, n := range trail {
		out = append(out, n.State)
	}
	return out
}

func testTrailBounded(b *bench) {
	s := b.session("a")
	for _, retried := range []bool{false, true} {
		key := fmt.Sprint("retried ", retried)
		b.add(key, key)
		if retried {
			b.settles(s, result(b.starts(s, key), dispatch.Unknown, dispatch.Block))
			b.act(dispatch.RetryUnknown, key)
		}
		for i := range dispatch.MaxTrail + 5 {
			a := b.starts(s, key)
			if a.Retried != retried { // the target is asked before each
				b.Fatalf("%s: attempt %d says %t", key, i, a.Retried)
			}
			r := result(a, dispatch.Delayed, dispatch.RetryLater)
			r.Detail = fmt.Sprint("no ", i)
			b.settles(s, r)
		}
		got := b.record(key)
		if n := len(got.Trail); n > dispatch.MaxTrail || n < dispatch.MaxTrail/2 || got.Trail[0].State != dispatch.Queued {
			b.Errorf("%s: the trail has %d entries, the first %+v", key, n, got.Trail[0])
		}
		if n := got.Trail[len(got.Trail)-1]; n.Detail != fmt.Sprint("no ", dispatch.MaxTrail+4) || n.Attempt != dispatch.MaxTrail+5 {
			b.Errorf("%s: its last entry is %+v", key, n)
		}
		b.settles(s, done(b.starts(s, key)))
	}
}
