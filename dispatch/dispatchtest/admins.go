package dispatchtest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/understudy-ha/understudy/dispatch"
)

// queue is the overview of the suite's queue.
func (b *bench) queue() dispatch.Overview {
	b.Helper()
	all, err := b.Admin.Queues(b.ctx)
	if err != nil {
		b.Fatalf("Queues: %v", err)
	}
	for _, o := range all {
		if o.Queue == q {
			return o
		}
	}
	b.Fatalf("Queues = %+v", all)
	return dispatch.Overview{}
}

// checkOverview compares the queue's overview; the age of the oldest is approximate.
func (b *bench) checkOverview(when string, want dispatch.Overview) {
	b.Helper()
	got := b.queue()
	if !near(got.Oldest, want.Oldest) {
		b.Errorf("%s: the oldest waits for %v, want %v", when, got.Oldest, want.Oldest)
	}
	got.Oldest, want.Oldest, want.Queue = 0, 0, q
	if len(got.Holders) == 0 {
		got.Holders = nil
	}
	if diff := cmp.Diff(want, got); diff != "" {
		b.Errorf("%s: %s", when, diff)
	}
}

func testQueues(b *bench) {
	for _, name := range []string{"zz", "aa"} {
		if err := b.Admin.CreateQueue(b.ctx, name); err != nil {
			b.Fatal(err)
		}
	}
	all, err := b.Admin.Queues(b.ctx)
	if err != nil || len(all) != 3 || all[0].Queue != "aa" || all[1].Queue != q || all[2].Queue != "zz" {
		b.Fatalf("Queues = %+v, %v", all, err)
	}
	check := b.checkOverview
	check("empty", dispatch.Overview{})
	s, c := b.session("a"), b.session("c")
	b.join(s, false)
	b.join(c, true)
	holders := func(n int) []dispatch.HolderCount {
		return []dispatch.HolderCount{{Instance: s.Instance, Keys: n}, {Instance: c.Instance, Asleep: true}}
	}
	b.add("blocked", "b1", "b2")
	t := b.turn(s, nil, b.takes(s, "blocked")...)
	b.settles(s, result(t.Begun[0], dispatch.Failed, dispatch.Block))
	b.step(time.Minute)
	b.add("delayed", "d1", "d2", "d3")
	r := result(b.starts(s, "delayed"), dispatch.Delayed, dispatch.RetryLater)
	r.Wait = time.Hour
	b.settles(s, r)
	b.add("done", "x1", "x2", "x3")
	b.act(dispatch.Cancel, "x3")
	if got := b.drains(s)["done"]; len(got) != 2 {
		b.Fatalf("delivered %q", got)
	}
	b.add("pending", "p1")
	b.settles(s, result(b.starts(s, "pending"), dispatch.Pending, dispatch.Hold))
	b.add("step", "s1", "s2")
	b.starts(s, "step")
	b.join(c, false) // the next one wakes nobody
	b.add("waits", "w1", "w2")
	b.act(dispatch.Cancel, "w2")
	b.join(c, true)
	b.step(time.Minute)
	want := dispatch.Overview{
		Depth: 9, Done: 4, Oldest: 2 * time.Minute, Keys: 5, InStep: 1, Pending: 1, Delayed: 1, Blocked: 1, Holders: holders(2),
	}
	got := b.queue().Holders
	if len(got) == 2 && got[0].Instance == c.Instance { // their order is free
		want.Holders[0], want.Holders[1] = want.Holders[1], want.Holders[0]
	}
	check("full", want)
	b.act(dispatch.Skip, "b1")
	want.Depth, want.DeadLetters, want.Blocked = 8, 1, 0
	for i := range want.Holders {
		want.Holders[i].Asleep = false // it was woken
	}
	check("unblocked", want)
	b.step(timing.Timeout)
	if got := b.queue().Holders; len(got) != 0 {
		b.Errorf("holders that are dead: %+v", got)
	}
}

