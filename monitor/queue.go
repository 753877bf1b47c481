package monitor

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/understudy-ha/understudy/lease"
)

// call is one [IntakePath.Record], or, without heartbeats, one [IntakePath.RecordProbe].
type call struct {
	path      *IntakePath
	beats     []Heartbeat
	outcomes  []Outcome
	err       error // of one of its heartbeats
	left      int   // heartbeats without an outcome yet
	done      chan error
	arrivedAt time.Duration // when it came, on this host's clock
	// next is the first beat that was not taken out of the queue; untouched: none was.
	next      int
	untouched bool
	// abandoned: its caller has left and does not wait for done.
	abandoned atomic.Bool
}

// queue is the calls that wait, in the order in which they came. Its room is
// counted in beats, until they are settled.
type queue struct {
	arrived chan struct{} // wakes the flusher, which takes calls out

	mu     sync.Mutex
	calls  []*call
	from   int // the first that is still in it
	gone   int // calls from there on whose callers have left, untouched
	room   int
	held   int // beats that take up room
	closed bool
}

func (q *queue) push(c *call) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.closed:
		return fmt.Errorf("%w: the intake has stopped", lease.ErrUnavailable)
	case len(c.beats) > q.room:
		return ErrBusy
	}
	q.compact()
	c.next, c.untouched = 0, true
	q.calls = append(q.calls, c)
	q.room -= len(c.beats)
	q.held += len(c.beats)
	wake(q.arrived)
	return nil
}

// part is beats of a call, or all of one that has none.
type part struct {
	*call
	from, to int
}

// pop takes out the beats of the first call, at most so many.
func (q *queue) pop(most int) (p part, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.from < len(q.calls) {
		c := q.calls[q.from]
		if c.untouched && c.abandoned.Load() {
			q.removeFirst() // its room is free again
			q.gone--
			continue
		}
		p = part{c, c.next, min(len(c.beats), c.next+most)}
		c.next, c.untouched = p.to, false
		if p.to == len(c.beats) {
			q.removeFirst()
		}
		return p, true
	}
	return part{}, false
}

// oldest is when the first call came that waits; ok is false when none does.
func (q *queue) oldest() (came time.Duration, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.from == len(q.calls) {
		return 0, false
	}
	return q.calls[q.from].arrivedAt, true
}

func (q *queue) removeFirst() {
	q.calls[q.from] = nil
	q.from++
}

// abandon is for a caller that does not wait any longer. It reports whether the whole call
// was still in the queue.
func (q *queue) abandon(c *call) (untouched bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	c.abandoned.Store(true)
	if c.untouched {
		q.room += len(c.beats)
		q.held -= len(c.beats)
		// The call may stay until the next compaction. What it takes up besides itself may not: it counts no more.
		c.beats, c.outcomes = nil, nil
		q.gone++
		q.compact()
	}
	return c.untouched
}

// compact moves the calls that wait to the front when they are fewer than the others: those that were taken out, and
// those of callers that have left, who come and go while a flush keeps trying.
func (q *queue) compact() {
	if q.from+q.gone <= len(q.calls)/2 {
		return
	}
	n := 0
	for _, c := range q.calls[q.from:] {
		if !c.untouched || !c.abandoned.Load() {
			q.calls[n] = c
			n++
		}
	}
	clear(q.calls[n:])
	q.calls, q.from, q.gone = q.calls[:n], 0, 0
}

// freeRoom frees the room of beats whose fate is known.
func (q *queue) freeRoom(n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.room += n
	q.held -= n
}

func (q *queue) waiting() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.held
}

// close refuses what comes from now on.
func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
}
