package protocol

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// maxRemovals bounds the removals that are remembered. Beyond it a peer that has not
// confirmed the oldest is owed the removal of everything as old.
const maxRemovals = 2048

// removals are the terms below which copies are gone. Each is remembered until every
// member has confirmed it, and a while longer, because older copies may be under way.
type removals struct {
	known    map[Removal]*confirmations
	keys     map[string]int64
	prefixes map[string]int64
	// caughtUp is the term below which this peer, which had missed removals, dropped
	// what it had. What it gets afterwards is from peers that missed none.
	caughtUp int64
	// owed are the peers, by url, that have missed removals which are remembered no longer, and the term of the last of them:
	// each must be told to drop Everything from before it.
	owed     map[string]int64
	requests []*removalRequest
	checkAt  time.Duration
}

// confirmations are how far a removal has come.
type confirmations struct {
	confirmed map[string]bool
	forgetAt  time.Duration // 0: not every member has confirmed it
}

// removalRequest is a [RemoveKeys] that waits for the others' confirmations.
type removalRequest struct {
	removal   Removal
	token     Token
	until     time.Duration
	confirmed map[string]bool
}

func (r *removals) restore(all []Removal) {
	r.known, r.keys, r.prefixes, r.owed = map[Removal]*confirmations{}, map[string]int64{}, map[string]int64{}, map[string]int64{}
	for _, one := range all {
		switch one.Scope {
		case Owed:
			r.owed[one.Name] = one.Term
		case Everything:
			r.caughtUp = one.Term
		default:
			r.add(one)
		}
	}
}

func (r *removals) set(scope Scope) map[string]int64 {
	if scope == PrefixKey {
		return r.prefixes
	}
	return r.keys
}

// add reports whether the removal is new.
func (r *removals) add(one Removal) bool {
	set := r.set(one.Scope)
	old, there := set[one.Name]
	if there && old >= one.Term {
		return false
	}
	if there {
		delete(r.known, Removal{one.Scope, one.Name, old})
	}
	set[one.Name] = one.Term
	r.known[one] = &confirmations{confirmed: map[string]bool{}}
	return true
}

func (r *removals) drop(one Removal) {
	delete(r.known, one)
	delete(r.set(one.Scope), one.Name)
}

// floor is the term below which copies of a key are gone.
func (r *removals) floor(name string) int64 { return r.covering(name).Term }

// covering is the removal with the highest term that takes in a key.
func (r *removals) covering(name string) Removal {
	most := Removal{OneKey, name, r.keys[name]}
	for prefix, term := range r.prefixes {
		if term > most.Term && strings.HasPrefix(name, prefix) {
			most = Removal{PrefixKey, prefix, term}
		}
	}
	return most
}

// spread are the removals that every member has to know, the oldest first.
func (r *removals) spread() []Removal {
	out := make([]Removal, 0, len(r.known))
	for one := range r.known {
		out = append(out, one)
	}
	slices.SortFunc(out, compareRemovals)
	return out
}

// all is what is stored.
func (r *removals) all() []Removal {
	out := r.spread()
	for url, term := range r.owed {
		out = append(out, Removal{Owed, url, term})
	}
	if r.caughtUp > 0 {
		out = append(out, Removal{Everything, "", r.caughtUp})
	}
	slices.SortFunc(out, compareRemovals)
	return out
}

func compareRemovals(a, b Removal) int {
	return cmp.Or(cmp.Compare(a.Term, b.Term), cmp.Compare(a.Scope, b.Scope), cmp.Compare(a.Name, b.Name))
}

// next is when spreadRemovals has something to do.
func (r *removals) next() time.Duration {
	next := never
	for _, req := range r.requests {
		next = min(next, req.until)
	}
	if len(r.known)+len(r.owed) > 0 {
		next = min(next, r.checkAt)
	}
	return next
}

