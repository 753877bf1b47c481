package zmtp

import (
	"fmt"
	"sync"
	"sync/atomic"
)

// Budget bounds the bytes that wait to be written on all connections that share it ([Config.Budget]). A message without
// room is refused, as by a full queue: one of at most 1 KiB when all is used; a larger one by a connection for which more
// waits than would be left, so that those who read more slowly than they ask leave room for the others. While there is no
// room, connections that take less than 256 KiB per WriteTimeout are closed with [ErrSlow] after a fifth of it, the one with
// the most first. Those that take more are never closed: n of them can leave no more than the (n+1)th part of the budget.
type Budget struct {
	limit int64
	used  atomic.Int64

	mu    sync.Mutex
	boxes map[*outbox]struct{}
}

// stalledLapses is after how many slow parts of WriteTimeout in a row a connection is closed to make room: one may be a pause
// of this process.
const stalledLapses = 2

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

// fits reports whether a message has room when so many bytes are used. The last 32nd is for small ones, as in a queue.
func (o *outbox) fits(used int64, size int) bool {
	limit := o.budget.limit
	if size > smallMessage {
		limit -= limit/32 + o.charged.Load()
	}
	return used+int64(size) <= limit
}

// reserve counts a message, if there is room. The connection's lock is held.
func (o *outbox) reserve(size int) bool {
	if o.budget == nil {
		return true
	}
	for {
		used := o.budget.used.Load()
		if !o.fits(used, size) {
			return false
		}
		if o.budget.used.CompareAndSwap(used, used+int64(size)) {
			o.charged.Add(int64(size))
			return true
		}
	}
}

// makeRoom closes connections that take next to nothing until there is room for a message, or none is left. No lock is
// held while one is closed.
func (o *outbox) makeRoom(size int) {
	b := o.budget
	for b != nil && !o.fits(b.used.Load(), size) {
		slow := b.stalled()
		if slow == nil {
			return
		}
		_ = slow.fail(fmt.Errorf("%w: less than %d bytes could be written in %v, while %d waited for it and there was no room for others",
			ErrSlow, stalledLapses*slowBytes, slow.timeout*stalledLapses/writeLapses, slow.charged.Load()))
	}
}

// stalled is the connection with the most waiting of those that take next to nothing. If only those that take nothing at all
// counted, a few that take a byte now and then could keep everything from all others, without end.
func (b *Budget) stalled() (most *outbox) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for o := range b.boxes {
		if o.slow.Load() >= stalledLapses && (most == nil || o.charged.Load() > most.charged.Load()) {
			most = o
		}
	}
	return most
}

// charge counts what waits on a connection now. The connection's lock is held.
func (o *outbox) charge() {
	if o.budget == nil {
		return
	}
	waiting := int64(len(o.queue) + o.writing)
	if o.dead.Load() {
		waiting = 0
	}
	o.budget.used.Add(waiting - o.charged.Swap(waiting))
}
