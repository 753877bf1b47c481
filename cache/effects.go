package cache

import (
	"time"

	"github.com/understudy-ha/understudy/cache/protocol"
)

// holdOrExecute does what the machine wants done, or holds it until what must be durable before it is. What must be
// durable goes to the saver at once, so that many such effects together cost one commit. The end of a fetch, and what is
// saved in any case, wait for nothing.
func (l *loop) holdOrExecute(e protocol.Effect) {
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

// durable continues with what has waited for the disk. After a failure, and until it is fixed, removals go on, as others
// still have copies; but nobody is told that this peer has stored one: other peers ask again, and the count of those that
// have confirmed leaves it out. A list of members is in force, and answered so: a peer that starts with another list than
// it has stored abstains first.
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
	case protocol.KeysRemoved:
		if l.notDurable {
			e.Confirmed--
		}
		l.answer(e)
	case protocol.Reply, protocol.KeepAlive, protocol.Refuse, protocol.MembersChanged:
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
