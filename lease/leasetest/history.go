package leasetest

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/understudy-ha/understudy/history"
	"github.com/understudy-ha/understudy/lease"
)

func (b *bench) events(q history.Query) []history.Event {
	b.Helper()
	es, err := b.Read(b.ctx, q)
	if err != nil {
		b.Fatalf("Read(%+v): %v", q, err)
	}
	return es
}

func testEvents(b *bench) {
	a, c := b.session("a"), b.session("c")
	began := b.now()
	one := b.take(role("r"), a)
	b.step(time.Minute)
	if err := b.RequestRelease(b.ctx, role("r"), "c", "operator"); err != nil {
		b.Fatal(err)
	}
	b.release(one, "c")
	two := b.take(role("r"), c)
	b.renew(c)
	b.step(timing.Timeout + time.Minute)
	d := b.session("d")
	three := b.take(role("r"), d)
	if err := b.EndSession(b.ctx, d.ID, "stopped"); err != nil {
		b.Fatal(err)
	}
	e := b.session("e")
	four := b.take(role("r"), e)
	if _, err := b.claim(role("r"), b.session("f"), false); err == nil {
		b.Fatal("a held lease was taken")
	}

	A, C, D, E := a.Instance.Label(), c.Instance.Label(), d.Instance.Label(), e.Instance.Label()
	want := []history.Event{
		{From: "", To: A, Term: one.Term, Reason: history.Vacant},
		{From: A, To: A, Term: one.Term, Reason: "asked to resign for c by operator", Duration: time.Minute},
		{From: A, To: "", Term: one.Term, Reason: "test", Duration: time.Minute},
		{From: "", To: C, Term: two.Term, Reason: history.Successor},
		{From: C, To: D, Term: three.Term, Reason: history.Lapsed, Duration: time.Minute},
		{From: D, To: "", Term: three.Term, Reason: "stopped"},
		{From: "", To: E, Term: four.Term, Reason: history.Vacant},
	}
	got := b.events(history.Query{})
	if len(got) != len(want) {
		b.Fatalf("the history has %d events, want %d:\n%+v", len(got), len(want), got)
	}
	for i, w := range want {
		g := got[i]
		if g.Part != "role" || g.Subject != "r" || g.From != w.From || g.To != w.To || g.Term != w.Term || g.Reason != w.Reason {
			b.Errorf("event %d is %+v, want %+v", i, g, w)
		}
		if i > 0 && g.ID <= got[i-1].ID {
			b.Errorf("event %d has id %d after %d", i, g.ID, got[i-1].ID)
		}
		if g.At.Before(began.Add(-time.Second)) || !near(g.Duration, w.Duration) {
			b.Errorf("event %d is at %v after %v, want after %v", i, g.At, g.Duration, w.Duration)
		}
	}
}

