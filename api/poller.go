package api

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/understudy-ha/understudy/history"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/store"
)

const (
	// pollInterval is how often the poller reads the store when nothing wakes it. minPollGap is the least time between
	// two polls, however many changes wake it: ten a second are more than a page can show.
	pollInterval = time.Second
	minPollGap   = 100 * time.Millisecond
	// pollTimeout bounds one poll. It is less than readyFor, so that one slow poll does not make the server unready.
	pollTimeout = 3 * time.Second
	// readyFor is how long after its last answer a store counts as there.
	readyFor = 5 * time.Second
	// inspectInterval is how often the store's own facts (version, schema, clock) are read: they hardly change.
	inspectInterval = 15 * time.Second
	// maxShown is the most of anything that the state lists.
	maxShown = 100
)

// poller reads the store for all open streams together: it follows the history, builds the state if a stream wants it, and
// knows whether the store answers. One goroutine runs it; the mutex guards what requests read.
type poller struct {
	s      *Server
	series *series
	wanted chan struct{} // a new stream wants the state
	polled chan struct{} // is closed after the first poll

	feed       *history.Feed // nil until the store has answered
	info       store.Info
	inspected  time.Time
	hasQueues  bool // there were some when the store last answered
	hasMonitor bool // it was in use then
	hasShards  bool // there were some when they were last read

	mu       sync.Mutex
	answered time.Time // when the store last did
	latency  time.Duration
	failure  error     // of the last poll
	warned   time.Time // when the log last said so
}

func newPoller(s *Server) *poller {
	return &poller{s: s, series: newSeries(), wanted: make(chan struct{}, 1), polled: make(chan struct{})}
}

func (b *poller) run(ctx context.Context) {
	sub := b.s.notifier.Subscribe()
	defer sub.Close()
	for first := true; ; first = false {
		started := time.Now()
		shards := b.s.shards.changed()
		b.poll(ctx)
		for b.s.notifier.IsDeaf() && len(sub.C()) > 0 {
			<-sub.C() // the poll's own
		}
		if first {
			close(b.polled)
		}
		if !waitForChange(ctx, minPollGap, nil, nil, nil) || !waitForChange(ctx, time.Until(started.Add(pollInterval)), sub.C(), b.wanted, shards) {
			return
		}
	}
}

// poll reads the store once and publishes what is new.
func (b *poller) poll(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, pollTimeout)
	defer cancel()
	started := time.Now()
	events, err := b.newEvents(ctx)
	b.recordResult(err, time.Since(started))
	if b.s.notifier.IsDeaf() {
		b.wakeWaiters(events)
	}
	for _, e := range events {
		m, err := newHistoryEvent(e)
		if err != nil {
			b.s.log.Error("event not shown: it has no JSON form", "event", e.ID, "err", err)
			continue
		}
		b.s.stream.publish(m)
	}
	if b.series.startSlotIfDue(time.Now()) && err == nil {
		b.series.sample(ctx, b)
	}
	b.series.recordTakeovers(events)
	if b.s.shards.catalog != nil {
		b.series.recordPlans(b.s.shards.catalog.Shards())
	}
	if !b.s.stream.hasStateReaders() || context.Cause(ctx) == context.Canceled {
		return
	}
	m, err := newStateEvent(b.state(ctx, err))
	if err != nil {
		b.s.log.Error("state not shown: it has no JSON form", "err", err)
		return
	}
	b.s.stream.publish(m)
}

// wakeWaiters stands in for a store's notifications: a request that waits for a lease would notice its release only when it reads
// next, after up to T.
func (b *poller) wakeWaiters(events []history.Event) {
	for _, e := range events {
		// No successor is named: one that it is reserved for may ask at once, too, and the store refuses the others.
		b.s.notifier.Wake(lease.Change{Lease: lease.ID{Space: e.Part, Key: e.Subject}, Term: e.Term, Free: e.From != "" && e.To == ""})
	}
}

// newEvents returns the events since the last call. The first call returns none: earlier events are in the history, where
// a reader that asks for them gets them.
func (b *poller) newEvents(ctx context.Context) ([]history.Event, error) {
	if b.feed != nil {
		return b.feed.Next(ctx)
	}
	after, err := history.NewestID(ctx, b.s.cfg.Store)
	if err != nil {
		return nil, err
	}
	b.feed = history.NewFeed(b.s.cfg.Store, after)
	b.s.stream.startAfter(after)
	return nil, nil
}

// recordResult keeps whether the store answered. It logs a change, and once a minute that the outage goes on: package outagelog
// takes one of which it hears nothing for one that has ended.
func (b *poller) recordResult(err error, took time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	// The server stops, which says nothing about the store.
	if errors.Is(err, context.Canceled) {
		return
	}
	switch {
	case err != nil && (b.failure == nil || time.Since(b.warned) >= time.Minute):
		b.warned = time.Now()
		b.s.log.Warn("store does not answer", "err", err)
	case err == nil && b.failure != nil:
		b.s.log.Info(lease.StoreAnswers)
	}
	b.failure = err
	if err == nil {
		b.answered, b.latency = time.Now(), took
	}
}

// readiness reports whether the store answered a read lately, and how long it took.
func (b *poller) readiness() (latency time.Duration, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.latency, !b.answered.IsZero() && time.Since(b.answered) < readyFor
}

// notReady is why the store does not count as up, nil if it does. It must have answered a read lately, and accepted what this
// process writes: with a full disk, a read-only database or a standby it answers reads.
func (b *poller) notReady() error {
	if _, ok := b.readiness(); ok {
		return b.s.writeFailure()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.failure == nil {
		return errNotReady // it has not been read yet
	}
	return fmt.Errorf("%w: %v", errNotReady, b.failure) // %v: to a probe it is one kind of error
}

// writeFailure is why the store has not accepted lately what this process writes for its sessions, queues or monitor; nil
// if it has.
func (s *Server) writeFailure() error {
	for _, k := range s.cfg.Keepers {
		if since, failure := k.Failing(); failure != nil && since >= readyFor {
			return fmt.Errorf("%w a write for %v: %v", errNotWritten, since.Round(time.Second), failure)
		}
	}
	of := func(part string, since time.Duration, doing string, failure error) error {
		if failure == nil || since < readyFor {
			return nil
		}
		return fmt.Errorf("%w what %s writes for %v (%s): %v", errNotWritten, part, since.Round(time.Second), doing, failure)
	}
	for _, stats := range s.cfg.Dispatchers {
		d := stats()
		if err := of("queue "+d.Queue, d.FailingFor, d.FailingAt, d.Failure); err != nil {
			return err
		}
	}
	if own := s.monitor.own; own.Intake != nil {
		in := own.Intake.Stats()
		if err := of("the monitor", in.FailingFor, in.FailingAt, in.Failure); err != nil {
			return err
		}
	}
	if own := s.monitor.own; own.Watcher != nil {
		w := own.Watcher.Stats()
		return of("the monitor", w.FailingFor, w.FailingAt, w.Failure)
	}
	return nil
}

// waitForChange waits for d or for any of the channels; false when ctx ended.
func waitForChange(ctx context.Context, d time.Duration, changed <-chan lease.Change, wanted, shards <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-changed:
	case <-wanted:
	case <-shards:
	case <-timer.C:
	}
	return true
}

// requestState makes the poller publish the state before its next poll is due.
func (b *poller) requestState() {
	select {
	case b.wanted <- struct{}{}:
	default:
	}
}
