package cache

import (
	"errors"
	"time"

	"github.com/understudy-ha/understudy/cache/protocol"
	"github.com/understudy-ha/understudy/cache/wire"
)

// executeEffect does what the machine wants done, or keeps it until what must be durable
// before it is. Wishes of the second kind go to the saver at once, so that many
// together cost one commit. The end of a fetch, and what is saved anyhow, wait for
// nothing.
func (l *loop) executeEffect(e protocol.Effect) {
	var ticket uint64
	switch e := e.(type) {
	case protocol.Abort:
		l.updateHeldFetch(e.Key, e.Term, 0)
		l.fetches.abort(e)
		return
	case protocol.Trust:
		l.updateHeldFetch(e.Key, e.Term, e.Until)
		l.fetches.trust(e)
		return
	case protocol.Save:
		l.saver.save(e.Key) // what is saved is what the table has then
		return
	case protocol.SaveRemovals:
		if l.cfg.Storage != nil {
			ticket = l.saver.saveRemovals(e.All)
		}
	case protocol.SaveMembers:
		if l.cfg.Storage != nil {
			ticket = l.saver.saveMembers(e.State)
		}
	}
	switch {
	case l.ticket != 0:
		l.held = append(l.held, heldEffect{e, ticket})
	case ticket != 0:
		l.ticket = ticket
	default:
		l.execute(e)
	}
}

// updateHeldFetch sets until when a fetch that has not started, because it is held, may last;
// 0: it must not begin.
func (l *loop) updateHeldFetch(key string, term int64, until time.Duration) {
	for i := range l.held {
		if f, ok := l.held[i].effect.(protocol.Fetch); ok && f.Key == key && f.Term == term {
			f.Until = until
			l.held[i].effect = f
		}
	}
}

// durable continues with what has waited for the disk. After a failure, and until it is
// mended, nobody is told that something was stored; they ask again.
func (l *loop) durable(ticket uint64, err error) {
	l.notDurable = err != nil
	if ticket < l.ticket || l.ticket == 0 {
		return
	}
	l.ticket = 0
	n := 0
	for ; n < len(l.held); n++ {
		h := l.held[n]
		if h.ticket > ticket {
			l.ticket = h.ticket
			n++
			break
		}
		if h.ticket == 0 {
			l.execute(h.effect)
		}
	}
	clear(l.held[:n])
	l.held = l.held[n:]
	if len(l.held) == 0 {
		l.held = nil
	}
}

// claimsStored is whether a message tells another peer that something is stored.
func claimsStored(e protocol.Send) bool {
	_, removed := e.Message.(protocol.Removed)
	return removed
}

// execute carries one effect out. Nothing here waits.
func (l *loop) execute(e protocol.Effect) {
	switch e := e.(type) {
	case protocol.Send:
		if !l.notDurable || !claimsStored(e) {
			l.links.send(e)
		}
	case protocol.Reply, protocol.KeepAlive, protocol.Refer, protocol.Refuse, protocol.KeysRemoved, protocol.MembersChanged:
		l.answer(e)
	case protocol.Fetch:
		l.fetches.start(e, l.clientOf(e.Key))
	case protocol.Raise:
		if l.cfg.Storage == nil {
			l.pendingInputs = append(l.pendingInputs, protocol.Raised{To: e.To})
			return
		}
		l.saver.raiseCeiling(e.To)
	case protocol.StateChanged:
		l.publishChange(e)
	}
}

// clientOf is the client whose request waits the longest for a key; nil when it is a caller in this process, or none.
func (l *loop) clientOf(key string) any {
	if who := l.waiters[l.m.FirstWaiter(key)]; who != nil && who.client != nil {
		return who.client
	}
	return nil
}

// publishChange tells people. Without a key, it concerns the whole peer.
func (l *loop) publishChange(e protocol.StateChanged) {
	if e.Key == "" {
		l.log.Info(e.Why)
	} else {
		l.log.Debug("key", "key", e.Key, "from", e.From, "to", e.To, "term", e.Term, "peer", e.Peer, "why", e.Why)
	}
	if !l.watchers.hasWatchers() {
		return
	}
	event := Event{Time: l.cfg.Wall(), Key: e.Key, Term: e.Term, Peer: e.Peer, Why: e.Why}
	if e.Key != "" {
		event.From, event.To = e.From.String(), e.To.String()
	}
	l.watchers.notify(event)
}

// answer is the part of execute for who waits. A token of 0 is nobody's.
func (l *loop) answer(e protocol.Effect) {
	switch e := e.(type) {
	case protocol.Reply:
		if who := l.takeWaiter(e.Token); who != nil {
			who.value(e.Entry, &l.replies)
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
			l.referWaiter(who, referred(e.Why))
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
