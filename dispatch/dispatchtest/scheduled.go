package dispatchtest

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/understudy-ha/understudy/claim"
	"github.com/understudy-ha/understudy/claim/claimtest"
	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/history"
	"github.com/understudy-ha/understudy/lease"
)

// storeNow is the store's time, as it stamps messages with it.
func (b *bench) storeNow() time.Time {
	b.Helper()
	id := "probe " + lease.NewID()
	b.add("probe", id)
	at := b.record(id).Enqueued
	b.act(dispatch.Cancel, id)
	b.drains(b.session("probe")) // the key is idle again
	return at
}

// schedules enqueues messages of one key that are due at a time; each one's payload is its id.
func (b *bench) schedules(key string, due time.Time, ids ...string) {
	b.Helper()
	for _, id := range ids {
		b.wantAdded(true, dispatch.Message{Queue: q, Key: key, ID: id, Payload: []byte(id), NotBefore: due})
	}
}

func (b *bench) wantAdded(want bool, m dispatch.Message) {
	b.Helper()
	if added, err := b.Admin.Add(b.ctx, []dispatch.Message{m}); err != nil || !slices.Equal(added, []bool{want}) {
		b.Fatalf("Add(%q) = %v, %v; want %v", m.ID, added, err, want)
	}
}

// enqueuesDue lets in what is due, and expects that many.
func (b *bench) enqueuesDue(limit, want int) {
	b.Helper()
	if n, err := b.Queue.EnqueueDue(b.ctx, q, limit); err != nil || n != want {
		b.Fatalf("EnqueueDue(%d) = %d, %v; want %d", limit, n, err, want)
	}
}

// saysDue expects that a member of the queue's space is told whether something is due.
func (b *bench) saysDue(s lease.Session, want bool) {
	b.Helper()
	got, err := b.Claims.Join(b.ctx, claim.Member{Space: dispatch.Space(q), Session: s.ID})
	if err != nil || got.Due != want {
		b.Errorf("Join = %+v, %v; want Due %v", got, err, want)
	}
}

// testScheduled: nothing of it is to be had before its time, and its key goes on meanwhile.
func testScheduled(b *bench) {
	now, s := b.storeNow(), b.session("a")
	m := dispatch.Message{Queue: q, Key: "k", ID: "later", Payload: []byte("later"), ContentType: "text/x", NotBefore: now.Add(time.Hour + 300*time.Nanosecond),
		Headers: map[string]string{"traceparent": "00-1"}}
	b.wantAdded(true, m)
	b.takes(s) // a key with nothing else is not ready
	b.add("k", "1")
	if got := b.drains(s); !cmp.Equal(got, map[string][]string{"k": {"1"}}) {
		b.Fatalf("before its time: %q", got)
	}
	due := now.Add(time.Hour + time.Microsecond)
	if got := b.record("later"); got.State != dispatch.Scheduled || !got.NotBefore.Equal(due) || got.Size != 5 || got.ContentType != "text/x" ||
		!cmp.Equal(got.Headers, m.Headers) || string(got.Payload) != "later" || !near(got.Enqueued.Sub(now), 0) || got.Key != "k" || len(got.Trail) != 1 || got.Trail[0].State != dispatch.Scheduled {
		b.Errorf("while it waits it is %+v", got)
	}
	b.enqueuesDue(10, 0)
	b.saysDue(s, false)
	b.step(59 * time.Minute)
	b.enqueuesDue(10, 0)
	s = b.session("b") // the other one has lapsed
	b.saysDue(s, false)
	b.takes(s)
	b.add("k", "2")
	a := b.starts(s, "k")
	b.step(2 * time.Minute)
	b.saysDue(s, true)
	b.enqueuesDue(10, 1)
	b.saysDue(s, false)
	b.is(a, dispatch.Send, "2", 1) // it overtakes nothing that is under way
	b.add("k", "3")
	a = b.settles(s, done(a), claimOf(a)).Begun[0]
	if b.is(a, dispatch.Send, "later", 1); !near(a.Age, time.Minute) || !cmp.Equal(a.Headers, m.Headers) || a.ContentType != "text/x" || !a.NotBefore.IsZero() {
		b.Errorf("it is sent as %+v", a)
	}
	a = b.settles(s, done(a), claimOf(a)).Begun[0]
	b.is(a, dispatch.Send, "3", 1)
	if got := b.record("later"); got.State != dispatch.Committed || got.Seq != 3 || !got.NotBefore.IsZero() || !got.Enqueued.Equal(due) {
		b.Errorf("then it is %+v", got)
	}
	b.enqueuesDue(10, 0)
}

