package dispatchtest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/lease"
)

func testDuplicates(b *bench) {
	s := b.session("a")
	if got := b.tryAdd("k", "1", "2", "1"); !slices.Equal(got, []bool{true, true, false}) {
		b.Errorf("in one call: %v", got)
	}
	x := dispatch.Message{Queue: q, Key: "other", ID: "1", Payload: []byte("changed")}
	if got, err := b.Admin.Add(b.ctx, []dispatch.Message{x}); err != nil || got[0] {
		b.Errorf("in another call: %v, %v", got, err)
	}
	if got := b.record("1"); got.Key != "k" || string(got.Payload) != "1" {
		b.Errorf("the duplicate changed it: %+v", got)
	}
	if got := b.drains(s); !cmp.Equal(got, map[string][]string{"k": {"1", "2"}}) {
		b.Errorf("delivered %q", got)
	}
	if got := b.tryAdd("k", "2", "3"); !slices.Equal(got, []bool{false, true}) {
		b.Errorf("after it was delivered: %v", got)
	}
	if got := b.drains(s); !cmp.Equal(got, map[string][]string{"k": {"3"}}) {
		b.Errorf("delivered %q", got)
	}
}

func testDuplicatesRace(b *bench) {
	const rounds, clients = 20, 4
	admins := make([]dispatch.Admin, clients)
	for i := range admins {
		admins[i] = b.h.Open(b.T).QueueAdmin()
	}
	for r := range rounds {
		var added atomic.Int64
		var all sync.WaitGroup
		for c, queueAdmin := range admins {
			all.Go(func() {
				got, err := queueAdmin.Add(b.ctx, []dispatch.Message{{Queue: q, Key: fmt.Sprint("k", c%2), ID: fmt.Sprint("id", r)}})
				if err != nil {
					b.Errorf("Add: %v", err)
				} else if got[0] {
					added.Add(1)
				}
			})
		}
		all.Wait()
		if n := added.Load(); n != 1 {
			b.Errorf("round %d: added %d times", r, n)
		}
	}
	if rows := b.rows(dispatch.MessageQuery{Queue: q}); len(rows) != rounds {
		b.Errorf("%d messages, want %d", len(rows), rounds)
	}
}

func testAllOrNone(b *bench) {
	good := dispatch.Message{Queue: q, Key: "k", ID: "good"}
	for name, c := range map[string]struct {
		bad  dispatch.Message
		want error
	}{
		"unknown queue": {dispatch.Message{Queue: "nowhere", Key: "k"}, dispatch.ErrNoQueue},
		"no queue":      {dispatch.Message{Key: "k"}, lease.ErrInvalid},
		"no key":        {dispatch.Message{Queue: q}, lease.ErrInvalid},
		"control key":   {dispatch.Message{Queue: q, Key: "a\x00b"}, lease.ErrInvalid},
		"no text":       {dispatch.Message{Queue: q, Key: "\xff"}, lease.ErrInvalid},
		"long key":      {dispatch.Message{Queue: q, Key: strings.Repeat("k", lease.MaxKey+1)}, lease.ErrInvalid},
		"long id":       {dispatch.Message{Queue: q, Key: "k", ID: strings.Repeat("i", dispatch.MaxID+1)}, lease.ErrInvalid},
		"long type":     {dispatch.Message{Queue: q, Key: "k", ContentType: strings.Repeat("t", dispatch.MaxContentType+1)}, lease.ErrInvalid},
		"huge payload":  {dispatch.Message{Queue: q, Key: "k", Payload: make([]byte, dispatch.MaxPayload+1)}, lease.ErrInvalid},
	} {
		for _, messages := range [][]dispatch.Message{{good, c.bad}, {c.bad, good}} {
			if added, err := b.Admin.Add(b.ctx, messages); !errors.Is(err, c.want) {
				b.Errorf("%s: Add = %v, %v; want %v", name, added, err, c.want)
			}
		}
	}
	if rows := b.rows(dispatch.MessageQuery{Queue: q}); len(rows) != 0 {
		b.Errorf("stored all the same: %+v", rows)
	}
	if err := b.Admin.CreateQueue(b.ctx, "No Queue"); !errors.Is(err, lease.ErrInvalid) {
		b.Errorf("Make with a bad name: %v", err)
	}
	if added, err := b.Admin.Add(b.ctx, nil); err != nil || len(added) != 0 {
		b.Errorf("Add of nothing = %v, %v", added, err)
	}
	if added, err := b.Admin.Add(b.ctx, []dispatch.Message{{Queue: q, Key: "k"}, {Queue: q, Key: "k"}}); err != nil || slices.Contains(added, false) {
		b.Errorf("Add without ids = %v, %v", added, err)
	}
	for _, r := range b.rows(dispatch.MessageQuery{Queue: q}) {
		if r.ID == "" {
			b.Errorf("no id was given to %+v", r)
		}
	}
}

