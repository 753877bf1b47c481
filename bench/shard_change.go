package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	// gentle is a writer's pause between writes, where nothing but the moment counts.
	gentle = time.Millisecond
	// settling is how long a writer writes before and after.
	settling = 300 * time.Millisecond
	// outageWithin is until an outage should be over, whoever watches.
	outageWithin = time.Minute

	// Sticky clients stay with the old primary when it goes on.
	stickyClients = 50
	stickyBatch   = 16
	stickyPause   = 50 * time.Millisecond

	crowdOfWriters = 50
	crowdBatch     = 16
	// crowdRuns is how long the crowd writes before something happens.
	crowdRuns = time.Second
)

// change is a change of primary while clients write.
type change struct {
	crowd    bool          // 50 writers as fast as they go, instead of a gentle one
	sticky   bool          // beside them, clients that know the old primary alone
	patience time.Duration // how long a batch may take
	runs     time.Duration // how long they write before
	planned  bool          // the pause of writes counts, instead of the time since the strike
	strike   func(was string)
	// afterwards is called when the new primary has accepted writes; nil for nothing.
	afterwards func()
}

// came is what came of a change.
type came struct {
	down     time.Duration // without a primary, or the pause of writes
	acked    int
	lost     int // acknowledged, and gone
	accepted int // by the old primary, after the new one had accepted something
}

// undergo lets clients write, changes the primary, and counts what came of it.
func (t *trio) undergo(ctx context.Context, c change) (out came) {
	was := t.primary()
	h := listen(ctx, t.guides, t.shard)
	defer h.end()
	writers := t.startWriters(ctx, c, h)
	var sticky []*writer
	if c.sticky {
		sticky = startSticky(ctx, was)
	}
	for _, w := range writers {
		waitFor(t.b, was+" accepts writes", func() bool { return w.countBy(was, time.Time{}) > 0 })
	}
	time.Sleep(c.runs)
	moment := time.Now()
	c.strike(was)
	first, gap := t.awaitTurn(writers, was, moment)
	out.down = first.at.Sub(moment)
	if c.planned {
		out.down = gap
	}
	time.Sleep(settling)
	if c.afterwards != nil {
		c.afterwards()
	}
	for _, w := range slices.Concat(writers, sticky) {
		w.stop()
		out.accepted += w.countBy(was, first.at)
	}
	for _, w := range writers {
		out.acked += len(w.acks)
	}
	out.lost = t.lost(writers)
	return out
}

// startWriters starts those that write at the primary, wherever it is.
func (t *trio) startWriters(ctx context.Context, c change, h *herald) (all []*writer) {
	if !c.crowd {
		all = []*writer{{key: "gentle", batch: 1, pause: gentle, patience: c.patience, newFind: t.finder, herald: h}}
	} else {
		for i := range crowdOfWriters {
			all = append(all, &writer{key: fmt.Sprintf("crowd-%d", i), batch: crowdBatch, patience: c.patience, newFind: t.finder, herald: h})
		}
	}
	for _, w := range all {
		w.start(ctx)
	}
	return all
}

// startSticky starts clients that know one address only, and send batches at an easy pace.
func startSticky(ctx context.Context, address string) (all []*writer) {
	for i := range stickyClients {
		w := &writer{key: fmt.Sprintf("sticky-%d", i), batch: stickyBatch, pause: stickyPause, patience: outageWithin, again: stickyPause,
			newFind: func() finder { return fixed(address) }}
		w.start(ctx)
		all = append(all, w)
	}
	return all
}

// primary, as clients are told.
func (t *trio) primary() (address string) {
	find := t.finder()
	defer find.close()
	waitFor(t.b, "somebody tells the primary of shard "+t.shard, func() bool {
		var err error
		address, err = find.find()
		return err == nil
	})
	return address
}

// turnOf is the first write that a new primary acknowledged to any of the writers after a
// moment, and how long before that the old one had acknowledged its last.
func turnOf(all []*writer, was string, moment time.Time) (first ack, gap time.Duration, ok bool) {
	for _, w := range all {
		if a, came := w.firstAfter(moment, was); came && (!ok || a.at.Before(first.at)) {
			first, ok = a, true
		}
	}
	if !ok {
		return first, 0, false
	}
	gap = first.at.Sub(moment)
	for _, w := range all {
		if a, came := w.lastBy(was, first.at); came {
			gap = min(gap, first.at.Sub(a.at))
		}
	}
	return first, gap, true
}

// awaitTurn is turnOf, as soon as there is one.
func (t *trio) awaitTurn(all []*writer, was string, moment time.Time) (ack, time.Duration) {
	for deadline := moment.Add(outageWithin); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if a, gap, ok := turnOf(all, was, moment); ok {
			return a, gap
		}
	}
	t.b.Fatalf("bench: shard %s (%s) has no new primary after %v: %+v\n%s", t.shard, t.who(), outageWithin, t.view(), t.output())
	return ack{}, 0
}

// output of all processes, for a person who has to find out what went wrong.
func (t *trio) output() string {
	var out strings.Builder
	for i, p := range t.procs {
		fmt.Fprintf(&out, "--- process %d:\n%s\n", i, p.Output())
	}
	return out.String()
}

// lost counts what writers had acknowledged and the present primary does not have.
func (t *trio) lost(writers []*writer) (sum int) {
	address := t.primary()
	var mu sync.Mutex
	var looking sync.WaitGroup
	for _, w := range writers {
		looking.Go(func() {
			n, _, err := w.lost(address)
			t.b.check(err, "reading what was written")
			mu.Lock()
			defer mu.Unlock()
			sum += n
		})
	}
	looking.Wait()
	return sum
}
