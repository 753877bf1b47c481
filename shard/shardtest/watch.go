package shardtest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/understudy-ha/understudy/history"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/shard"
)

func watchTopics() map[string]func(*bench) {
	return map[string]func(*bench){
		"watch/what others wait for":       testWatch,
		"watch/only the shard that counts": testWatchOne,
		"watch/not what nobody waits for":  testWatchQuiet,
		"watch/the shard's lease":          testWatchLease,
		"watch/ends with its context":      testWatchEnds,
	}
}

// watcher is a Watch under way.
type watcher struct {
	*bench
	woken chan string
	done  chan error
	end   context.CancelFunc
}

// watch starts to watch from another handle, and returns when that is ready.
func (b *bench) watch(name string) *watcher {
	b.Helper()
	ctx, cancel := context.WithCancel(b.ctx)
	w := &watcher{bench: b, woken: make(chan string, 10000), done: make(chan error, 1), end: cancel}
	b.Cleanup(cancel)
	s := b.other()
	go func() { w.done <- s.Registry.Watch(ctx, name, func(woken string) { w.woken <- woken }) }()
	select {
	case first := <-w.woken:
		if first != "" {
			b.Fatalf("watching %q: first woken with %q", name, first)
		}
	case err := <-w.done:
		if errors.Is(err, errors.ErrUnsupported) {
			b.Skip("this store is only polled")
		}
		b.Fatalf("Watch(%q): %v", name, err)
	case <-time.After(b.patience):
		b.Fatalf("Watch(%q) does not get ready", name)
	}
	return w
}

// until waits to be woken for the shard, and returns for which others it was woken before.
func (w *watcher) until(what, name string) (others []string) {
	w.Helper()
	timeout := time.After(w.patience)
	for {
		select {
		case got := <-w.woken:
			if got == name {
				return others
			}
			others = append(others, got)
		case err := <-w.done:
			w.Fatalf("%s: Watch ended: %v", what, err)
		case <-timeout:
			w.Fatalf("%s: nobody was woken for %q, but for %q", what, name, others)
		}
	}
}

// reportAndWake reports a node so that those who watch are woken.
func (b *bench) reportAndWake(name string, n int) {
	b.Helper()
	if _, err := b.Report(b.ctx, record(name, n), true); err != nil {
		b.Fatalf("Report: %v", err)
	}
}

func testWatch(b *bench) {
	w, v := b.watch(""), b.watch("")
	row := shard.Row{Name: "s"}
	for range 3 {
		for n, name := range []string{"a", "A.-_b"} {
			b.reportAndWake(name, n)
			w.until("a report that others wait for", name)
			v.until("a report that others wait for, the second who watches", name)
		}
		row = b.decide(shard.RowUpdate{Row: row})
		w.until("a decision", "s")
		v.until("a decision, the second who watches", "s")
	}
}

func testWatchOne(b *bench) {
	w := b.watch("s")
	row := shard.Row{Name: "s"}
	for range 3 {
		b.reportAndWake("s1", 1)
		other := fmt.Sprint("s.", row.Rev)
		b.decide(shard.RowUpdate{Row: shard.Row{Name: other}, Event: &history.Event{Part: shard.Space, Subject: other, Reason: "made"}})
		b.reportAndWake("S", 2)
		row = b.decide(shard.RowUpdate{Row: row})
		b.quiet(w.until("its shard's decision", "s"))
		b.reportAndWake("s2", 3)
		if b.s.History != nil {
			if err := b.s.History.Append(b.ctx, history.Event{Part: "job", Subject: "s", Reason: "started"}); err != nil {
				b.Fatal(err)
			}
		}
		b.reportAndWake("s", 4)
		b.quiet(w.until("its shard's report", "s"))
	}
}

// quiet checks that nobody was woken for these, nor with "": nothing was missed.
func (b *bench) quiet(woken []string) {
	b.Helper()
	if len(woken) > 0 {
		b.Errorf("woken for %q", woken)
	}
}

func testWatchQuiet(b *bench) {
	b.found("s", 1)
	if err := b.lock("s", 1, "v", ""); err != nil {
		b.Fatal(err)
	}
	w := b.watch("")
	b.reportAndWake("m1", 101)
	w.until("a report that others wait for", "m1")
	for i := range 5 {
		b.report(record("s", i))
		if err := b.lock("s", 1, fmt.Sprint("v", i), b.view("s").Lock); err != nil {
			b.Fatal(err)
		}
		if _, err := b.UpdateRow(b.ctx, shard.RowUpdate{Row: shard.Row{Name: "s"}}); !errors.Is(err, shard.ErrChanged) {
			b.Fatal(err)
		}
	}
	b.reportAndWake("m2", 102)
	if others := w.until("a report that others wait for", "m2"); len(others) > 0 {
		b.Errorf("reports, renewals of the lock and refused decisions woke %q", others)
	}
}

func testWatchLease(b *bench) {
	one := b.session("one")
	b.report(record("s", 1))
	all, w := b.watch(""), b.watch("s")
	l := b.acquire("s", one)
	h := lease.ReleaseRequest{Lease: l.ID, Session: one.ID, Term: l.Term, Reason: "test"}
	for range 3 {
		w.until("the lease is taken", "s")
		all.until("the lease is taken", "s")
		if err := b.s.Leases.Release(b.ctx, h); err != nil {
			b.Fatal(err)
		}
		w.until("the lease is released", "s")
		all.until("the lease is released", "s")
		h.Term = b.acquire("s", one).Term
	}
	w.until("the lease is taken", "s")
	all.until("the lease is taken", "s")
	if err := b.s.Leases.EndSession(b.ctx, one.ID, "test"); err != nil {
		b.Fatal(err)
	}
	w.until("the holder's session is ended", "s")
	all.until("the holder's session is ended", "s")
}

func testWatchEnds(b *bench) {
	for _, name := range []string{"", "s"} {
		w := b.watch(name)
		b.reportAndWake("s", 1)
		w.until("a report that others wait for", "s")
		w.end()
		select {
		case err := <-w.done:
			if err != nil {
				b.Errorf("Watch(%q) returned %v after its context ended", name, err)
			}
		case <-time.After(b.patience):
			b.Fatalf("Watch(%q) goes on after its context ended", name)
		}
	}
}
