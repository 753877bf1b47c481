package api

import (
	"context"
	"time"

	"github.com/understudy-ha/understudy/api/apitype"
	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/lease"
)

const (
	// queueFresh is how old what is shown of the queues may be, and queueScraped
	// how old their metrics.
	queueFresh   = time.Second
	queueScraped = 5 * time.Second
	// maxBlockedQueues and maxBlockedKeys bound the blocked keys of the state.
	maxBlockedQueues = 10
	maxBlockedKeys   = 20
	// maxDelayedKeys is how many keys of a queue are looked at for refused ones.
	maxDelayedKeys = 100
)

// queueReader reads the queues. With very many keys a read takes long, so that all requests share it.
type queueReader struct {
	admin dispatch.Admin
	*sharedRead[queueSnapshot]
}

// queueSnapshot is the result of one read.
type queueSnapshot struct {
	at      time.Time // when it started
	views   []apitype.Queue
	blocked map[string][]apitype.Key // the first blocked keys, by queue
	refused map[string][]apitype.Key // the first keys whose head the target refuses, by queue
}

func newQueueReader(running context.Context, admin dispatch.Admin) *queueReader {
	l := &queueReader{admin: admin}
	l.sharedRead = &sharedRead[queueSnapshot]{subject: "the queues", running: running, load: l.read}
	return l
}

// views returns the queues as they were about age ago, and when that was.
func (l *queueReader) views(ctx context.Context, age time.Duration) ([]apitype.Queue, time.Time, error) {
	if l.admin == nil {
		return nil, time.Time{}, nil
	}
	seen, err := l.fresh(ctx, age)
	if err != nil {
		return nil, time.Time{}, err
	}
	return seen.views, seen.at, nil
}

func (l *queueReader) read(ctx context.Context) (queueSnapshot, error) {
	at := time.Now().UTC()
	queues, err := l.admin.Queues(ctx)
	if err != nil {
		return queueSnapshot{}, err
	}
	out := queueSnapshot{at: at, views: make([]apitype.Queue, 0, len(queues))}
	if out.blocked, err = l.blockedKeys(ctx, queues); err == nil {
		out.refused, err = l.refusedKeys(ctx, queues)
	}
	for _, o := range queues {
		view := ViewQueue(o)
		view.Refused = int64(len(out.refused[o.Queue]))
		out.views = append(out.views, view)
	}
	return out, err
}

// refusedKeys looks at the first keys of queues that wait for another attempt.
func (l *queueReader) refusedKeys(ctx context.Context, queues []dispatch.Overview) (map[string][]apitype.Key, error) {
	out := map[string][]apitype.Key{}
	looked := 0
	for _, o := range queues {
		if o.Delayed == 0 || looked == maxBlockedQueues {
			continue
		}
		looked++
		keys, err := l.admin.Keys(ctx, dispatch.KeyQuery{Queue: o.Queue, Limit: maxDelayedKeys})
		if err != nil {
			return nil, err
		}
		for _, k := range keys {
			if k.IsRefused() {
				out[o.Queue] = append(out[o.Queue], ViewKey(k))
			}
		}
	}
	return out, nil
}

func (l *queueReader) blockedKeys(ctx context.Context, queues []dispatch.Overview) (map[string][]apitype.Key, error) {
	out := map[string][]apitype.Key{}
	for _, o := range queues {
		if o.Blocked == 0 || len(out) == maxBlockedQueues {
			continue
		}
		keys, err := l.admin.Keys(ctx, dispatch.KeyQuery{Queue: o.Queue, Blocked: true, Limit: maxBlockedKeys})
		if err != nil {
			return nil, err
		}
		for _, k := range keys {
			out[o.Queue] = append(out[o.Queue], ViewKey(k))
		}
	}
	return out, nil
}

// state is what the page shows: the first queues, with the first of their blocked keys, as they are known. blocked
// counts the blocked keys of all queues.
func (l *queueReader) state(ctx context.Context) (out *apitype.Shown[apitype.Queue], blocked int64) {
	if l.admin == nil {
		return nil, 0
	}
	seen, err := l.latest(ctx, queueFresh)
	out = &apitype.Shown[apitype.Queue]{At: seen.at, Total: len(seen.views), List: append([]apitype.Queue{}, seen.views[:min(len(seen.views), maxShown)]...)}
	for i := range out.List {
		out.List[i].BlockedKeys = seen.blocked[out.List[i].Queue]
		out.List[i].RefusedKeys = seen.refused[out.List[i].Queue]
	}
	for _, q := range seen.views {
		blocked += q.Blocked
	}
	if err != nil {
		out.Error = lease.TruncateReason(err.Error())
	}
	return out, blocked
}
