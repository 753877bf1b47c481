package monitor

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/understudy-ha/understudy/lease"
)

const (
	// storeTimeout is the deadline of one request to the store.
	storeTimeout = 10 * time.Second
	// maxChain is how many signals of one source are stored one after the other
	// at most. Those of a source that sends still more at once are merged: its first and its
	// last ones count.
	maxChain = 64
)

// item is a beat on its way.
type item struct {
	c  *call
	id int64 // of its source
	n  int32 // its place in the call
	// again: the store did not know the id that was known by heart.
	again    bool
	bySender bool
	outcome  Outcome
}

func (it *item) beat() *Beat { return &it.c.beats[it.n] }

// flusher is what Run works with; one goroutine owns it.
type flusher struct {
	in    *Inlet
	clock lease.Clock
	log   *slog.Logger
	ids   *ids
	// redo are beats that go first, because they were in a flush already.
	redo []item
	// chains are beats that wait for one of their source that is in a flush;
	// order is that of their sources.
	chains map[int64][]item
	order  []int64

	// Of the flush that is being made: what was taken from the queue, what of that
	// goes into it, what is settled, calls without beats, and what is sent.
	gathered, items, ready []item
	empty                  []*call
	stamps                 []Stamp
	index                  map[int64]int // place of a source's stamp
	proofs                 []Proof
	paths                  []*Inflow // of the proofs
	missing                []Ref
	asked                  map[digest]struct{}
	events                 map[string]struct{} // that are asked about

	proveAt time.Duration // when paths are proven if nothing else is to be stored
	tries   int           // requests that failed in a row
}

// Run stores what [Inflow.Take] takes until ctx ends. Then it takes no more,
// stores what is queued, within StopGrace, and returns nil. It may be called once.
func (in *Inlet) Run(ctx context.Context) error {
	if in.runs.Swap(true) {
		return fmt.Errorf("%w: an inlet runs once", lease.ErrInvalid)
	}
	var started sync.WaitGroup
	defer started.Wait()
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	started.Go(func() { in.bound(ctx, work, cancel) })

	fl := &flusher{
		in: in, clock: in.cfg.Clock, log: in.cfg.Logger, ids: newIDs(maxIDs), chains: map[int64][]item{},
		index: map[int64]int{}, asked: map[digest]struct{}{}, events: map[string]struct{}{}, proveAt: in.cfg.Clock.Now(),
	}
	for ctx.Err() == nil {
		fl.flush(work)
		fl.wait(ctx)
	}
	in.queue.close()
	for fl.pending() {
		fl.flush(work)
	}
	return nil
}

// bound gives up what is under way when StopGrace is over.
func (in *Inlet) bound(ctx, work context.Context, cancel func()) {
	select {
	case <-work.Done():
		return
	case <-ctx.Done():
	}
	timer, stop := in.cfg.Clock.Timer(in.cfg.StopGrace)
	defer stop()
	select {
	case <-work.Done():
	case <-timer:
		cancel()
	}
}

// pending tells whether there are beats to be stored.
func (fl *flusher) pending() bool {
	_, queued := fl.in.queue.oldest()
	return queued || len(fl.redo) > 0 || len(fl.order) > 0
}

// wait returns when there is something to do.
func (fl *flusher) wait(ctx context.Context) {
	if fl.pending() {
		return
	}
	timer, stop := fl.clock.Timer(fl.proveAt - fl.clock.Now())
	defer stop()
	select {
	case <-ctx.Done():
	case <-timer:
	case <-fl.in.queue.arrived:
	}
}

// flush stores what waits, and proofs.
func (fl *flusher) flush(ctx context.Context) {
	fl.gather()
	if err := fl.resolve(ctx, fl.insist); err != nil {
		fl.fail(fl.gathered, err)
		return
	}
	fl.arrange()
	if len(fl.items) > 0 || len(fl.empty) > 0 || fl.clock.Now() >= fl.proveAt {
		fl.store(ctx)
	}
}

// gather takes what fits into one flush out of the queue.
func (fl *flusher) gather() {
	most := fl.in.cfg.MaxBatch
	n := min(len(fl.redo), most)
	fl.items, fl.empty = fl.items[:0], fl.empty[:0]
	fl.gathered = append(fl.gathered[:0], fl.redo[:n]...)
	fl.redo = slices.Delete(fl.redo, 0, n)
	for room := most - n - len(fl.order); room > 0; {
		p, ok := fl.in.queue.pop(room)
		if !ok {
			return
		}
		if len(p.beats) == 0 {
			fl.empty = append(fl.empty, p.call)
		}
		for i := p.from; i < p.to; i++ {
			fl.gathered = append(fl.gathered, item{c: p.call, n: int32(i)})
		}
		room -= p.to - p.from
	}
}