// keyNames lists the keys that a query selects.
func (b *bench) keyNames(k dispatch.KeyQuery) (out []string) {
	b.Helper()
	k.Queue = q
	rows, err := b.Admin.Keys(b.ctx, k)
	if err != nil {
		b.Fatalf("Keys(%+v): %v", k, err)
	}
	for _, r := range rows {
		out = append(out, r.Key)
	}
	return out
}

func testKeys(b *bench) {
	s := b.session("a")
	b.add("B", "1", "2", "3")
	b.add("a", "4", "5")
	b.add("c", "6")
	b.add("idle", "7")
	b.add("step", "8", "9")
	t := b.turn(s, nil, b.takes(s, "B", "a", "idle", "step", "c")...)
	var results []dispatch.Result
	for _, a := range t.Begun {
		r := done(a)
		switch a.Key {
		case "B":
			r.State, r.After, r.Detail = dispatch.Invalid, dispatch.Block, "no such thing"
		case "a":
			r.State, r.After, r.Wait, r.Detail = dispatch.Delayed, dispatch.RetryLater, time.Hour, "busy"
		case "c":
			r.State, r.After = dispatch.Failed, dispatch.Block
		case "step":
			continue
		}
		results = append(results, r)
	}
	b.turn(s, results)
	b.step(time.Minute)
	names := b.keyNames
	for _, c := range []struct {
		query dispatch.KeyQuery
		want  []string
	}{
		{dispatch.KeyQuery{}, []string{"B", "a", "c", "step"}},
		{dispatch.KeyQuery{Idle: true}, []string{"B", "a", "c", "idle", "step"}},
		{dispatch.KeyQuery{Blocked: true}, []string{"B", "c"}},
		{dispatch.KeyQuery{After: "B", Limit: 2}, []string{"a", "c"}},
		{dispatch.KeyQuery{After: "B", Blocked: true}, []string{"c"}},
		{dispatch.KeyQuery{After: "step"}, nil},
	} {
		if got := names(c.query); !same(got, c.want) {
			b.Errorf("%+v: %q, want %q", c.query, got, c.want)
		}
	}
	rows, err := b.Admin.Keys(b.ctx, dispatch.KeyQuery{Queue: q, Idle: true})
	if err != nil || len(rows) != 5 {
		b.Fatalf("Keys = %+v, %v", rows, err)
	}
	for _, r := range rows {
		if r.Key != "idle" && !near(r.Waiting, time.Minute) || r.Term == 0 {
			b.Errorf("%+v", r)
		}
	}
	if r := rows[0]; r.Depth != 3 || r.Head != "1" || r.State != dispatch.Invalid || !r.Blocked || r.Reason != "no such thing" || r.InStep || r.Holder.ID != "" {
		b.Errorf("blocked: %+v", r)
	}
	if r := rows[1]; r.Depth != 2 || r.Head != "4" || r.State != dispatch.Delayed || r.Blocked || r.Reason != "busy" || !near(r.Next, time.Hour-time.Minute) {
		b.Errorf("delayed: %+v", r)
	}
	if r := rows[3]; r.Depth != 0 || r.Head != "" || r.State != "" {
		b.Errorf("idle: %+v", r)
	}
	if r := rows[4]; r.Depth != 2 || r.Head != "8" || r.State != dispatch.Submitting || !r.InStep || r.Holder != s.Instance {
		b.Errorf("in a step: %+v", r)
	}
	if _, err := b.Admin.Keys(b.ctx, dispatch.KeyQuery{Queue: "none"}); !errors.Is(err, dispatch.ErrNoQueue) {
		b.Errorf("Keys of an unknown queue: %v, want ErrNoQueue", err)
	}
}

func (b *bench) rows(query dispatch.MessageQuery) []dispatch.Record {
	b.Helper()
	rows, err := b.Admin.Messages(b.ctx, query)
	if err != nil {
		b.Fatalf("Messages(%+v): %v", query, err)
	}
	return rows
}