func testAddReady(b *bench) {
	s := b.session("a")
	b.add("k", "1")
	a := b.starts(s, "k")
	r := result(a, dispatch.Delayed, dispatch.RetryLater)
	r.Wait = time.Hour
	b.settles(s, r)
	b.add("k", "2")
	b.takes(s) // the first one's back-off holds
	b.add("j", "3")
	j := b.takes(s, "j")[0]
	b.add("j", "4")
	b.takes(s)
	if got := b.turn(s, nil, j).Begun[0]; got.ID != "3" {
		b.Errorf("begun %+v", got)
	}
}

func testQueuesApart(b *bench) {
	s := b.session("a")
	if err := b.Admin.CreateQueue(b.ctx, "other"); err != nil {
		b.Fatal(err)
	}
	b.add("k", "1")
	x := dispatch.Message{Queue: "other", Key: "k", ID: "1", Payload: []byte("other's")}
	if got, err := b.Admin.Add(b.ctx, []dispatch.Message{x}); err != nil || !got[0] {
		b.Fatalf("Add = %v, %v", got, err)
	}
	c := b.takes(s, "k")[0]
	t, err := b.Queue.Exchange(b.ctx, dispatch.Exchange{Queue: "other", Session: s.ID, Begin: nil, Results: []dispatch.Result{{Key: "k", Term: c.Term, Seq: 1, State: dispatch.Committed, After: dispatch.Next}}})
	if err != nil || t.Receipts[0].Accepted {
		b.Errorf("a result in another queue: %+v, %v", t, err)
	}
	b.is(b.begins(s, c), dispatch.Send, "1", 1)
	if got, err := b.Admin.Message(b.ctx, "other", "1"); err != nil || string(got.Payload) != "other's" || got.State != dispatch.Queued || got.Seq != 1 {
		b.Errorf("the other's: %+v, %v", got, err)
	}
	if _, err := b.Admin.Message(b.ctx, "", "1"); err == nil {
		b.Error("an id of two queues names a message")
	}
}

// testHeaders: what goes with a message reaches its target, at every attempt, and is shown.
func testHeaders(b *bench) {
	headers := map[string]string{"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "ce-type": "größe \"x\""}
	of := func(id string, headers map[string]string) dispatch.Message {
		return dispatch.Message{Queue: q, Key: "k", ID: id, Payload: []byte(id), Headers: headers}
	}
	for _, messages := range [][]dispatch.Message{{of("1", headers)}, {of("2", nil), of("3", headers)}} {
		if _, err := b.Admin.Add(b.ctx, messages); err != nil {
			b.Fatalf("Add: %v", err)
		}
	}
	if _, err := b.Admin.Add(b.ctx, []dispatch.Message{of("4", map[string]string{"Host": "x"})}); !errors.Is(err, lease.ErrInvalid) {
		b.Errorf("a header of the protocol: %v, want ErrInvalid", err)
	}
	s := b.session("a")
	a := b.starts(s, "k")
	for attempt := 1; attempt <= 2; attempt++ {
		if b.is(a, dispatch.Send, "1", attempt); !cmp.Equal(a.Headers, headers) {
			b.Errorf("attempt %d goes with %v", attempt, a.Headers)
		}
		if attempt == 1 {
			b.settles(s, result(a, dispatch.Delayed, dispatch.RetryLater))
			a = b.starts(s, "k")
		}
	}
	a = b.settles(s, done(a), claimOf(a)).Begun[0]
	if b.is(a, dispatch.Send, "2", 1); len(a.Headers) != 0 {
		b.Errorf("one without headers goes with %v", a.Headers)
	}
	if a = b.settles(s, done(a), claimOf(a)).Begun[0]; !cmp.Equal(a.Headers, headers) {
		b.Errorf("one of two goes with %v", a.Headers)
	}
	if got := b.record("1"); !cmp.Equal(got.Headers, headers) {
		b.Errorf("shown are %v", got.Headers)
	}
}
