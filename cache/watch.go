package cache

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"time"
)

// watchRoom is how many events a watcher may be behind.
const watchRoom = 1024

// watchers are who wants to see what happens.
type watchers struct {
	mu     sync.Mutex
	count  atomic.Int64
	closed bool
	all    map[*watcher]bool
}

type watcher struct {
	events chan Event
	missed atomic.Int64
}

func (w *watchers) hasWatchers() bool { return w.count.Load() > 0 }

// notify never waits: who is too slow misses it.
func (w *watchers) notify(e Event) {
	if !w.hasWatchers() {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for one := range maps.Keys(w.all) {
		select {
		case one.events <- e:
		default:
			one.missed.Add(1)
		}
	}
}

func (w *watchers) add() *watcher {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return nil
	}
	if w.all == nil {
		w.all = map[*watcher]bool{}
	}
	one := &watcher{events: make(chan Event, watchRoom)}
	w.all[one] = true
	w.count.Add(1)
	return one
}

func (w *watchers) remove(one *watcher) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.all[one] {
		delete(w.all, one)
		w.count.Add(-1)
	}
}

// close ends every Watch after what it has yet to see.
func (w *watchers) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	for one := range w.all {
		delete(w.all, one)
		w.count.Add(-1)
		close(one.events)
	}
}

// Watch calls each for everything that happens to keys, links and members, in order,
// until ctx ends, and returns its error, or [ErrClosed] when the peer has stopped.
// Who is more than 1,024 events behind misses some, and gets an event that says how
// many.
func (p *Peer) Watch(ctx context.Context, each func(Event)) error {
	one := p.watchers.add()
	if one == nil {
		return ErrClosed
	}
	defer p.watchers.remove(one)
	for {
		select {
		case e, ok := <-one.events:
			if !ok {
				return ErrClosed
			}
			if n := one.missed.Swap(0); n > 0 {
				each(Event{Time: e.Time, Why: fmt.Sprintf("%d events were missed", n)})
			}
			each(e)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// notifyPeerEvent is an event about a peer.
func (p *Peer) notifyPeerEvent(peer, why string) {
	if p.watchers.hasWatchers() {
		p.watchers.notify(Event{Time: p.cfg.Wall().Round(time.Millisecond), Peer: peer, Why: why})
	}
}

// Event is something that a watcher may want to see.
type Event struct {
	Time time.Time
	Key  string
	From string // states
	To   string
	Term int64
	Peer string
	Why  string
}
