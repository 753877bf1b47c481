package cache

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/understudy-ha/understudy/cache/protocol"
	"github.com/understudy-ha/understudy/cache/wire"
)

// waiter is someone who waits for the loop's answer: a request of a client, or a
// caller in this process.
type waiter struct {
	token protocol.Token // given by the loop; 0: not yet
	gone  atomic.Bool    // nobody waits any more

	client   *client // nil: a caller
	id       []byte  // of the client's request
	extended bool    // the client knows errors

	answer chan answer // of a caller; has room for one
}

// answer is what a caller gets.
type answer struct {
	entry         protocol.Entry
	confirmed, of int
	err           error
}

func newCaller() *waiter { return &waiter{answer: make(chan answer, 1)} }

// refusal is why there is no value, in the words of callers and of clients.
func refusal(e protocol.Refuse) (wire.Code, error) {
	switch e.Reason {
	case protocol.Partitioned:
		return wire.CodePartitioned, ErrPartitioned
	case protocol.Overloaded:
		return wire.CodeOverloaded, ErrOverloaded
	case protocol.TimedOut:
		return wire.CodeFailed, context.DeadlineExceeded
	case protocol.Broken:
		return wire.CodeFailed, fmt.Errorf("%w: %s", ErrBroken, e.Why)
	}
	failure := &Failure{Text: e.Why, RetryAfter: max(e.Wait, 0)}
	if failure.Is(ErrNotFound) {
		return wire.CodeNotFound, failure
	}
	return wire.CodeFailed, failure
}

// referred is what a caller gets in place of another peer's name.
func referred(why string) error {
	if strings.HasPrefix(why, "not a member") {
		return ErrNotMember
	}
	return &Failure{Text: why}
}

// value gives a copy to whoever waited for it.
func (w *waiter) value(e protocol.Entry, s *sender) {
	if w.client == nil {
		w.answer <- answer{entry: e}
		return
	}
	s.send(w, wire.Reply{Kind: wire.ReplyValue, Value: e.Value, Expire: e.Expire, Made: e.Made, Term: e.Term})
}

// sender encodes replies to clients, for one goroutine.
type sender struct {
	encoder wire.Encoder
	stats   *counters
}

func (s *sender) send(w *waiter, r wire.Reply) {
	r.ID = w.id
	if !w.client.conn.Send(s.encoder.Reply(&r, w.extended)) {
		s.stats.dropped.Add(1)
	}
}