func testMessages(b *bench) {
	s := b.session("a")
	b.add("b", "4", "5", "6")
	b.add("a", "1", "2", "3")
	t := b.turn(s, nil, b.takes(s, "b", "a")...)
	for _, a := range t.Begun {
		if a.Key == "a" {
			b.settles(s, done(a), claimOf(a)) // and "2" is under way
			continue
		}
		b.settles(s, result(a, dispatch.Invalid, dispatch.Block))
	}
	b.act(dispatch.Cancel, "5")
	for _, c := range []struct {
		query dispatch.MessageQuery
		want  string
	}{
		{dispatch.MessageQuery{}, "1 2 3 4 5 6"},
		{dispatch.MessageQuery{Limit: 2}, "1 2"},
		{dispatch.MessageQuery{AfterKey: "a", AfterSeq: 2, Limit: 3}, "3 4 5"},
		{dispatch.MessageQuery{AfterKey: "a", AfterSeq: 3}, "4 5 6"},
		{dispatch.MessageQuery{AfterKey: "b", AfterSeq: 3}, ""},
		{dispatch.MessageQuery{Key: "b"}, "4 5 6"},
		{dispatch.MessageQuery{Key: "b", AfterKey: "b", AfterSeq: 1}, "5 6"},
		{dispatch.MessageQuery{Key: "none"}, ""},
		{dispatch.MessageQuery{State: dispatch.Queued}, "3 6"},
		{dispatch.MessageQuery{State: dispatch.Queued, AfterKey: "a", AfterSeq: 3}, "6"},
		{dispatch.MessageQuery{State: dispatch.Submitting}, "2"},
		{dispatch.MessageQuery{State: dispatch.Committed}, "1"},
		{dispatch.MessageQuery{State: dispatch.Invalid}, "4"},
		{dispatch.MessageQuery{State: dispatch.Cancelled}, "5"},
		{dispatch.MessageQuery{State: dispatch.Pending}, ""},
		{dispatch.MessageQuery{State: dispatch.Cancelled, Key: "a"}, ""},
		{dispatch.MessageQuery{IDs: []string{"6", "none", "1"}}, "1 6"},
		{dispatch.MessageQuery{IDs: []string{"6", "1"}, Key: "b"}, "6"},
	} {
		c.query.Queue = q
		var got []string
		for _, r := range b.rows(c.query) {
			got = append(got, r.ID)
			if r.Payload != nil || r.Trail != nil || r.Size != 1 || r.Queue != q || r.Key == "" || r.Seq == 0 || r.Enqueued.IsZero() || r.ContentType == "" {
				b.Errorf("%+v lists %+v", c.query, r)
			}
		}
		if len(c.query.IDs) > 0 {
			slices.Sort(got) // their order is free
		}
		if strings.Join(got, " ") != c.want {
			b.Errorf("%+v: %q, want %q", c.query, got, c.want)
		}
	}
	for _, state := range dispatch.States() {
		for _, r := range b.rows(dispatch.MessageQuery{Queue: q, State: state}) {
			if r.State != state {
				b.Errorf("among the %s: %+v", state, r)
			}
		}
	}
	if _, err := b.Admin.Messages(b.ctx, dispatch.MessageQuery{Queue: "none"}); !errors.Is(err, dispatch.ErrNoQueue) {
		b.Errorf("Messages of an unknown queue: %v, want ErrNoQueue", err)
	}
}

func testBatch(b *bench) {
	b.add("k", "1")
	got, err := b.Admin.Message(b.ctx, "", "1")
	if err != nil {
		b.Fatalf("Batch without a queue: %v", err)
	}
	if got.Queue != q || got.Key != "k" || got.Seq != 1 || got.State != dispatch.Queued || got.Attempts != 0 || got.Enqueued.IsZero() || !got.Begun.IsZero() || !got.Ended.IsZero() {
		b.Errorf("Batch = %+v", got)
	}
	for _, queue := range []string{"", q} {
		if _, err := b.Admin.Message(b.ctx, queue, "none"); !errors.Is(err, dispatch.ErrNoMessage) {
			b.Errorf("no such message in %q: %v, want ErrNoMessage", queue, err)
		}
	}
	if _, err := b.Admin.Message(b.ctx, "none", "1"); !errors.Is(err, dispatch.ErrNoMessage) && !errors.Is(err, dispatch.ErrNoQueue) {
		b.Errorf("no such queue: %v", err)
	}
}

