package dispatchtest

import (
	"errors"
	"fmt"

	"github.com/understudy-ha/understudy/claim"
	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/history"
)

// removeRefused expects that the queue stays.
func (b *bench) removeRefused(messages int64) {
	b.Helper()
	if err := b.Admin.RemoveQueue(b.ctx, q, messages, "operator"); !errors.Is(err, dispatch.ErrState) {
		b.Errorf("RemoveQueue with %d messages: %v, want ErrState", messages, err)
	}
}

func (b *bench) removes(messages int64) {
	b.Helper()
	if err := b.Admin.RemoveQueue(b.ctx, q, messages, "operator"); err != nil {
		b.Fatalf("RemoveQueue with %d messages: %v", messages, err)
	}
	if _, err := b.Admin.Add(b.ctx, []dispatch.Message{{Queue: q, Key: "k", ID: "late"}}); !errors.Is(err, dispatch.ErrNoQueue) {
		b.Errorf("Add to a queue that was removed: %v, want ErrNoQueue", err)
	}
	all, err := b.Admin.Queues(b.ctx)
	for _, o := range all {
		if o.Queue == q {
			b.Errorf("it is still listed: %+v", o)
		}
	}
	if err != nil {
		b.Error(err)
	}
	told, err := b.Store.Read(b.ctx, history.Query{Part: "batch", Subject: q, Newest: true, Limit: 1})
	if want := fmt.Sprintf("queue removed with %d messages by operator", messages); err != nil || len(told) != 1 || told[0].Reason != want {
		b.Errorf("the history says %+v, %v; want %s", told, err, want)
	}
}

func testRemove(b *bench) {
	if err := b.Admin.CreateQueue(b.ctx, "other"); err != nil {
		b.Fatal(err)
	}
	if _, err := b.Admin.Add(b.ctx, []dispatch.Message{{Queue: "other", Key: "k", ID: "kept"}}); err != nil {
		b.Fatal(err)
	}
	s := b.session("s")
	b.add("k", "a", "b", "c", "d")
	first := b.starts(s, "k")
	dead := b.settles(s, result(first, dispatch.Invalid, dispatch.Next), claimOf(first)).Begun[0]
	b.settles(s, done(dead))
	// a is a dead letter, b is committed, and c and d wait.
	b.act(dispatch.Cancel, "d")
	for _, wrong := range []int64{0, 1, 3, 4} {
		b.removeRefused(wrong)
	}
	b.shows("c", dispatch.Queued)
	b.shows("b", dispatch.Committed)
	b.removes(2)
	if err := b.Admin.RemoveQueue(b.ctx, q, 0, "operator"); !errors.Is(err, dispatch.ErrNoQueue) {
		b.Errorf("RemoveQueue again: %v, want ErrNoQueue", err)
	}
	if r, err := b.Admin.Message(b.ctx, "other", "kept"); err != nil || r.State != dispatch.Queued {
		b.Errorf("a message of another queue: %+v, %v", r, err)
	}

	// Made again, it is empty, and takes the same ids.
	if err := b.Admin.CreateQueue(b.ctx, q); err != nil {
		b.Fatal(err)
	}
	if keys, err := b.Admin.Keys(b.ctx, dispatch.KeyQuery{Queue: q, Idle: true}); err != nil || len(keys) != 0 {
		b.Errorf("a queue that was made again has keys %+v, %v", keys, err)
	}
	b.add("k", "a")
	if got := b.record("a"); got.Seq != 1 || got.State != dispatch.Queued {
		b.Errorf("its first message is %+v", got)
	}
	b.is(b.starts(b.session("t"), "k"), dispatch.Send, "a", 1)
}

func testRemoveJoined(b *bench) {
	s := b.session("s")
	if _, err := b.Claims.Join(b.ctx, claim.Member{Space: dispatch.Space(q), Session: s.ID}); err != nil {
		b.Fatal(err)
	}
	b.removeRefused(0)
	if err := b.Store.EndSession(b.ctx, s.ID, "stopped"); err != nil {
		b.Fatal(err)
	}
	b.removes(0)
}

// testRemoveMany: more than one transaction deletes.
func testRemoveMany(b *bench) {
	const keys, each = 30, 100
	for k := range keys {
		var ids []string
		for i := range each {
			ids = append(ids, fmt.Sprintf("%d-%d", k, i))
		}
		b.add(fmt.Sprint("k", k), ids...)
	}
	b.removes(keys * each)
	if err := b.Admin.CreateQueue(b.ctx, q); err != nil {
		b.Fatal(err)
	}
	if left, err := b.Admin.Messages(b.ctx, dispatch.MessageQuery{Queue: q}); err != nil || len(left) != 0 {
		b.Errorf("a queue that was made again has %d messages, %v", len(left), err)
	}
}
