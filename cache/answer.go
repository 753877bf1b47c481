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

// refusal is what a reason is to callers and to clients.
type refusal struct {
	err  error
	code wire.Code // empty: a client must ask another peer
	// elsewhere: it counts as referred, and clients of the original ask another peer at once.
	elsewhere bool
}

var refusals = map[protocol.Reason]refusal{
	protocol.OriginFailed: {err: ErrFailed, code: wire.CodeFailed},
	protocol.Partitioned:  {err: ErrPartitioned, code: wire.CodePartitioned},
	protocol.Overloaded:   {err: ErrOverloaded, code: wire.CodeOverloaded},
	protocol.TimedOut:     {err: context.DeadlineExceeded, code: wire.CodeFailed},
	protocol.Broken:       {err: ErrBroken},
	protocol.NotMember:    {err: ErrNotMember, elsewhere: true},
	protocol.Stopping:     {err: ErrClosed, elsewhere: true},
	protocol.Passive:      {err: ErrPassive, elsewhere: true},
}

// refusalOf adds to the table what only the one refusal says.
func refusalOf(e protocol.Refuse) refusal {
	r := refusals[e.Reason]
	switch e.Reason {
	case protocol.Broken:
		r.err = fmt.Errorf("%w: %s", r.err, e.Why)
	case protocol.OriginFailed:
		r.err = &Failure{Text: e.Why, RetryAfter: max(e.Wait, 0)}
		if errors.Is(r.err, ErrNotFound) {
			r.code = wire.CodeNotFound
		}
	}
	return r
}

// value gives a copy to whoever waited for it; false: the client's connection has no room for it.
func (w *waiter) value(e protocol.Entry, encoder *wire.Encoder) bool {
	if w.client == nil {
		w.answer <- answer{entry: e}
		return true
	}
	return w.send(wire.Reply{Kind: wire.ReplyValue, Value: e.Value, Expire: e.Expire, Made: e.Made, Term: e.Term}, encoder)
}

// send is false when the reply is thrown away: too much waits for the client to read it, or its connection has ended.
func (w *waiter) send(r wire.Reply, e *wire.Encoder) bool {
	r.ID = w.id
	return w.client.conn.Send(e.Reply(&r, w.extended))
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
			who.send(wire.Reply{Kind: wire.ReplyKeepAlive}, &l.replies)
		case who.gone.Load(): // there was no room to say so
			l.takeWaiter(e.Token)
			l.pendingInputs = append(l.pendingInputs, protocol.Cancel(e))
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

// refuseWaiter tells someone why there is no value.
func (l *loop) refuseWaiter(who *waiter, e protocol.Refuse) {
	r := refusalOf(e)
	if r.elsewhere {
		l.counters.referred.Add(1)
	} else {
		l.counters.refused.Add(1)
	}
	switch {
	case who.client == nil:
		who.answer <- answer{err: r.err}
	case who.extended && r.code != "":
		who.send(wire.Reply{Kind: wire.ReplyError, Code: r.code, Retry: max(e.Wait, 0), Text: e.Why}, &l.replies)
	case who.extended || r.elsewhere:
		who.send(wire.Reply{Kind: wire.ReplySeeOther}, &l.replies)
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
	who.send(wire.Reply{Kind: wire.ReplyKeepAlive}, &l.replies)
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
			who.send(wire.Reply{Kind: wire.ReplySeeOther}, &l.replies)
		}
		n++
	}
	clear(l.delayedRefusals[:n])
	l.delayedRefusals = l.delayedRefusals[n:]
}

// refuseRest answers whoever waits when the loop has ended, or still comes.
func (l *loop) refuseRest() {
	stopping := protocol.Refuse{Reason: protocol.Stopping}
	for token := range l.waiters {
		l.refuseWaiter(l.takeWaiter(token), stopping)
	}
	for _, r := range l.delayedRefusals {
		r.who.send(wire.Reply{Kind: wire.ReplySeeOther}, &l.replies)
	}
	for {
		select {
		case e := <-l.requests:
			if e.who != nil {
				l.counters.waiting.Add(-1)
				l.refuseWaiter(e.who, stopping)
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
