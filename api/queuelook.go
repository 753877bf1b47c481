package api

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/lease"
)

const (
	// queueFresh is how old what is shown of the queues may be, and queueScraped
	// how old their metrics.
	queueFresh   = time.Second
	queueScraped = 5 * time.Second
	// queuesWithin bounds one look, and restFactor times what it took is until the next.
	queuesWithin = 15 * time.Second
	restFactor   = 10
	// stateWaits is how long the state waits for a look.
	stateWaits = 500 * time.Millisecond
	// rateOver is the time over which a rate is taken.
	rateOver = 10 * time.Second
	// maxBlockedQueues and maxBlockedKeys bound the blocked keys of the state.
	maxBlockedQueues = 10
	maxBlockedKeys   = 20
)

// queueLook looks at the queues for all who ask at the same time, not more often
// than they need it. On a store with very many keys a look takes its time: then it
// rests ten times as long.
type queueLook struct {
	desk    dispatch.Desk
	running context.Context // no look outlives it

	mu      sync.Mutex
	flight  chan struct{}        // closed when the look that is under way has ended; nil without one
	shown   []QueueView          // as the last look that was answered found them
	blocked map[string][]KeyView // … with the first keys that wait for a person, by queue
	tried   time.Time            // when the last look ended, answered or not
	took    time.Duration
	failure error // of the last look
	marks   map[string][]mark
}

// mark is how many batches of a queue were done at a time.
type mark struct {
	at   time.Time
	done int64
}

func newQueueLook(running context.Context, desk dispatch.Desk) *queueLook {
	return &queueLook{desk: desk, running: running, marks: map[string][]mark{}}
}

// views returns the queues as they were about age ago. A failure counts as long
// as an answer, so that a store that is down is not asked by everybody.
func (l *queueLook) views(ctx context.Context, age time.Duration) ([]QueueView, error) {
	if l.desk == nil {
		return nil, nil
	}
	if under := l.start(age); under != nil {
		select {
		case <-under:
		case <-ctx.Done():
			return nil, fmt.Errorf("looking at the queues: %w", context.Cause(ctx))
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failure != nil {
		return nil, l.failure
	}
	return l.shown, nil
}

// start returns a look to wait for, which it begins if it is due; nil if what is
// known is good enough.
func (l *queueLook) start(age time.Duration) <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.flight != nil {
		return l.flight
	}
	if time.Since(l.tried) < max(age, restFactor*l.took) {
		return nil
	}
	l.flight = make(chan struct{})
	go l.look()
	return l.flight
}

func (l *queueLook) look() {
	ctx, cancel := context.WithTimeout(l.running, queuesWithin)
	defer cancel()
	started := time.Now()
	queues, err := l.desk.Queues(ctx)
	var blocked map[string][]KeyView
	if err == nil {
		blocked, err = l.blockedKeys(ctx, queues)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.flight)
	l.flight, l.tried, l.took, l.failure = nil, time.Now(), time.Since(started), err
	if err == nil {
		l.take(queues, blocked)
	}
}

func (l *queueLook) blockedKeys(ctx context.Context, queues []dispatch.Overview) (map[string][]KeyView, error) {
	out := map[string][]KeyView{}
	for _, o := range queues {
		if o.Blocked == 0 || len(out) == maxBlockedQueues {
			continue
		}
		keys, err := l.desk.Keys(ctx, dispatch.KeyQuery{Queue: o.Queue, Blocked: true, Limit: maxBlockedKeys})
		if err != nil {
			return nil, err
		}
		for _, k := range keys {
			out[o.Queue] = append(out[o.Queue], ViewKey(k))
		}
	}
	return out, nil
}

// take keeps what a look found.
func (l *queueLook) take(queues []dispatch.Overview, blocked map[string][]KeyView) {
	l.shown, l.blocked = make([]QueueView, 0, len(queues)), blocked
	marks := make(map[string][]mark, len(queues))
	for _, o := range queues {
		view := ViewQueue(o)
		marks[o.Queue], view.Rate = rate(l.marks[o.Queue], mark{l.tried, o.Done})
		l.shown = append(l.shown, view)
	}
	l.marks = marks
}

// rate adds a mark, drops those that are too old, and tells what was done in a
// second between the oldest and the newest.
func rate(marks []mark, now mark) ([]mark, *float64) {
	if n := len(marks); n > 0 && now.done < marks[n-1].done {
		marks = nil // another queue of the same name
	}
	for len(marks) > 1 && now.at.Sub(marks[1].at) >= rateOver {
		marks = marks[1:]
	}
	if len(marks) > 0 && now.at.Sub(marks[0].at) > 3*rateOver {
		marks = nil // nobody looked for so long that it says nothing about now
	}
	var r *float64
	if len(marks) > 0 && now.at.After(marks[0].at) {
		v := float64(now.done-marks[0].done) / now.at.Sub(marks[0].at).Seconds()
		r = &v
	}
	if n := len(marks); n > 0 && now.at.Sub(marks[n-1].at) < queueFresh/2 {
		return marks, r // marks of a moment ago need no company
	}
	return append(marks[:len(marks):len(marks)], now), r
}

// forget makes the next one who asks look anew, because something was changed.
func (l *queueLook) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tried = time.Time{}
}

// state is what the page shows: the queues, with the first of their blocked keys,
// as they are known. A look that takes long is not waited for: the rest of the
// page is not to wait for the queues, nor to be called old when they are.
func (l *queueLook) state(ctx context.Context) *queuesState {
	if l.desk == nil {
		return nil
	}
	if under := l.start(queueFresh); under != nil {
		timer := time.NewTimer(stateWaits)
		defer timer.Stop()
		select {
		case <-under:
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	out := &queuesState{Total: len(l.shown), List: append([]QueueView{}, l.shown[:min(len(l.shown), maxShown)]...)}
	for i := range out.List {
		out.List[i].BlockedKeys = l.blocked[out.List[i].Queue]
	}
	if l.failure != nil {
		out.Error = lease.CutReason(l.failure.Error())
	}
	return out
}
