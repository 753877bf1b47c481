package api

import (
	"context"
	"time"

	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/lease"
)

const (
	// queueFresh is how old what is shown of the queues may be, and queueScraped
	// how old their metrics.
	queueFresh   = time.Second
	queueScraped = 5 * time.Second
	// rateOver is the time over which a rate is taken.
	rateOver = 10 * time.Second
	// maxBlockedQueues and maxBlockedKeys bound the blocked keys of the state.
	maxBlockedQueues = 10
	maxBlockedKeys   = 20
)

// queueLook looks at the queues. On a store with very many keys that takes its time.
type queueLook struct {
	desk dispatch.Desk
	*look[queuesSeen]
}

// queuesSeen is what a look at the queues found.
type queuesSeen struct {
	at      time.Time
	queues  []dispatch.Overview
	blocked map[string][]KeyView // the first keys that wait for a person, by queue
	views   []QueueView
	marks   map[string][]mark
}

// mark is how many batches of a queue were done at a time.
type mark struct {
	at   time.Time
	done int64
}

func newQueueLook(running context.Context, desk dispatch.Desk) *queueLook {
	l := &queueLook{desk: desk}
	l.look = &look[queuesSeen]{of: "the queues", running: running, ask: l.read, take: withRates}
	return l
}

// views returns the queues as they were about age ago.
func (l *queueLook) views(ctx context.Context, age time.Duration) ([]QueueView, error) {
	if l.desk == nil {
		return nil, nil
	}
	seen, err := l.view(ctx, age)
	if err != nil {
		return nil, err
	}
	return seen.views, nil
}

func (l *queueLook) read(ctx context.Context) (queuesSeen, error) {
	queues, err := l.desk.Queues(ctx)
	if err != nil {
		return queuesSeen{}, err
	}
	blocked, err := l.blockedKeys(ctx, queues)
	return queuesSeen{at: time.Now(), queues: queues, blocked: blocked}, err
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

// withRates makes what is shown, with rates since what was seen before.
func withRates(before, now queuesSeen) queuesSeen {
	now.views = make([]QueueView, 0, len(now.queues))
	now.marks = make(map[string][]mark, len(now.queues))
	for _, o := range now.queues {
		view := ViewQueue(o)
		now.marks[o.Queue], view.Rate = rate(before.marks[o.Queue], mark{now.at, o.Done})
		now.views = append(now.views, view)
	}
	return now
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

// state is what the page shows: the queues, with the first of their blocked keys,
// as they are known.
func (l *queueLook) state(ctx context.Context) *queuesState {
	if l.desk == nil {
		return nil
	}
	seen, err := l.known(ctx, queueFresh)
	out := &queuesState{Total: len(seen.views), List: append([]QueueView{}, seen.views[:min(len(seen.views), maxShown)]...)}
	for i := range out.List {
		out.List[i].BlockedKeys = seen.blocked[out.List[i].Queue]
	}
	if err != nil {
		out.Error = lease.CutReason(err.Error())
	}
	return out
}
