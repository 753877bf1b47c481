package zmtp

import (
	"fmt"
	"sync"
	"sync/atomic"
)

// Budget bounds the bytes that wait to be written on all connections that share it ([Config.Budget]). While there are
// more, the connection with the most is closed with [ErrSlow]: it is the one that does not read.
type Budget struct {
	limit int64
	used  atomic.Int64

	mu    sync.Mutex
	boxes map[*outbox]struct{}
}

// NewBudget returns a budget of so many bytes. It should have room for several of the largest messages.
func NewBudget(limit int64) *Budget {
	return &Budget{limit: limit, boxes: map[*outbox]struct{}{}}
}

// Waiting is how many bytes wait now.
func (b *Budget) Waiting() int64 { return b.used.Load() }

func (b *Budget) add(o *outbox) {
	b.mu.Lock()
	b.boxes[o] = struct{}{}
	b.mu.Unlock()
}

func (b *Budget) remove(o *outbox) {
	b.mu.Lock()
	delete(b.boxes, o)
	b.mu.Unlock()
}

// shed closes connections until the rest fits. No lock is held while one is closed.
func (b *Budget) shed() {
	for b.used.Load() > b.limit {
		slowest := b.slowest()
		if slowest == nil {
			return
		}
		waiting := slowest.charged.Load()
		_ = slowest.fail(fmt.Errorf("%w: %d bytes waited for it, the most of all connections, when %d for all were exceeded", ErrSlow, waiting, b.limit))
	}
}

func (b *Budget) slowest() (most *outbox) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for o := range b.boxes {
		if most == nil || o.charged.Load() > most.charged.Load() {
			most = o
		}
	}
	return most
}

// charge counts what waits on a connection now, and reports whether all of them together exceed the budget. The
// connection's lock is held.
func (o *outbox) charge() (exceeded bool) {
	if o.budget == nil {
		return false
	}
	waiting := int64(len(o.queue) + o.writing)
	if o.dead.Load() {
		waiting = 0
	}
	return o.budget.used.Add(waiting-o.charged.Swap(waiting)) > o.budget.limit
}
