package dispatchtest

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/understudy-ha/understudy/claim/claimtest"
	"github.com/understudy-ha/understudy/dispatch"
)

// Memory is a store of claims and queues in memory, on a store of sessions.
type Memory struct {
	*claimtest.Memory
	queues map[string]*queue // guarded by Memory.Do
}

type queue struct {
	name   string
	ids    map[string]*batch
	lines  map[string]*line
	cursor string // the key at which Prune goes on
}

// line is the order of a key.
type line struct {
	key     string
	last    int64    // the sequence number given last
	done    int64    // how many are over, ever
	batches []*batch // by sequence number
}

type batch struct {
	dispatch.Record
	over bool
}

// NewMemory returns a store without queues. Its clock is now, and should be the
// backend's; nil is time.Now.
func NewMemory(b claimtest.Backend, now func() time.Time) *Memory {
	return &Memory{Memory: claimtest.NewMemory(b, now), queues: map[string]*queue{}}
}

// Queue is what delivers.
func (m *Memory) Queue() dispatch.Queue { return deliver{m} }

// Desk is what people do.
func (m *Memory) Desk() dispatch.Desk { return desk{m} }

// step is one operation on a queue.
type step struct {
	*claimtest.Step
	q     *queue
	given map[string]bool // keys that it has given back
}

// do carries out one operation on a queue that must be there.
func (m *Memory) do(ctx context.Context, name string, op func(step) error) error {
	return m.Do(ctx, func(s *claimtest.Step) error {
		q := m.queues[name]
		if q == nil {
			return fmt.Errorf("%q: %w", name, dispatch.ErrNoQueue)
		}
		return op(step{s, q, map[string]bool{}})
	})
}

func (s step) space() string { return dispatch.Space(s.q.name) }

// claim is the row of a key.
func (s step) claim(key string) *claimtest.Key { return s.Key(s.space(), key) }

func (s step) line(key string) *line {
	l := s.q.lines[key]
	if l == nil {
		l = &line{key: key}
		s.q.lines[key] = l
	}
	return l
}

// head is the first batch that is not over.
func (l *line) head() *batch {
	if l == nil {
		return nil
	}
	for _, b := range l.batches {
		if !b.over {
			return b
		}
	}
	return nil
}

// append puts a batch at the end of its key, and makes a key ready that had
// nothing to do.
func (s step) append(b *batch) {
	l := s.line(b.Key)
	idle := l.head() == nil
	l.last++
	b.Seq, b.State, b.over, b.Enqueued = l.last, dispatch.Queued, false, s.Now
	l.batches = append(l.batches, b)
	if idle {
		s.Offer(s.space(), b.Key, s.Now)
	}
}

// note adds to the batch's history.
func (b *batch) note(at time.Time, detail string) {
	n := dispatch.Step{At: at, State: b.State, Term: b.Term, Attempt: b.Attempts, Code: b.Code, Detail: detail}
	b.Trail = append(b.Trail, n)
	if len(b.Trail) > dispatch.MaxTrail {
		b.Trail = slices.Delete(b.Trail, 1, len(b.Trail)-dispatch.MaxTrail+1)
	}
}

// pass lets the head step aside.
func (l *line) pass(b *batch) {
	b.over, b.Blocks = true, false
	l.done++
}