// request makes a request of the store, named for people.
type request func(ctx context.Context, doing string, f func(context.Context) error) error

// resolve finds the ids of all sources that are gathered.
func (fl *flusher) resolve(ctx context.Context, make request) error {
	now := fl.clock.Now()
	fl.missing = fl.missing[:0]
	clear(fl.asked)
	clear(fl.events)
	fl.settle(func(it *item) (Outcome, bool) { return fl.look(now, it) })
	for part := range slices.Chunk(fl.missing, MaxSources) {
		var answer []Resolved
		err := make(ctx, "resolving names", func(ctx context.Context) (err error) {
			answer, err = fl.in.cfg.Intake.Resolve(ctx, part)
			return err
		})
		if err != nil {
			return err
		}
		if len(answer) != len(part) {
			return fmt.Errorf("%w: the store answered for %d of %d names", lease.ErrUnknown, len(answer), len(part))
		}
		for i, r := range answer {
			fl.ids.learn(now, part[i], r)
		}
		fl.in.count(func(s *InletStats) { s.Resolved += int64(len(part)) })
	}
	if len(fl.missing) > 0 {
		fl.settle(func(it *item) (Outcome, bool) {
			f := fl.ids.find(now, it.beat().Event, it.beat().Source)
			it.id, it.bySender = f.id, f.senderClock
			return Unknown, it.id == 0
		})
	}
	fl.in.cached.Store(int64(fl.ids.size()))
	return nil
}

// look finds a source by heart, or notes that it must be asked for. One source
// of each event is asked for after a change of the configuration, which tells whose clock counts.
func (fl *flusher) look(now time.Duration, it *item) (Outcome, bool) {
	b := it.beat()
	if b.Signal > Fail || b.Code > math.MaxInt32 || b.Code < math.MinInt32 {
		return Malformed, true
	}
	f := fl.ids.find(now, b.Event, b.Source)
	it.id, it.bySender = f.id, f.senderClock
	if it.id != 0 {
		if _, asked := fl.events[b.Event]; f.event || asked {
			return 0, false
		}
	}
	if f.unknown {
		return Unknown, true
	}
	if _, asked := fl.asked[f.key]; asked {
		return 0, false
	}
	if lease.ValidateText("event name", b.Event, 1, MaxName) != nil || lease.ValidateText("source", b.Source, 1, MaxName) != nil {
		return Malformed, true
	}
	fl.asked[f.key] = struct{}{}
	fl.events[b.Event] = struct{}{}
	fl.missing = append(fl.missing, Ref{Event: b.Event, Source: b.Source})
	return 0, false
}

// settle answers those gathered beats whose outcome is known, and keeps the others.
func (fl *flusher) settle(known func(*item) (Outcome, bool)) {
	kept, ready := fl.gathered[:0], fl.ready[:0]
	for _, it := range fl.gathered {
		if outcome, ok := known(&it); ok {
			it.outcome = outcome
			ready = append(ready, it)
		} else {
			kept = append(kept, it)
		}
	}
	fl.gathered, fl.ready = kept, ready
	fl.answer(nil)
}

// answer tells what became of the beats that are ready. A call must not be looked
// at after its last beat: its caller uses it again.
func (fl *flusher) answer(err error) {
	var by [Malformed + 1]int64
	for i := range fl.ready {
		by[fl.ready[i].outcome]++
	}
	if err != nil {
		by = [Malformed + 1]int64{}
	}
	fl.in.count(func(s *InletStats) {
		s.Accepted += by[Accepted]
		s.Unknown += by[Unknown]
		s.Malformed += by[Malformed]
	})
	fl.in.queue.settled(len(fl.ready)) // first: who hears of it may have more
	for _, it := range fl.ready {
		c := it.c
		c.outcomes[it.n] = it.outcome
		if err != nil {
			c.err = err
		}
		if c.left--; c.left == 0 {
			c.done <- c.err
		}
	}
	clear(fl.ready)
}

// fail answers all calls of a flush that could not be stored.
func (fl *flusher) fail(items []item, err error) {
	fl.ready = append(fl.ready[:0], items...)
	fl.answer(err)
	for _, c := range fl.empty {
		c.done <- err
	}
}
