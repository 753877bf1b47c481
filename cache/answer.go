package cache

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

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
func referred(e protocol.Refer) error {
	switch {
	case e.NotMember:
		return ErrNotMember
	case e.Stopping:
		return ErrClosed
	}
	return ErrPassive
}

// value gives a copy to whoever waited for it; false: the client's connection has no room for it.
func (w *waiter) value(e protocol.Entry, s *sender) bool {
	if w.client == nil {
		w.answer <- answer{entry: e}
		return true
	}
	return s.send(w, wire.Reply{Kind: wire.ReplyValue, Value: e.Value, Expire: e.Expire, Made: e.Made, Term: e.Term})
}

// sender encodes replies to clients, for one goroutine.
type sender struct{ encoder wire.Encoder }

// send is false when the reply is thrown away: too much waits for the client to read it, or its connection has ended.
func (s *sender) send(w *waiter, r wire.Reply) bool {
	r.ID = w.id
	return w.client.conn.Send(s.encoder.Reply(&r, w.extended))
}

// whyNoRoom is the answer to a client that asks faster than it reads: without one, it would wait in vain.
const whyNoRoom = "too many values wait to be read by this client"

// answer is the part of execute for who waits. A token of 0 is nobody's.
func (l *loop) answer(e protocol.Effect) {
	switch e := e.(type) {
	case protocol.Reply:
		if who := l.takeWaiter(e.Token); who != nil && !who.value(e.Entry, &l.replies) {
			l.refuseWaiter(who, protocol.Refuse{Reason: protocol.Overloaded, Why: whyNoRoom, Wait: time.Second})
		}
	case protocol.KeepAlive:
		switch who := l.waiters[e.Token]; {
		case who == nil:
		case who.client != nil:
			l.replies.send(who, wire.Reply{Kind: wire.ReplyKeepAlive})
		case who.gone.Load(): // there was no room to say so
			l.takeWaiter(e.Token)
			l.pendingInputs = append(l.pendingInputs, protocol.Cancel(e))
		}
	case protocol.Refer:
		if who := l.takeWaiter(e.Token); who != nil {
			l.referWaiter(who, referred(e))
		}
	case protocol.Refuse:
		if who := l.takeWaiter(e.Token); who != nil {
			l.refuseWaiter(who, e)
		}
	case protocol.KeysRemoved:
		if who := l.takeWaiter(e.Token); who != nil {
			who.answer <- answer{confirmed: e.Confirmed, of: e.Of}
		}
	case protocol.MembersChanged:
		if who := l.takeWaiter(e.Token); who != nil {
			var a answer
			if e.Err != "" {
				a.err = errors.New(e.Err)
			}
			who.answer <- a
		}
	}
}

// referWaiter sends someone to another peer; a caller has only this one.
func (l *loop) referWaiter(who *waiter, err error) {
	l.counters.referred.Add(1)
	if who.client == nil {
		who.answer <- answer{err: err}
		return
	}
	l.replies.send(who, wire.Reply{Kind: wire.ReplySeeOther})
}

// refuseWaiter tells someone why there is no value.
func (l *loop) refuseWaiter(who *waiter, e protocol.Refuse) {
	l.counters.refused.Add(1)
	code, err := refusal(e)
	switch {
	case who.client == nil:
		who.answer <- answer{err: err}
	case who.extended && e.Reason == protocol.Broken:
		l.replies.send(who, wire.Reply{Kind: wire.ReplySeeOther})
	case who.extended:
		l.replies.send(who, wire.Reply{Kind: wire.ReplyError, Code: code, Retry: max(e.Wait, 0), Text: e.Why})
	default:
		l.delay(who)
	}
}

// delay sends a client of the original's to another peer, but not at once: there the
// same awaits it, and it would ask without a pause.
func (l *loop) delay(who *waiter) {
	if len(l.delayedRefusals) >= l.cfg.MaxWaiting {
		return // it hears nothing, and asks again after its own time-out
	}
	l.replies.send(who, wire.Reply{Kind: wire.ReplyKeepAlive})
	l.delayedRefusals = append(l.delayedRefusals, delayedRefusal{l.cfg.Clock.Now() + refuseAfter, who})
}

// clientOf is the client whose request waits the longest for a key; nil when it is a caller in this process, or none.
func (l *loop) clientOf(key string) any {
	if who := l.waiters[l.m.FirstWaiter(key)]; who != nil && who.client != nil {
		return who.client
	}
	return nil
}

// addWaiter gives a waiter its token, unless it has gone.
func (l *loop) addWaiter(in protocol.Input, who *waiter) protocol.Input {
	if who.gone.Load() || who.client != nil && who.client.gone.Load() {
		l.counters.waiting.Add(-1)
		if who.client != nil {
			who.client.waiting.Add(-1)
		}
		return nil
	}
	l.lastToken++
	who.token = l.lastToken
	l.waiters[who.token] = who
	if who.client != nil {
		who.client.tokens[who.token] = struct{}{}
	}
	switch in := in.(type) {
	case protocol.Get:
		in.Token = who.token
		return in
	case protocol.RemoveKeys:
		in.Token = who.token
		return in
	case protocol.ChangeMembers:
		in.Token = who.token
		return in
	}
	return in
}

// takeWaiter forgets a waiter, who is about to be answered; nil when it has gone.
func (l *loop) takeWaiter(token protocol.Token) *waiter {
	who := l.waiters[token]
	if who == nil {
		return nil
	}
	delete(l.waiters, token)
	l.counters.waiting.Add(-1)
	if who.client != nil {
		delete(who.client.tokens, token)
		who.client.waiting.Add(-1)
	}
	return who
}

// cancel forgets a caller who has gone.
func (l *loop) cancel(who *waiter) {
	if who.token != 0 && l.takeWaiter(who.token) != nil {
		l.step(protocol.Cancel{Token: who.token})
	}
}

// clientGone forgets the requests of a client whose connection has ended.
func (l *loop) clientGone(c *client) {
	for token := range c.tokens {
		l.takeWaiter(token)
		l.step(protocol.Cancel{Token: token})
	}
}

// refuseDue sends the refusals that were held back for long enough.
func (l *loop) refuseDue() {
	if len(l.delayedRefusals) == 0 {
		return
	}
	now := l.cfg.Clock.Now()
	n := 0
	for n < len(l.delayedRefusals) && l.delayedRefusals[n].at <= now {
		if who := l.delayedRefusals[n].who; !who.client.gone.Load() {
			l.replies.send(who, wire.Reply{Kind: wire.ReplySeeOther})
		}
		n++
	}
	clear(l.delayedRefusals[:n])
	l.delayedRefusals = l.delayedRefusals[n:]
}

// refuseRest answers whoever waits when the loop has ended, or still comes.
func (l *loop) refuseRest() {
	for token := range l.waiters {
		l.referWaiter(l.takeWaiter(token), ErrClosed)
	}
	for _, r := range l.delayedRefusals {
		l.replies.send(r.who, wire.Reply{Kind: wire.ReplySeeOther})
	}
	for {
		select {
		case e := <-l.requests:
			if e.who != nil {
				l.counters.waiting.Add(-1)
				l.referWaiter(e.who, ErrClosed)
			}
		default:
			return
		}
	}
}

// delayedRefusal is a reply to a client that is held back.
type delayedRefusal struct {
	at  time.Duration
	who *waiter
}
