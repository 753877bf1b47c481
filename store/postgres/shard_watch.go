package postgres

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/understudy-ha/understudy/internal/backoff"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/shard"
)

// spaceQueue is the space of notifications of commands, whose key is a node; those of rows have [shard.RowSpace].
const spaceQueue = "shard:queue"

// Watch implements [shard.Registry]. It returns errors.ErrUnsupported behind a pooler.
func (r registry) Watch(ctx context.Context, name string, wake func(shard string)) error {
	return r.db.Watch(ctx, shard.WakeByChanges(name, wake))
}

// sharedListener listens on one connection for all callers that wait for commands, until linger after the last
// of them has left.
type sharedListener struct {
	watch func(ctx context.Context, wake func(lease.Change)) error
	// closing ends it for good.
	closing context.Context

	mu        sync.Mutex
	waiting   map[string]map[chan struct{}]bool // by node
	cancel    context.CancelFunc                // while it listens
	idle      *time.Timer
	listening bool
	running   sync.WaitGroup
}

// Times of a sharedListener.
const (
	// linger is how long it continues listening without callers.
	linger = 10 * time.Second
	// reconnectDelay is how long at most after the end of a connection another is opened.
	reconnectDelay = time.Second
)

// listenFor returns what gets a value when something may have come for a node; done ends that.
func (e *sharedListener) listenFor(node string) (signal <-chan struct{}, done func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	c := make(chan struct{}, 1)
	if e.waiting == nil {
		e.waiting = map[string]map[chan struct{}]bool{}
	}
	if e.waiting[node] == nil {
		e.waiting[node] = map[chan struct{}]bool{}
	}
	e.waiting[node][c] = true
	if e.idle != nil {
		e.idle.Stop()
	}
	if e.cancel == nil && e.closing.Err() == nil {
		ctx, cancel := context.WithCancel(e.closing)
		e.cancel = cancel
		e.running.Go(func() { e.run(ctx) })
	}
	return c, func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		delete(e.waiting[node], c)
		if len(e.waiting[node]) == 0 {
			delete(e.waiting, node)
		}
		if len(e.waiting) == 0 {
			e.idle = time.AfterFunc(linger, e.stopIfIdle)
		}
	}
}

// stopIfIdle ends the connection if no caller waits.
func (e *sharedListener) stopIfIdle() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.waiting) == 0 && e.cancel != nil {
		e.cancel()
		e.cancel, e.listening = nil, false
	}
}

// isListening reports whether a command that arrives wakes its waiters.
func (e *sharedListener) isListening() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.listening
}

func (e *sharedListener) run(ctx context.Context) {
	for ctx.Err() == nil {
		err := e.watch(ctx, func(c lease.Change) { e.wake(ctx, c) })
		e.stopListening(ctx)
		pause := backoff.Pause(1, reconnectDelay, reconnectDelay)
		if errors.Is(err, errors.ErrUnsupported) {
			pause = lease.UnsupportedRetry
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
}

// stopListening wakes all waiters, so that they poll from now on.
func (e *sharedListener) stopListening(ctx context.Context) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if ctx.Err() == nil { // else another may listen already
		e.listening = false
	}
	e.wakeAll()
}

func (e *sharedListener) wake(ctx context.Context, c lease.Change) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case ctx.Err() != nil:
	case c == lease.Change{}: // it listens from now on
		e.listening = true
		e.wakeAll()
	case c.Lease.Space == spaceQueue:
		for waiter := range e.waiting[c.Lease.Key] {
			signal(waiter)
		}
	}
}

func (e *sharedListener) wakeAll() {
	for _, all := range e.waiting {
		for waiter := range all {
			signal(waiter)
		}
	}
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// close waits until nothing listens any more; closing has ended.
func (e *sharedListener) close() {
	e.mu.Lock()
	if e.idle != nil {
		e.idle.Stop()
	}
	e.mu.Unlock()
	e.running.Wait()
}
