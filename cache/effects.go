package cache

import "github.com/understudy-ha/understudy/cache/protocol"

// holdOrExecute does what the machine wants done, or holds it until what must be durable before it is.
func (l *loop) holdOrExecute(e protocol.Effect) {
	var ticket uint64
	if l.cfg.Storage != nil {
		switch e := e.(type) {
		case protocol.SaveRemovals:
			ticket = l.saver.saveRemovals(e.All)
		case protocol.SaveMembers:
			ticket = l.saver.saveMembers(e.State)
		}
	}
	if l.barrier.Passes(e, ticket) {
		l.execute(e)
	}
}

// durable continues with what has waited for the disk. After a failure, and until it is fixed, removals go on, as others
// still have copies; but nobody is told that this peer has stored one: other peers ask again, and the count of those that
// have confirmed leaves it out. A list of members is in force, and answered so: a peer that starts with another list than
// it has stored abstains first.
func (l *loop) durable(ticket uint64, err error) {
	l.notDurable = err != nil
	for e := range l.barrier.Completed(ticket) {
		l.execute(e)
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
	case protocol.StartFetch:
		l.fetches.start(e, l.clientOf(e.Key))
	case protocol.Trust:
		l.fetches.trust(e)
	case protocol.Abort:
		l.fetches.abort(e)
	case protocol.Save:
		l.saver.save(e.Key) // what is saved is what the table has then
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

// publishChange tells operators. Without a key, it concerns the whole peer.
func (l *loop) publishChange(e protocol.StateChanged) {
	if e.Key == "" {
		l.log.Info("this peer's state changed", "why", e.Why)
	} else {
		l.log.Debug("a key's state changed", "key", e.Key, "from", e.From, "to", e.To, "term", e.Term, "peer", e.Peer, "why", e.Why)
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