// testScheduledOrder: by their times, and at one time as they were enqueued, behind what is in the key already.
func testScheduledOrder(b *bench) {
	now := b.storeNow()
	b.schedules("k", now.Add(3*time.Hour), "5")
	b.schedules("k", now.Add(time.Hour), "2", "3")
	b.schedules("j", now.Add(time.Hour), "j1")
	b.schedules("k", now.Add(2*time.Hour), "4")
	b.schedules("k", now.Add(100*time.Hour), "never")
	b.add("k", "1")
	b.step(4 * time.Hour)
	for _, n := range []int{2, 2, 1, 0} {
		b.enqueuesDue(2, n)
	}
	b.add("k", "6")
	if got, want := b.drains(b.session("a")), map[string][]string{"k": {"1", "2", "3", "4", "5", "6"}, "j": {"j1"}}; !cmp.Equal(got, want) {
		b.Errorf("delivered %q, want %q", got, want)
	}
}

// testScheduledPast: a time that has come is none.
func testScheduledPast(b *bench) {
	now, s := b.storeNow(), b.session("a")
	b.schedules("k", now.Add(-time.Hour), "1")
	b.schedules("k", time.Unix(0, 0), "2")
	b.add("k", "3")
	if got := b.record("1"); got.State != dispatch.Queued || got.Seq != 1 || !got.NotBefore.IsZero() || !near(got.Enqueued.Sub(now), 0) {
		b.Errorf("one of the past is %+v", got)
	}
	if got := b.drains(s)["k"]; !same(got, []string{"1", "2", "3"}) {
		b.Errorf("delivered %q", got)
	}
	far := dispatch.Message{Queue: q, Key: "k", NotBefore: time.Date(10000, 1, 2, 0, 0, 0, 0, time.UTC)}
	if _, err := b.Admin.Add(b.ctx, []dispatch.Message{far}); !errors.Is(err, lease.ErrInvalid) {
		b.Errorf("in the year 10000: %v", err)
	}
	if _, err := b.Queue.EnqueueDue(b.ctx, "nowhere", 1); !errors.Is(err, dispatch.ErrNoQueue) {
		b.Errorf("EnqueueDue without a queue: %v", err)
	}
}

// testScheduledDuplicates: of one ID no more than one message is ever sent, and one without a time goes first.
func testScheduledDuplicates(b *bench) {
	due := b.storeNow().Add(time.Hour)
	plain := func(id string) dispatch.Message {
		return dispatch.Message{Queue: q, Key: "k", ID: id, Payload: []byte(id)}
	}
	later := func(id string) dispatch.Message { m := plain(id); m.NotBefore = due; return m }
	added, err := b.Admin.Add(b.ctx, []dispatch.Message{later("1"), later("1"), plain("2"), later("2"), later("3")})
	if err != nil || !slices.Equal(added, []bool{true, false, true, false, true}) {
		b.Errorf("in one call: %v, %v", added, err)
	}
	b.wantAdded(false, later("1"))
	b.wantAdded(false, later("2"))
	added, err = b.Admin.Add(b.ctx, []dispatch.Message{plain("3"), plain("2"), plain("4")})
	if err != nil || !slices.Equal(added, []bool{true, false, true}) {
		b.Errorf("without a time: %v, %v", added, err)
	}
	b.wantAdded(false, plain("3"))
	b.shows("3", dispatch.Queued)
	for _, ids := range [][]string{{"3"}, nil} {
		if got := b.rows(dispatch.MessageQuery{Queue: q, IDs: ids, State: dispatch.Scheduled}); len(got) != 1-len(ids) {
			b.Errorf("scheduled of %q: %+v", ids, got)
		}
	}
	b.act(dispatch.Cancel, "3")
	b.shows("3", dispatch.Cancelled)
	b.step(2 * time.Hour)
	b.wantAdded(false, later("1")) // again, when it is due and not there yet
	if _, err := b.Queue.EnqueueDue(b.ctx, q, 10); err != nil {
		b.Fatal(err)
	}
	b.enqueuesDue(10, 0)
	b.wantAdded(false, plain("1"))
	b.wantAdded(false, later("1"))
	if got := b.drains(b.session("a"))["k"]; !same(got, []string{"2", "4", "1"}) {
		b.Errorf("delivered %q", got)
	}
	b.wantAdded(false, later("1"))
	if got := b.queue(); got.Scheduled != 0 {
		b.Errorf("%d are left", got.Scheduled)
	}
}

