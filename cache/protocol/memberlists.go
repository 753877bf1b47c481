package protocol

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// MembersState is what a peer stores of its list of members.
type MembersState struct {
	Members Members
	// Settled is that no promise from under an earlier list can be left: see
	// [Machine.settleList].
	Settled bool
}

// handleChangeMembers takes a new list, or refuses it with a sentence that says what to do.
func (m *Machine) handleChangeMembers(in ChangeMembers) {
	next := NewMembers(in.Members)
	why := m.refuseMembers(next)
	if why == "" && next.Digest() != m.listDigest {
		m.adopt(next)
	}
	m.emit(MembersChanged{in.Token, why})
}

// refuseMembers says why a list cannot follow the present one; empty: it can.
func (m *Machine) refuseMembers(next Members) string {
	if err := next.Validate(); err != nil {
		return err.Error()
	}
	change := m.members.Difference(next)
	switch {
	case !next.Has(m.setup.Self):
		return fmt.Sprintf("cache: the new list does not have %s itself: stop a peer that is removed", m.setup.Self)
	case len(change) == 0:
		return "" // at most addresses of clients have changed
	case len(change) > 1:
		return fmt.Sprintf("cache: the new list differs from the present one by %d members (%s): change one member at a time, and reload every peer before the next change", len(change), strings.Join(change, ", "))
	}
	// A promise made under the list before the present one may still hold at a peer
	// that took the present one as late as this.
	if wait := m.listAt + m.settleTime() - m.now.Boot; !m.listSettled && wait > 0 {
		return fmt.Sprintf("cache: the list of members has just changed: change the next member in %v", wait.Round(100*time.Millisecond))
	}
	for _, member := range m.members {
		// A peer that has fallen behind by two already cannot be left further behind.
		p := m.peers[member.URL]
		if p != nil && p.link == Up && !p.incompatible && p.list != nil && next.Has(member.URL) && !next.WorksWith(p.list) {
			return fmt.Sprintf("cache: %s still has another list of members (%s): reload it before the next change", member.URL, strings.Join(m.members.Difference(p.list), ", "))
		}
	}
	return ""
}

// settleTime is how long every member must have had the same list before nothing can
// rest on an earlier one: as long as a promise, and as long as a peer may take to say
// that its list has changed.
func (m *Machine) settleTime() time.Duration {
	return m.setup.Timings.AnnounceTimeout + m.setup.Timings.Hello
}

// settleList notes when no promise from under an earlier list can be left: all members
// have said this list, and the last of them said it settleTime ago.
func (m *Machine) settleList() {
	if m.listSettled {
		return
	}
	since := m.listAt
	for url, p := range m.peers {
		if m.isOriginal(url) {
			continue // it says no list, and follows none
		}
		if p.listDigest != m.listDigest {
			return
		}
		since = max(since, p.listSince)
	}
	if m.now.Boot >= since+m.settleTime() {
		m.listSettled = true
		m.saveMembers()
	}
}

func (m *Machine) saveMembers() {
	if m.setup.HasStorage {
		m.emit(SaveMembers{MembersState{m.members, m.listSettled}})
	}
}

// restoreMembers compares the list that the peer is started with to the stored one. A
// peer that starts with another list has taken it as by [ChangeMembers].
func (m *Machine) restoreMembers(stored MembersState) {
	m.listSettled = true
	if len(stored.Members) == 0 {
		m.saveMembers()
		return
	}
	change := stored.Members.Difference(m.members)
	m.listSettled = stored.Settled && len(change) == 0
	if !m.listSettled {
		// Also the only member that is left may have promised its vote to one who left.
		m.abstain = m.now.Boot + m.setup.Timings.AnnounceTimeout
	}
	if len(change) > 0 {
		m.floor = max(m.floor, m.unseenTerm())
		m.owe(stored.Members)
		m.recountRemovals()
	}
	if len(change) > 0 || stored.Members.Digest() != m.listDigest {
		m.saveMembers()
	}
}

// owe remembers that new members must drop what they have: it may have been removed
// while they were no members, when nobody told them.
func (m *Machine) owe(old Members) {
	for url := range m.peers {
		if !old.Has(url) {
			m.removals.owed[url] = m.unseenTerm()
		}
	}
	for url := range m.removals.owed {
		if !m.members.Has(url) {
			delete(m.removals.owed, url)
		}
	}
}

