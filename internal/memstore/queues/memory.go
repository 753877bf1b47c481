package queues

import (
	"context"
	"fmt"
	"time"

	"github.com/understudy-ha/understudy/claim"
	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/internal/memstore/claims"
)

// Memory is a store of claims and queues in memory, on a store of sessions.
type Memory struct {
	*claims.Memory
	queues map[string]*queue // guarded by Memory.Do
}

type queue struct {
	name   string
	ids    map[string]*message
	lines  map[string]*line
	cursor string // the key at which Prune continues

	scheduled     []*message // in ids too, unless they give way, and in no line
	scheduledEver int64
}

// line holds the messages of a key in order.
type line struct {
	key      string
	last     int64      // the last sequence number given
	done     int64      // how many messages have ended, ever
	messages []*message // by sequence number
}

type message struct {
	dispatch.Record
	done     bool
	givesWay bool // scheduled, and its ID was enqueued without a time since
}

// NewMemory returns a store without queues. Its clock is now, and should be the
// backend's; nil is time.Now.
func NewMemory(b claims.Backend, now func() time.Time) *Memory {
	return &Memory{Memory: claims.NewMemory(b, now), queues: map[string]*queue{}}
}

// Claims returns the table of claims.
func (m *Memory) Claims() claim.KeyTable { return dueTable{m.Memory.Claims(), m} }

// Queue returns the port for delivery.
func (m *Memory) Queue() dispatch.Queue { return dispatch.Validated(deliver{m}) }

// QueueAdmin returns the port for operators.
func (m *Memory) QueueAdmin() dispatch.Admin { return queueAdmin{m} }

// step is one operation on a queue.
type step struct {
	*claims.Step
	q        *queue
	released map[string]bool // keys that this step has released
}

// atomically runs one operation on an existing queue.
func (m *Memory) atomically(ctx context.Context, name string, op func(step) error) error {
	return m.Do(ctx, func(s *claims.Step) error {
		q := m.queues[name]
		if q == nil {
			return fmt.Errorf("%q: %w", name, dispatch.ErrNoQueue)
		}
		return op(step{s, q, map[string]bool{}})
	})
}

func (s step) space() string { return dispatch.Space(s.q.name) }

// claim returns the claim's row of a key.
func (s step) claim(key string) *claims.Key { return s.Key(s.space(), key) }

func (s step) line(key string) *line {
	l := s.q.lines[key]
	if l == nil {
		l = &line{key: key}
		s.q.lines[key] = l
	}
	return l
}

// head returns the first message that has not ended, or nil.
func (l *line) head() *message {
	if l == nil {
		return nil
	}
	for _, b := range l.messages {
		if !b.done {
			return b
		}
	}
	return nil
}

// append adds a message at the end of its key, and makes an idle key ready.
func (s step) append(b *message) {
	l := s.line(b.Key)
	idle := l.head() == nil
	l.last++
	b.Seq, b.State, b.done, b.Enqueued = l.last, dispatch.Queued, false, s.Now
	l.messages = append(l.messages, b)
	if idle {
		s.Offer(s.space(), b.Key, s.Now)
	}
}

// addNote adds an entry to the message's trail.
func (b *message) addNote(at time.Time, detail string) {
	n := dispatch.TrailEntry{At: at, State: b.State, Term: b.Term, Attempt: b.Attempts, Code: b.Code, Detail: detail}
	b.Trail = dispatch.TruncateTrail(append(b.Trail, n))
}

// passHead ends the head, so that the next message of the key can be sent.
func (l *line) passHead(b *message) {
	b.done, b.Blocks = true, false
	l.done++
}