// Pruning.

// prunes prunes in steps until it is through, and returns how many are gone.
func (b *bench) prunes(keep time.Duration, limit int) (total int) {
	b.Helper()
	throughs := 0
	for range 1000 {
		n, through, err := b.Queue.Prune(b.ctx, q, keep, limit)
		if err != nil {
			b.Fatalf("Prune: %v", err)
		}
		if n > limit {
			b.Errorf("a step of %d deleted %d", limit, n)
		}
		total += n
		if through {
			throughs++
		}
		if throughs == 2 { // the first may have started in the middle
			return total
		}
	}
	b.Fatalf("Prune is never through; %d are gone", total)
	return 0
}

func testPrune(b *bench) {
	s := b.session("a")
	for i, sit := range situations() {
		b.arrange(s, sit, fmt.Sprintf("%02d %s", i, sit.name))
	}
	b.step(time.Hour)
	s = b.session("late")
	b.add("new", "new 1")
	a := b.startsAmong(s, "new")
	b.settles(s, done(a))
	left := func() (out []string) {
		for _, r := range b.rows(dispatch.MessageQuery{Queue: q}) {
			out = append(out, r.ID)
		}
		return out
	}
	before := left()
	if n := b.prunes(24*time.Hour, 3); n != 0 {
		b.Errorf("%d were pruned that are to be kept for a day", n)
	}
	if n := b.prunes(30*time.Minute, 3); n != 4 {
		b.Errorf("%d were pruned, want the 4 that are over: committed, invalid, failed, cancelled", n)
	}
	after := left()
	for _, id := range before {
		r := strings.TrimSuffix(id, " 1")
		gone := r != id && (strings.HasSuffix(r, " committed") || strings.HasSuffix(r, " invalid") || strings.HasSuffix(r, " failed") || strings.HasSuffix(r, " cancelled"))
		if gone == slices.Contains(after, id) {
			b.Errorf("%q: pruned is %t, want %t", id, !gone, gone)
		}
	}
	if n := b.prunes(0, 100); n > 1 {
		b.Errorf("%d more were pruned", n)
	}
}

func testPruneSeq(b *bench) {
	s := b.session("a")
	b.add("k", "1", "2", "3")
	b.drains(s)
	b.step(time.Hour)
	if n := b.prunes(time.Minute, 10); n != 3 {
		b.Errorf("%d pruned", n)
	}
	if rows := b.rows(dispatch.MessageQuery{Queue: q}); len(rows) != 0 {
		b.Errorf("left: %+v", rows)
	}
	if _, err := b.Admin.Message(b.ctx, q, "1"); !errors.Is(err, dispatch.ErrNoMessage) {
		b.Errorf("a pruned message: %v, want ErrNoMessage", err)
	}
	s = b.session("c")
	b.add("k", "4", "5")
	a := b.starts(s, "k")
	if b.is(a, dispatch.Send, "4", 1); a.Seq != 4 {
		b.Errorf("after all were pruned, the next number is %d, want 4", a.Seq)
	}
	if o := b.queue(); o.Depth != 2 || o.Done != 3 {
		b.Errorf("%+v", o)
	}
}

func testPruneSteps(b *bench) {
	const keys, each = 7, 9
	s := b.session("a")
	for k := range keys {
		for i := range each {
			b.add(fmt.Sprint("k", k), fmt.Sprintf("%d %d", k, i))
		}
	}
	b.drains(s)
	b.step(time.Hour)
	if n := b.prunes(time.Minute, 4); n != keys*each {
		b.Errorf("%d of %d were pruned in steps of 4", n, keys*each)
	}
}
