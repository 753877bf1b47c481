package monitor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/understudy-ha/understudy/internal/backoff"
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

// storeFlush sends the flush, and answers.
func (fl *flusher) storeFlush(ctx context.Context) {
	var answer BatchResult
	var began time.Duration
	err := fl.retryWhileWanted(ctx, "storing beats", func(ctx context.Context) (err error) {
		if fl.tries > 0 {
			if err := fl.resolveAgain(ctx); err != nil {
				return err
			}
		}
		began = fl.clock.Now()
		answer, err = fl.in.cfg.Store.RecordHeartbeats(ctx, HeartbeatBatch{Probes: fl.makeProbes(began), Beats: fl.updates})
		return err
	})
	if err != nil {
		fl.failAll(fl.items, err)
		return
	}
	fl.probeAt = began + fl.in.cfg.ProbeInterval
	fl.ids.setGeneration(answer.Generation)
	fl.in.count(func(s *IntakeStats) {
		s.Flushes++
		s.Updates += int64(len(fl.updates))
		s.Replayed += int64(answer.Replayed)
		s.Latency += fl.clock.Now() - began
	})
	fl.ready = fl.ready[:0]
	if len(answer.Unknown) > 0 {
		fl.resolveUnknown(answer.Unknown)
	} else {
		fl.ready = append(fl.ready, fl.items...)
	}
	fl.answer(nil)
	for _, c := range fl.empty {
		var err error
		if fl.isStale(c, began) {
			err = fmt.Errorf("%w: the probe waited longer than %v and is no longer valid", lease.ErrUnavailable, staleAfter*fl.in.cfg.ProbeInterval)
		}
		c.done <- err
	}
}

// makeProbes makes the probes of the flush's paths. While heartbeats wait for longer than a probe's interval, or were refused
// in it because the queue was full, none is made: an intake that lags behind may hold the heartbeat of a source that looks
// silent, or may have refused it.
func (fl *flusher) makeProbes(now time.Duration) []Probe {
	came, waits := fl.in.queue.oldest()
	behind := waits && now-came > fl.in.cfg.ProbeInterval
	fl.probes = fl.probes[:0]
	for _, f := range fl.paths {
		refused := f.refusedAt.Load()
		missed := behind || refused != 0 && now-time.Duration(refused) <= fl.in.cfg.ProbeInterval
		asked := slices.ContainsFunc(fl.empty, func(c *call) bool { return c.path == f && !fl.isStale(c, now) })
		fl.probes = append(fl.probes, Probe{
			Path: f.cfg.Name, TrustFor: f.cfg.TrustFor, MaxGap: f.cfg.MaxGap, NameOnly: !asked && (missed || !f.cfg.Synchronous),
		})
	}
	return fl.probes
}

// isStale reports whether the probe of a call came too long ago to be true now, or its caller has left.
func (fl *flusher) isStale(c *call, now time.Duration) bool {
	return c.abandoned.Load() || now-c.arrivedAt > staleAfter*fl.in.cfg.ProbeInterval
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

// retryWhileWanted repeats a request until it succeeds, as long as a caller waits for it. A request whose outcome is
// unknown is repeated too: a heartbeat that is stored twice counts twice and came a moment later, which is harmless.
func (fl *flusher) retryWhileWanted(ctx context.Context, doing string, f func(context.Context) error) error {
	for doubt := false; ; {
		if ctx.Err() != nil {
			return fmt.Errorf("%w: the intake stops", outcomeError(doubt))
		}
		call, cancel := context.WithTimeout(ctx, storeTimeout)
		err := f(call)
		cancel()
		fl.in.health.Record(doing, err)
		if err == nil {
			if fl.tries > 0 {
				fl.log.Info(lease.StoreAnswers, "doing", doing, "after", fl.tries)
			}
			fl.tries = 0
			return nil
		}
		if fl.tries++; fl.tries == 1 {
			fl.log.Warn("store request failed; retrying while a caller waits", "doing", doing, "err", err)
		}
		fl.in.count(func(s *IntakeStats) { s.Failures++ })
		pause := backoff.Pause(fl.tries, 50*time.Millisecond, time.Second)
		fl.probeAt = fl.clock.Now() + pause
		doubt = doubt || !errors.Is(err, lease.ErrUnavailable)
		if errors.Is(err, lease.ErrInvalid) {
			return err
		}
		if fl.hasWaiters() {
			lease.Sleep(ctx, fl.clock, pause)
		}
		// Checked after the pause, not before: a caller that has left may have reported something newer to another
		// instance, and a process that was stopped for a while must not overwrite it.
		if !fl.hasWaiters() {
			return fmt.Errorf("%w: %w", outcomeError(doubt), err)
		}
	}
}

// outcomeError is the error of a request that was given up: unknown, once any attempt may have been applied.
func outcomeError(doubt bool) error {
	if doubt {
		return lease.ErrUnknown
	}
	return lease.ErrUnavailable
}

// hasWaiters reports whether a caller still waits for the flush.
func (fl *flusher) hasWaiters() bool {
	waits := func(it item) bool { return !it.c.abandoned.Load() }
	return slices.ContainsFunc(fl.items, waits) || slices.ContainsFunc(fl.gathered, waits) ||
		slices.ContainsFunc(fl.empty, func(c *call) bool { return !c.abandoned.Load() })
}
