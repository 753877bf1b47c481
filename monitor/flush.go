package monitor

import (
	"cmp"
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

// item is a heartbeat on its way to the store.
type item struct {
	c  *call
	id int64 // of its source
	n  int32 // its place in the call
	// again: the store did not know the cached id.
	again    bool
	bySender bool
	outcome  Outcome
}

func (it *item) beat() *Heartbeat { return &it.c.beats[it.n] }

// flusher is what Run works with; one goroutine owns it.
type flusher struct {
	in    *Intake
	clock lease.Clock
	log   *slog.Logger
	ids   *idCache
	// redo are beats that go first, because they were in a flush already.
	redo []item
	// chains are beats that wait for one of their source that is in a flush;
	// order is that of their sources.
	chains map[int64][]item
	order  []int64

	// Of the flush that is being made: what was taken from the queue, what of that goes into it,
	// what is ready to be answered, calls without heartbeats, and what is sent.
	gathered, items, ready []item
	empty                  []*call
	updates                []HeartbeatUpdate
	index                  map[int64]int // place of a source's update
	probes                 []Probe
	paths                  []*IntakePath // of the probes
	missing                []SourceRef
	asked                  map[digest]struct{}
	checks                 map[string]struct{} // checks that are asked about

	probeAt time.Duration // when paths are probed if there is nothing else to store
	tries   int           // requests that failed in a row
}

// Run stores what [IntakePath.Record] takes until ctx ends. Then it takes no more,
// stores what is queued, within StopGrace, and returns nil. It may be called once.
func (in *Intake) Run(ctx context.Context) error {
	if in.runs.Swap(true) {
		return fmt.Errorf("%w: an intake runs once", lease.ErrInvalid)
	}
	var started sync.WaitGroup
	defer started.Wait()
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	started.Go(func() { in.bound(ctx, work, cancel) })

	fl := &flusher{
		in: in, clock: in.cfg.Clock, log: in.cfg.Logger, ids: newIDCache(maxIDs), chains: map[int64][]item{},
		index: map[int64]int{}, asked: map[digest]struct{}{}, checks: map[string]struct{}{}, probeAt: in.cfg.Clock.Now(),
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

// bound gives up what is under way when StopGrace has passed.
func (in *Intake) bound(ctx, work context.Context, cancel func()) {
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

// pending reports whether there are heartbeats to store.
func (fl *flusher) pending() bool {
	_, queued := fl.in.queue.oldest()
	return queued || len(fl.redo) > 0 || len(fl.order) > 0
}

// wait returns when there is something to do.
func (fl *flusher) wait(ctx context.Context) {
	if fl.pending() {
		return
	}
	timer, stop := fl.clock.Timer(fl.probeAt - fl.clock.Now())
	defer stop()
	select {
	case <-ctx.Done():
	case <-timer:
	case <-fl.in.queue.arrived:
	}
}

// flush stores what waits, and probes.
func (fl *flusher) flush(ctx context.Context) {
	fl.gather()
	if err := fl.resolve(ctx, fl.retryWhileWanted); err != nil {
		fl.failAll(fl.gathered, err)
		return
	}
	fl.mergeBeats()
	if len(fl.items) > 0 || len(fl.empty) > 0 || fl.clock.Now() >= fl.probeAt {
		fl.storeFlush(ctx)
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

// request makes a request of the store; doing names it in the log.
type request func(ctx context.Context, doing string, f func(context.Context) error) error

// resolve finds the ids of all sources that are gathered.
func (fl *flusher) resolve(ctx context.Context, req request) error {
	now := fl.clock.Now()
	fl.missing = fl.missing[:0]
	clear(fl.asked)
	clear(fl.checks)
	fl.answerKnown(func(it *item) (Outcome, bool) { return fl.lookUpID(now, it) })
	for part := range slices.Chunk(fl.missing, MaxSources) {
		var answer []ResolvedSource
		err := req(ctx, "resolving names", func(ctx context.Context) (err error) {
			answer, err = fl.in.cfg.Store.ResolveSources(ctx, part)
			return err
		})
		if err != nil {
			return err
		}
		if len(answer) != len(part) {
			return fmt.Errorf("%w: the store answered for %d of %d names", lease.ErrUnknown, len(answer), len(part))
		}
		for i, r := range answer {
			fl.ids.remember(now, part[i], r)
		}
		fl.in.count(func(s *IntakeStats) { s.Resolved += int64(len(part)) })
	}
	if len(fl.missing) > 0 {
		fl.answerKnown(func(it *item) (Outcome, bool) {
			f := fl.ids.find(now, it.beat().Check, it.beat().Source)
			it.id, it.bySender = f.id, f.senderClock
			return cmp.Or(f.unknown, Unknown), it.id == 0
		})
	}
	fl.in.cached.Store(int64(fl.ids.size()))
	return nil
}

// lookUpID finds a source in the cache, or adds it to what the store is asked for. After a change of the
// configuration one source of each check is asked for, because the answer says whose clock counts.
func (fl *flusher) lookUpID(now time.Duration, it *item) (Outcome, bool) {
	b := it.beat()
	if b.Signal > SignalFail || b.Code > math.MaxInt32 || b.Code < math.MinInt32 {
		return Malformed, true
	}
	f := fl.ids.find(now, b.Check, b.Source)
	it.id, it.bySender = f.id, f.senderClock
	if it.id != 0 {
		if _, asked := fl.checks[b.Check]; f.checkKnown || asked {
			return 0, false
		}
	}
	if f.unknown != 0 {
		return f.unknown, true
	}
	if _, asked := fl.asked[f.key]; asked {
		return 0, false
	}
	if lease.ValidateText("check name", b.Check, 1, MaxName) != nil || lease.ValidateText("source", b.Source, 1, MaxName) != nil {
		return Malformed, true
	}
	fl.asked[f.key] = struct{}{}
	fl.checks[b.Check] = struct{}{}
	fl.missing = append(fl.missing, SourceRef{Check: b.Check, Source: b.Source})
	return 0, false
}

// answerKnown answers those gathered beats whose outcome is known, and keeps the others.
func (fl *flusher) answerKnown(known func(*item) (Outcome, bool)) {
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

// answer reports the outcome of the heartbeats that are ready. A call must not be read after its
// last heartbeat was answered: its caller reuses it.
func (fl *flusher) answer(err error) {
	var by [Malformed + 1]int64
	for i := range fl.ready {
		by[fl.ready[i].outcome]++
	}
	if err != nil {
		by = [Malformed + 1]int64{}
	}
	fl.in.count(func(s *IntakeStats) {
		s.Accepted += by[Accepted]
		s.Unknown += by[Unknown] + by[Full]
		s.Malformed += by[Malformed]
	})
	fl.in.queue.freeRoom(len(fl.ready)) // first: a caller that has its answer may send more
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

// failAll answers all calls of a flush that could not be stored.
func (fl *flusher) failAll(items []item, err error) {
	fl.ready = append(fl.ready[:0], items...)
	fl.answer(err)
	for _, c := range fl.empty {
		c.done <- err
	}
}
