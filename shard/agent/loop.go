package agent

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/understudy-ha/understudy/lease"
)

// errStopped: the agent's loop has ended.
var errStopped = errors.New("shard: the agent has stopped")

// loop is the one goroutine that owns the state of all components. Whatever may take time runs in a
// goroutine of its own, bounded by a deadline, and posts its result back.
type loop struct {
	clock lease.Clock
	ctx   context.Context // of everything that the agent starts
	posts chan func()
	woken chan struct{}
	ended chan struct{} // closed when the loop has ended
	wg    sync.WaitGroup

	busy     map[work]bool // background work in progress
	next     time.Duration // when the next turn starts at the latest
	lastTurn atomic.Int64  // clock reading when the latest turn started
}

func newLoop(clock lease.Clock) *loop {
	return &loop{clock: clock, posts: make(chan func()), woken: make(chan struct{}, 1), ended: make(chan struct{}), busy: map[work]bool{}}
}

// wakeBy has the next turn start at the given time, if not before.
func (l *loop) wakeBy(at time.Duration) { l.next = min(l.next, at) }

// post has the loop run f, unless the loop has ended.
func (l *loop) post(f func()) {
	select {
	case l.posts <- f:
	case <-l.ended:
	}
}

// runInLoop has the loop run f and waits for it. It is false when the loop has ended.
func (l *loop) runInLoop(f func()) bool {
	done := make(chan struct{})
	select {
	case l.posts <- func() { defer close(done); f() }:
	case <-l.ended:
		return false
	}
	select {
	case <-done:
		return true
	case <-l.ended:
		return false
	}
}

// work is a kind of background work.
type work int

const (
	workAdmitMembers work = iota
	workArmFence
	workReport
	workFindOtherShards
	workDetachReplicas
	workFenceOldPrimary
	workHandOver
	workKillHung
	workProbeNode
	workProbePeer
	workFailoverLock
	workRequestPromises
	workSaveState
	workSendCommands
	workUpdateRow
	workStepDown
)

// background runs f in a goroutine, one of each kind at a time; the loop runs the function that f returns, when ctx has
// ended.
func (l *loop) background(kind work, within time.Duration, f func(ctx context.Context) func()) {
	if l.busy[kind] {
		return
	}
	l.busy[kind] = true
	l.wg.Go(func() {
		ctx, cancel := context.WithTimeout(l.ctx, within)
		done := f(ctx)
		cancel()
		l.post(func() {
			delete(l.busy, kind)
			if done != nil {
				done()
			}
		})
	})
}

// notify wakes the reader of a channel of capacity 1.
func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