// testScheduledCounted: one that gives way is counted until it is due, also where its queue is removed.
func testScheduledCounted(b *bench) {
	due := b.storeNow().Add(time.Hour)
	b.schedules("k", due, "1")
	b.add("k", "1")
	b.checkOverview("it gives way", dispatch.Overview{Scheduled: 1, Depth: 1, Keys: 1, Done: 1})
	b.drains(b.session("a"))
	b.step(61 * time.Minute)
	b.enqueuesDue(10, 1)
	b.checkOverview("due", dispatch.Overview{Done: 2})
	b.schedules("k", due.Add(time.Hour), "2")
	b.add("k", "2")
	b.removeRefused(1)
	b.removes(2)
}

// testScheduledPruned: what was sent, or cancelled, before its time is not sent at that time, though it is pruned by then.
func testScheduledPruned(b *bench) {
	b.schedules("k", b.storeNow().Add(10*time.Hour), "sent", "cancelled", "kept")
	b.add("k", "sent", "cancelled")
	b.act(dispatch.Cancel, "cancelled")
	if got := b.drains(b.session("a"))["k"]; !same(got, []string{"sent"}) {
		b.Errorf("delivered at once %q", got)
	}
	b.step(2 * time.Hour)
	if n := b.prunes(time.Hour, 10); n != 3 { // with the probe
		b.Errorf("%d were pruned", n)
	}
	b.step(9 * time.Hour)
	b.enqueuesDue(10, 1)
	if got := b.drains(b.session("b"))["k"]; !same(got, []string{"kept"}) {
		b.Errorf("delivered at their time %q", got)
	}
	if got := b.queue(); got.Scheduled != 0 {
		b.Errorf("%d are left", got.Scheduled)
	}
}

func testScheduledCancel(b *bench) {
	s := b.session("a")
	b.schedules("k", b.storeNow().Add(time.Hour), "1", "2")
	for _, a := range []dispatch.Action{dispatch.Retry, dispatch.RetryUnknown, dispatch.Skip} {
		if err := b.Admin.Act(b.ctx, q, "1", a, "operator"); !errors.Is(err, dispatch.ErrState) {
			b.Errorf("%s: %v, want ErrState", a, err)
		}
	}
	b.shows("1", dispatch.Scheduled)
	b.act(dispatch.Cancel, "1")
	if got := b.record("1"); got.State != dispatch.Cancelled || got.Ended.IsZero() || !got.NotBefore.IsZero() || got.Seq != 1 || got.Trail[len(got.Trail)-1].Detail != "cancel by operator" {
		b.Errorf("then it is %+v", got)
	}
	if err := b.Admin.Act(b.ctx, q, "1", dispatch.Cancel, "operator"); !errors.Is(err, dispatch.ErrState) {
		b.Errorf("again: %v, want ErrState", err)
	}
	b.wantEvents("k", history.Event{Reason: "cancel by operator: scheduled, 1"})
	if got := b.drains(s); len(got) != 0 {
		b.Errorf("delivered %q", got)
	}
	b.checkOverview("one cancelled", dispatch.Overview{Scheduled: 1, Done: 2}) // with the probe
	b.step(2 * time.Hour)
	b.enqueuesDue(10, 1)
	if got := b.drains(b.session("b"))["k"]; !same(got, []string{"2"}) {
		b.Errorf("delivered %q", got)
	}
}