// adopt puts a list in force.
func (m *Machine) adopt(next Members) {
	old, was := m.members, m.listDigest
	change := old.Difference(next)
	m.members, m.listDigest = next, next.Digest()
	if len(change) > 0 {
		m.listAt, m.listSettled = m.now.Boot, false
		// A majority of the list before the last one need not share a peer with a majority of the present list, so
		// nobody here need have seen its last term.
		m.floor = max(m.floor, m.unseenTerm())
	}
	m.partitioned = false
	var gone []string
	for _, member := range old {
		if member.URL != m.setup.Self && !next.Has(member.URL) {
			delete(m.peers, member.URL)
			gone = append(gone, member.URL)
		}
	}
	for _, member := range next {
		if member.URL != m.setup.Self && m.peers[member.URL] == nil {
			m.peers[member.URL] = &peer{linkSince: m.now.Boot}
		}
	}
	for _, p := range m.peers {
		if p.listDigest != 0 && p.listDigest == was && p.list == nil {
			p.list = old
		}
		m.compareList(p)
	}
	// What new members are owed is stored before the list that makes them members: a
	// peer that stops in between finds the change again when it starts.
	m.owe(old)
	m.recountRemovals()
	m.saveMembers()
	for _, url := range gone {
		m.send(url, m.newHello())
		m.sendMembers(url) // the last word to it
	}
	m.emit(StateChanged{Why: strings.TrimSpace(fmt.Sprintf("%d members %s", len(next), strings.Join(change, ", ")))})
	m.recountFetches()
	m.sendHello("")
	m.linksChanged()
}

// recountFetches counts again, under the list in force, what rests on a majority.
func (m *Machine) recountFetches() {
	for _, k := range m.sortedKeys(func(k *key) bool { return k.state != Idle }) {
		switch k.state {
		case Follower: // its promise holds, whatever the list
		case Candidate:
			m.endCandidacy(k, "")
			m.startCandidacyIfWanted(k)
		default:
			m.updateTrust(k)
		}
		m.schedule(k)
	}
}

// compareList judges the list that a peer has said. While only its digest is known,
// the peer counts as incompatible.
func (m *Machine) compareList(p *peer) {
	switch {
	case p.listDigest == 0, p.listDigest == m.listDigest:
		p.incompatible, p.list = false, nil
	case p.list == nil:
		p.incompatible = true
	default:
		p.incompatible = !p.list.Has(m.setup.Self) || !p.list.WorksWith(m.members)
	}
}

// handleDigest records which list a peer has, as every Hello says; needsReply is whether to
// send it this peer's list.
func (m *Machine) handleDigest(p *peer, digest uint64) (needsReply bool) {
	if p.listDigest != digest {
		p.listDigest, p.listSince = digest, m.now.Boot
		needsReply = digest != m.listDigest
		if p.list != nil && p.list.Digest() != digest {
			p.list = nil
		}
	}
	m.compareList(p)
	return needsReply
}

// handleMembersList records a peer's list. Where it has greeted on this connection, the list
// must be the one of its greeting: an older message may come late.
func (m *Machine) handleMembersList(from string, l Members) {
	p := m.peers[from]
	if p == nil || l.Validate() != nil || !slices.Equal(l, NewMembers(l)) {
		return
	}
	switch digest := l.Digest(); {
	case digest == p.listDigest:
	case p.listDigest != 0:
		return
	default:
		p.listDigest, p.listSince = digest, m.now.Boot
	}
	p.list = l
	m.compareList(p)
	m.linksChanged()
}

// sendMembers sends this peer's list.
func (m *Machine) sendMembers(to string) { m.send(to, MembersList{m.members}) }

// isMember is false when those who are connected have lists without this peer: it waits
// to be added, or was removed.
func (m *Machine) isMember() bool {
	leftOut := false
	for _, p := range m.peers {
		if p.link == Up && p.listDigest != 0 {
			if p.list == nil || p.list.Has(m.setup.Self) {
				return true
			}
			leftOut = true
		}
	}
	return !leftOut
}
