package api

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/understudy-ha/understudy/history"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/store"
)

const (
	// pollEvery is how often the store is looked at when nothing wakes the board,
	// and pollRest how long the board rests between two looks when much does.
	pollEvery = time.Second
	pollRest  = 100 * time.Millisecond
	// lookWithin bounds one look.
	lookWithin = 3 * time.Second
	// readyFor is how long after its last answer a store counts as there.
	readyFor = 5 * time.Second
	// inspectEvery is how often the store is asked about itself.
	inspectEvery = 15 * time.Second
	// maxShown is the most of anything that the state lists.
	maxShown = 500
)

// board looks at the store for all readers at once: it follows the history,
// makes the state for those who want it, and knows whether the store answers.
// One goroutine runs it; the mutex is for those who ask.
type board struct {
	cfg     Config
	log     *slog.Logger
	hub     *lease.Hub
	stream  *stream
	queues  *queueLook
	monitor *monitorPart
	shards  *shardPart
	series  *series
	wanted  chan struct{} // somebody new wants the state

	feed       *history.Feed // nil until the store has answered
	info       store.Info
	inspected  time.Time
	hasQueues  bool // there were some when the store last answered
	hasMonitor bool // it was in use then
	hasShards  bool // there were some when they were last read

	mu       sync.Mutex
	answered time.Time // when the store last did
	latency  time.Duration
	failure  error // of the last look
}

func newBoard(cfg Config, hub *lease.Hub, stream *stream, queues *queueLook, monitor *monitorPart, shards *shardPart) *board {
	return &board{
		cfg: cfg, log: cfg.Logger, hub: hub, stream: stream, queues: queues, monitor: monitor, shards: shards, series: newSeries(), wanted: make(chan struct{}, 1),
	}
}

func (b *board) run(ctx context.Context) {
	sub := b.hub.Subscribe()
	defer sub.Close()
	for {
		started := time.Now()
		shards := b.shards.changed()
		b.look(ctx)
		if !rest(ctx, pollRest, nil, nil, nil) || !rest(ctx, time.Until(started.Add(pollEvery)), sub.C(), b.wanted, shards) {
			return
		}
	}
}

// look passes on what is new.
func (b *board) look(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, lookWithin)
	defer cancel()
	started := time.Now()
	events, err := b.follow(ctx)
	b.note(err, time.Since(started))
	for _, e := range events {
		m, err := eventMessage(e)
		if err != nil {
			b.log.Error("an event cannot be shown", "event", e.ID, "err", err)
			continue
		}
		b.stream.pass(m)
	}
	if b.series.due(time.Now()) && err == nil {
		b.series.sample(ctx, b)
	}
	b.series.note(events)
	if !b.stream.viewers() || context.Cause(ctx) == context.Canceled {
		return
	}
	m, err := stateMessage(b.state(ctx, err))
	if err != nil {
		b.log.Error("the state cannot be shown", "err", err)
		return
	}
	b.stream.pass(m)
}

// follow returns the events that are new since the last time, and none the first
// time: what was before is in the history.
func (b *board) follow(ctx context.Context) ([]history.Event, error) {
	if b.feed != nil {
		return b.feed.Next(ctx)
	}
	newest, err := b.cfg.Store.Read(ctx, history.Query{Newest: true, Limit: 1})
	if err != nil {
		return nil, err
	}
	after := int64(0)
	if len(newest) > 0 {
		after = newest[0].ID
	}
	b.feed = history.NewFeed(b.cfg.Store, after, "", "")
	return nil, nil
}

// note keeps what the look says about the store. Only a change is worth a line
// in the log.
func (b *board) note(err error, took time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if errors.Is(err, context.Canceled) {
		return
	}
	switch {
	case err != nil && b.failure == nil:
		b.log.Warn("the store does not answer", "err", err)
	case err == nil && b.failure != nil:
		b.log.Info("the store answers again")
	}
	b.failure = err
	if err == nil {
		b.answered, b.latency = time.Now(), took
	}
}

// ready tells whether the store answered lately, and how long it took.
func (b *board) ready() (latency time.Duration, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.latency, !b.answered.IsZero() && time.Since(b.answered) < readyFor
}

// rest waits for d or for any of the channels; it returns false when ctx ended.
func rest(ctx context.Context, d time.Duration, changed <-chan lease.Change, wanted, shards <-chan struct{}) bool {
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

// nudge asks for the state before the next look is due.
func (b *board) nudge() {
	select {
	case b.wanted <- struct{}{}:
	default:
	}
}