// testScheduledShown: operators see them apart from what waits.
func testScheduledShown(b *bench) {
	due := b.storeNow().Add(time.Hour)
	b.schedules("b", due, "4", "5")
	b.schedules("a", due.Add(time.Hour), "1", "2", "3")
	b.checkOverview("before", dispatch.Overview{Scheduled: 5, Done: 1})
	if got := b.keyNames(dispatch.KeyQuery{}); len(got) != 0 {
		b.Errorf("keys %q have something to do", got)
	}
	if got := b.rows(dispatch.MessageQuery{Queue: q, State: dispatch.Queued}); len(got) != 0 {
		b.Errorf("queued: %+v", got)
	}
	var ids []string
	for query := (dispatch.MessageQuery{Queue: q, State: dispatch.Scheduled, Limit: 2}); ; {
		page := b.rows(query)
		for _, r := range page {
			if ids = append(ids, r.ID); r.State != dispatch.Scheduled || r.NotBefore.IsZero() || r.Payload != nil || r.Trail != nil || r.Size != 1 {
				b.Errorf("listed %+v", r)
			}
		}
		if len(page) < query.Limit {
			break
		}
		query.AfterKey, query.AfterSeq = page[len(page)-1].Key, page[len(page)-1].Seq
	}
	if !same(ids, []string{"1", "2", "3", "4", "5"}) {
		b.Errorf("listed %q", ids)
	}
	if got := b.rows(dispatch.MessageQuery{Queue: q, State: dispatch.Scheduled, Key: "b"}); len(got) != 2 || got[0].ID != "4" {
		b.Errorf("of b: %+v", got)
	}
	if got := b.rows(dispatch.MessageQuery{Queue: q, IDs: []string{"2", "5", "none"}}); len(got) != 2 || got[0].State != dispatch.Scheduled {
		b.Errorf("by ids: %+v", got)
	}
	if got := b.rows(dispatch.MessageQuery{Queue: q, IDs: []string{"2", "5"}, State: dispatch.Queued}); len(got) != 0 {
		b.Errorf("by ids and another state: %+v", got)
	}
	b.step(90 * time.Minute) // nobody has let them in
	b.checkOverview("overdue", dispatch.Overview{Scheduled: 5, Done: 1, Oldest: 30 * time.Minute})
	b.enqueuesDue(10, 2)
	b.checkOverview("let in", dispatch.Overview{Scheduled: 3, Depth: 2, Keys: 1, Done: 1, Oldest: 30 * time.Minute})
}

func testScheduledRemoved(b *bench) {
	due := b.storeNow().Add(time.Hour)
	b.schedules("k", due, "1", "2")
	b.add("k", "3")
	b.removeRefused(1)
	b.removes(3)
	if err := b.Admin.CreateQueue(b.ctx, q); err != nil {
		b.Fatal(err)
	}
	b.checkOverview("made again", dispatch.Overview{})
	b.schedules("k", due, "1")
	b.step(2 * time.Hour)
	b.enqueuesDue(10, 1)
	if got := b.drains(b.session("a")); !cmp.Equal(got, map[string][]string{"k": {"1"}}) {
		b.Errorf("delivered %q", got)
	}
}

func testScheduledWakes(b *bench) {
	due := b.storeNow().Add(timing.Timeout / 2)
	c := b.session("sleeper")
	changes := claimtest.Watch(b.ctx, b, b.h.Open(b.T))
	b.join(c, true)
	b.schedules("k", due, "1")
	if got := claimtest.Woken(b.ctx, b, b.Store, changes, dispatch.Space(q), c.ID); got != 0 {
		b.Errorf("woken %d times before it is due", got)
	}
	b.step(timing.Timeout * 3 / 4)
	b.enqueuesDue(1, 1)
	if got := claimtest.Woken(b.ctx, b, b.Store, changes, dispatch.Space(q), c.ID); got != 1 {
		b.Errorf("woken %d times when it is due, want once", got)
	}
}

// testScheduledMany: more than one call lets in, whatever the size, and each message once.
func testScheduledMany(b *bench) {
	due := b.storeNow().Add(time.Hour)
	var want []string
	for i := range 130 {
		want = append(want, fmt.Sprintf("%03d", i))
	}
	b.schedules("k", due, want...)
	due = due.Add(time.Hour)
	b.wantAdded(true, dispatch.Message{Queue: q, Key: "large", ID: "l1", Payload: make([]byte, dispatch.MaxPayload), NotBefore: due})
	b.schedules("large", due, "l2")
	for _, stage := range []struct {
		key string
		ids []string
	}{{"k", want}, {"large", []string{"l1", "l2"}}} {
		b.step(90 * time.Minute)
		for total := 0; total < len(stage.ids); {
			n, err := b.Queue.EnqueueDue(b.ctx, q, 50)
			if err != nil || n < 1 || n > 50 {
				b.Fatalf("EnqueueDue = %d, %v, after %d", n, err, total)
			}
			total += n
		}
		b.enqueuesDue(50, 0)
		if got := b.drains(b.session("a"))[stage.key]; !same(got, stage.ids) {
			b.Errorf("delivered %q", got)
		}
	}
}