func testHistoryRead(b *bench) {
	for i := range 10 {
		e := history.Event{Part: "shard", Subject: fmt.Sprint("s", i%2), From: "x", To: "y", Term: int64(i), Reason: "why", Duration: time.Second}
		if err := b.Append(b.ctx, e); err != nil {
			b.Fatalf("Append: %v", err)
		}
	}
	if err := b.Append(b.ctx, history.Event{Part: "other", Subject: "s0"}); err != nil {
		b.Fatal(err)
	}
	all := b.events(history.Query{})
	if len(all) != 11 {
		b.Fatalf("%d events, want 11", len(all))
	}
	if e := all[3]; e.Part != "shard" || e.Subject != "s1" || e.From != "x" || e.To != "y" || e.Term != 3 || e.Reason != "why" || e.Duration != time.Second || e.At.IsZero() {
		b.Errorf("an event came back as %+v", e)
	}
	terms := func(q history.Query) (out []string) {
		for _, e := range b.events(q) {
			out = append(out, fmt.Sprint(e.Part, e.Term))
		}
		return out
	}
	for name, c := range map[string]struct {
		q    history.Query
		want []string
	}{
		"after":   {history.Query{After: all[8].ID}, []string{"shard9", "other0"}},
		"before":  {history.Query{Before: all[2].ID}, []string{"shard0", "shard1"}},
		"part":    {history.Query{Part: "other"}, []string{"other0"}},
		"subject": {history.Query{Part: "shard", Subject: "s1", Limit: 2}, []string{"shard1", "shard3"}},
		"newest":  {history.Query{Part: "shard", Newest: true, Limit: 2}, []string{"shard8", "shard9"}},
		"older":   {history.Query{Newest: true, Before: all[5].ID, Limit: 2}, []string{"shard3", "shard4"}},
	} {
		if got := terms(c.q); !slices.Equal(got, c.want) {
			b.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	if n, err := b.Trim(b.ctx, 4); err != nil || n != 7 {
		b.Errorf("Trim to 4 = %d, %v; want 7 deleted", n, err)
	}
	if got := terms(history.Query{}); !slices.Equal(got, []string{"shard7", "shard8", "shard9", "other0"}) {
		b.Errorf("after Trim: %q", got)
	}
}

func testWatch(b *bench) {
	info, err := b.Inspect(b.ctx)
	if err != nil {
		b.Fatal(err)
	}
	if !info.Notifies {
		b.Skip("this store is only polled")
	}
	ctx, cancel := context.WithCancel(b.ctx)
	changes := make(chan lease.Change, 100)
	done := make(chan error, 1)
	other := b.h.Open(b.T)
	go func() { done <- other.Watch(ctx, func(c lease.Change) { changes <- c }) }()
	next := func(what string, want lease.Change) {
		b.Helper()
		for {
			select {
			case got := <-changes:
				if got == want {
					return
				}
				if got != (lease.Change{}) {
					b.Errorf("%s: woken with %+v, want %+v", what, got, want)
					return
				}
			case <-time.After(2 * time.Minute):
				b.Fatalf("%s: no wake-up", what)
			}
		}
	}
	next("ready", lease.Change{})
	a := b.session("a")
	key := role(`k "with" 'quotes' {and} 日本`)
	l := b.take(key, a)
	next("acquire", lease.Change{Lease: key, Term: l.Term})
	if err := b.RequestRelease(b.ctx, key, "c", "test"); err != nil {
		b.Fatal(err)
	}
	next("ask", lease.Change{Lease: key, Term: l.Term})
	b.release(l, "c")
	next("release", lease.Change{Lease: key, Term: l.Term, Free: true, Successor: "c"})
	c := b.session("c")
	l = b.take(key, c)
	next("acquire again", lease.Change{Lease: key, Term: l.Term})
	if err := b.EndSession(b.ctx, c.ID, "done"); err != nil {
		b.Fatal(err)
	}
	next("end", lease.Change{Lease: key, Term: l.Term, Free: true})
	cancel()
	select {
	case err := <-done:
		if err != nil {
			b.Errorf("Watch returned %v after its context ended", err)
		}
	case <-time.After(2 * time.Minute):
		b.Error("Watch goes on after its context ended")
	}
}

func testChanges(b *bench) {
	a, w := b.session("a"), b.session("w")
	l := b.take(role("r"), a)
	if _, err := b.Join(b.ctx, role("r"), w.ID); err != nil {
		b.Fatal(err)
	}
	before := b.renew(a).Changes
	if again := b.renew(a).Changes; again != before {
		b.Errorf("Changes moved from %d to %d though nothing changed hands", before, again)
	}
	if err := b.RequestRelease(b.ctx, role("r"), "", "test"); err != nil {
		b.Fatal(err)
	}
	if asked := b.renew(a).Changes; asked == before || asked == 0 {
		b.Errorf("Changes went from %d to %d when a lease of the session was asked for", before, asked)
	}
	waits := b.renew(w)
	b.release(l, "")
	freed := b.renew(w)
	if waits.Waits == nil && (freed.Changes == waits.Changes || freed.Changes == 0) {
		b.Errorf("Changes went from %d to %d when the lease that the session waits for was released", waits.Changes, freed.Changes)
	}
	if waits.Waits != nil {
		b.checkWaits(waits.Waits, l, true)
		b.checkWaits(freed.Waits, l, false)
	}
}

// checkWaits checks what a renewal showed of the only lease that its session waits for, alone.
func (b *bench) checkWaits(shown []lease.Lease, l lease.Lease, held bool) {
	b.Helper()
	if len(shown) != 1 || shown[0].ID != l.ID || shown[0].Term != l.Term || (shown[0].Session == l.Session) != held ||
		shown[0].Free() == held || shown[0].Waiting != 0 || held && (shown[0].Remaining <= 0 || shown[0].Timing != timing) ||
		shown[0].Since.IsZero() {
		b.Errorf("the renewal of who waits shows %+v; held: %t", shown, held)
	}
}