// handleRemoveKeys starts a removal at this peer.
func (m *Machine) handleRemoveKeys(in RemoveKeys) {
	// It reaches a little into the future, so that a fetch that began before is of a
	// lower term.
	r := Removal{in.Scope, in.Name, max(m.unseenTerm(), m.usedTerm(in.Name)+1)}
	covers := r.covers
	for _, k := range m.keys {
		if covers(k.name) {
			r.Term = max(r.Term, k.term+1)
		}
	}
	if in.Scope == PrefixKey {
		m.setup.Table.Match(in.Name, func(name string, e Entry) bool {
			r.Term = max(r.Term, e.Term+1, e.Used+1)
			return true
		})
	}
	m.counters.Removals++
	m.removals.requests = append(m.removals.requests, &removalRequest{removal: r, token: in.Token, until: in.Until, confirmed: map[string]bool{}})
	m.applyRemoval(r)
	m.send("", Remove{r})
	m.endRequests()
}

func (r Removal) covers(name string) bool {
	return name == r.Name || r.Scope != OneKey && strings.HasPrefix(name, r.Name)
}

// handleRemove applies a removal that started at another peer, and confirms it.
func (m *Machine) handleRemove(from string, r Removal) {
	// A removal from outside drops copies: anything malformed is ignored.
	if m.isAbsurdTerm(r.Term) || r.Scope != OneKey && r.Scope != PrefixKey && r.Scope != Everything || r.Scope == OneKey && r.Name == "" || r.Scope == Everything && r.Name != "" {
		m.counters.Ignored++
		return
	}
	// Applied first: the effects are carried out in order, so that Removed is sent after SaveRemovals is durable. That the
	// sender has stored it is another matter: its own Removed says so.
	m.applyRemoval(r)
	m.send(from, Removed{r})
}

// applyRemoval drops the copies that are here, and aborts what would bring them back.
func (m *Machine) applyRemoval(r Removal) {
	nothingDue := len(m.removals.known)+len(m.removals.owed) == 0
	switch {
	case r.Scope == Everything && r.Term > m.removals.caughtUp:
		m.removals.caughtUp = r.Term
	case r.Scope == Everything, !m.removals.add(r):
		return // it is known already, or a newer one covers it
	}
	// What is due already keeps its time: a key that is removed again and again would put it off for ever.
	if nothingDue {
		m.removals.checkAt = m.now.Boot + m.setup.Timings.Hello
	}
	m.forgetRemovals()
	// Stored before the copies are dropped: after a crash in between, New drops them again.
	m.emit(SaveRemovals{m.removals.all()})
	m.dropCopies(r)
	for _, k := range m.sortedKeys(func(k *key) bool { return k.term < r.Term && r.covers(k.name) }) {
		switch k.state {
		case Fetching:
			m.abortFetch(k, "what it fetches was removed meanwhile")
		case Candidate:
			m.endCandidacy(k, "")
		}
		m.startCandidacyIfWanted(k)
		m.schedule(k)
	}
}

// dropCopies drops copies; a mark keeps older ones from coming back.
func (m *Machine) dropCopies(r Removal) {
	gone := func(name string, e Entry) bool {
		mark := Entry{Term: r.Term, Used: max(e.Used, e.Term)}
		if r.Scope == Everything {
			mark.Term = 0 // the others have copies as old, and may give them
		}
		switch {
		case e.Term >= r.Term: // fetched after the removal
		case e.Held():
			m.put(name, mark)
		case mark.Used > 0:
			m.setup.Table.Put(name, mark)
		}
		return true
	}
	switch r.Scope {
	case OneKey:
		gone(r.Name, m.setup.Table.Get(r.Name))
	case PrefixKey, Everything:
		m.setup.Table.Match(r.Name, gone)
	}
}

// handleRemoved counts a peer's confirmation of a removal.
func (m *Machine) handleRemoved(from string, r Removal) {
	if r.Scope == Everything {
		// Only if it covers all that is owed: more may have been added since this was sent.
		if owed, ok := m.removals.owed[from]; ok && owed <= r.Term {
			delete(m.removals.owed, from)
			m.emit(SaveRemovals{m.removals.all()})
		}
		return
	}
	m.markConfirmed(from, r)
	for _, req := range m.removals.requests {
		if req.removal == r {
			req.confirmed[from] = true
		}
	}
	m.endRequests()
}

// markConfirmed records that a peer has a removal.
func (m *Machine) markConfirmed(from string, r Removal) {
	s := m.removals.known[r]
	if s == nil {
		return
	}
	s.confirmed[from] = true
	m.recount(s)
}

// recountRemovals is for when there are other members than before.
func (m *Machine) recountRemovals() {
	for _, s := range m.removals.known {
		m.recount(s)
	}
	m.endRequests()
	if len(m.removals.known)+len(m.removals.owed) > 0 {
		m.removals.checkAt = min(m.removals.checkAt, m.now.Boot+m.setup.Timings.Hello)
		m.emit(SaveRemovals{m.removals.all()})
	}
}

func (m *Machine) recount(s *confirmations) {
	if s.forgetAt != 0 {
		return // once all have confirmed, the time to forget stays
	}
	for url := range m.peers {
		if !s.confirmed[url] && !m.isOriginal(url) { // a peer of the original never confirms
			return
		}
	}
	s.forgetAt = m.now.Boot + forgetAfterTimeouts*m.setup.Timings.AnnounceTimeout
}

// forgetAfterTimeouts is for how many announce timeouts an older copy may still arrive, after
// every member has given up what it had.
const forgetAfterTimeouts = 5

// spreadRemovals repeats what has not been confirmed, and forgets what may be.
func (m *Machine) spreadRemovals() {
	m.endRequests()
	if len(m.removals.known)+len(m.removals.owed) == 0 || m.removals.checkAt > m.now.Boot {
		return
	}
	m.removals.checkAt = m.now.Boot + m.setup.Timings.Hello
	all := m.removals.spread()
	for _, member := range m.members {
		p := m.peers[member.URL]
		if p == nil || p.link != Up || m.isOriginal(member.URL) {
			continue
		}
		if term := m.removals.owed[member.URL]; term > 0 {
			m.send(member.URL, Remove{Removal{Everything, "", term}})
		}
		for _, one := range all {
			if s := m.removals.known[one]; s.forgetAt == 0 && !s.confirmed[member.URL] {
				m.send(member.URL, Remove{one})
			}
		}
	}
	if before := len(m.removals.known); before > 0 {
		for one, s := range m.removals.known {
			if s.forgetAt != 0 && s.forgetAt <= m.now.Boot || len(m.peers) == 0 {
				m.removals.drop(one)
			}
		}
		if len(m.removals.known) < before {
			m.emit(SaveRemovals{m.removals.all()})
		}
	}
}

// forgetRemovals keeps within the bound: first what all have confirmed, then the
// oldest, for which the peers that have not are owed the removal of everything as old.
func (m *Machine) forgetRemovals() {
	excess := len(m.removals.known) - maxRemovals
	if excess <= 0 {
		return
	}
	oldest := m.removals.spread()
	slices.SortStableFunc(oldest, func(a, b Removal) int {
		return cmp.Compare(min(1, m.removals.known[b].forgetAt), min(1, m.removals.known[a].forgetAt))
	})
	for _, one := range oldest[:excess] {
		s := m.removals.known[one]
		for url := range m.peers {
			if s.forgetAt == 0 && !s.confirmed[url] {
				m.removals.owed[url] = max(m.removals.owed[url], one.Term)
			}
		}
		m.removals.drop(one)
	}
}

// endRequests answers those whose removal all members have, or who have waited long
// enough.
func (m *Machine) endRequests() {
	m.removals.requests = slices.DeleteFunc(m.removals.requests, func(req *removalRequest) bool {
		missing, waits := 0, false
		for url := range m.peers {
			if !req.confirmed[url] {
				missing++
				waits = waits || !m.isOriginal(url)
			}
		}
		if waits && req.until > m.now.Boot {
			return false
		}
		m.emit(KeysRemoved{Token: req.token, Confirmed: len(m.peers) + 1 - missing, Of: len(m.peers) + 1})
		return true
	})
}
