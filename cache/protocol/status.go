package protocol

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Counters count since the start.
type Counters struct {
	Elections, Won, Yielded, Partitions, Removals int64
	// Ignored are messages that make no sense: from incompatible peers, of absurd terms, or
	// with copies that expire too late.
	Ignored int64
	// ElectionTime is the sum from standing to winning.
	ElectionTime time.Duration
}

// KeyStatus is what a machine does about a key.
type KeyStatus struct {
	State       State
	Term        int64
	Peer        string // who is followed
	PeerFetches bool   // it fetches
	Waiting     int
	Failure     string        // of the last fetch, while its back-off lasts
	Retry       time.Duration // when that ends, on the boot clock
}

// PeerStatus is what a machine knows of another peer.
type PeerStatus struct {
	Member
	State LinkState
	Why   string // [Unusable]
	Since time.Duration
	Hello Hello // the last; Incarnation 0: none
	Skew  time.Duration
	// Difference is how its list of members differs from this peer's, as in
	// [Members.Difference]; Known is that it has said its list.
	Difference []string
	Known      bool
	// Incompatible: its list differs by more than one member, does not have this peer, or is
	// not known yet. Its messages are ignored.
	Incompatible bool
}

// Status is how a machine fares.
type Status struct {
	Member, Partitioned, Abstaining bool
	Connected, Majority             int
	Trouble                         string // what an operator should look at
	Unready                         string // why this peer may fetch nothing now; empty: it may, unless it is passive
}

// Members is the list in force.
func (m *Machine) Members() Members { return m.members }

// Counters are the counters now.
func (m *Machine) Counters() Counters { return m.counters }

// KeyStatus tells of one key.
func (m *Machine) KeyStatus(name string) KeyStatus {
	k := m.keys[name]
	if k == nil {
		return KeyStatus{}
	}
	return m.keyStatus(k)
}

func (m *Machine) keyStatus(k *key) KeyStatus {
	l := KeyStatus{State: k.state, Term: k.term, Peer: k.boundTo, PeerFetches: k.boundToFetch, Waiting: len(k.waiters)}
	if k.failure.until > m.now.Boot {
		l.Failure, l.Retry = k.failure.text, k.failure.until
	}
	return l
}

// Active tells of the keys of which anything is known besides the copy, in no
// particular order, until each returns false.
func (m *Machine) Active(each func(name string, l KeyStatus) bool) {
	for name, k := range m.keys {
		if !each(name, m.keyStatus(k)) {
			return
		}
	}
}

// Peers tells of the other members.
func (m *Machine) Peers() []PeerStatus {
	var out []PeerStatus
	for _, member := range m.members {
		if p := m.peers[member.URL]; p != nil {
			l := PeerStatus{
				Member: member, State: p.link, Why: p.unusable, Since: p.linkSince, Hello: p.hello,
				Skew: time.Duration(p.skew) * time.Millisecond, Incompatible: p.incompatible,
				Known: p.listDigest != 0 && (p.listDigest == m.listDigest || p.list != nil),
			}
			if p.list != nil {
				l.Difference = m.members.Difference(p.list)
			}
			out = append(out, l)
		}
	}
	return out
}

// Status tells how this peer fares.
func (m *Machine) Status() Status {
	s := Status{
		Member: m.isMember(), Partitioned: m.partitioned || !m.hasQuorum(), Abstaining: m.isAbstaining(),
		Connected: m.connected(), Majority: m.members.Majority(),
	}
	for _, p := range m.Peers() {
		s.Trouble = cmp.Or(m.troubleWith(p), s.Trouble)
	}
	switch {
	case m.ceilingFailure != "":
		s.Trouble = "this peer neither fetches nor votes, because it cannot store its terms: " + m.ceilingFailure
	case m.now.Boot < m.lostUntil:
		s.Trouble = m.lostStorage()
	}
	switch {
	case m.ceilingFailure != "", m.now.Boot < m.lostUntil:
		s.Unready = s.Trouble
	case !s.Member:
		s.Unready = "it is not a member of the cluster: " + s.Trouble
	case m.hasQuorum() && m.partitioned:
		s.Unready = "too few of the peers that are connected answer"
	case s.Partitioned:
		s.Unready = fmt.Sprintf("it reaches %d of the %d members that are a majority", s.Connected, s.Majority)
		if s.Trouble != "" {
			s.Unready += ": " + s.Trouble
		}
	}
	return s
}

// troubleWith is what an operator should know of a peer; empty: nothing.
func (m *Machine) troubleWith(p PeerStatus) string {
	switch {
	case p.Why != "":
		return fmt.Sprintf("nothing that %s sends can be used: %s", p.URL, p.Why)
	case p.State == Up && slices.Contains(p.Difference, "-"+m.setup.Self):
		return fmt.Sprintf("the list of members of %s does not have this peer: add it there and reload, or stop this peer if it was removed", p.URL)
	case p.State == Up && p.Hello.Incarnation == 0 && !m.setup.Mixed && m.now.Boot-p.Since > 3*m.setup.Timings.Hello:
		return fmt.Sprintf("%s is connected and sends no Hello: see its log; only if it is a peer of the original system, run all others with --mixed", p.URL)
	case p.Incompatible:
		return fmt.Sprintf("%s has another list of members than this peer (%s): change the list one member at a time, and reload every peer before the next change", p.URL, strings.Join(p.Difference, ", "))
	case p.Skew.Abs() > m.setup.Timings.Skew && p.Hello.Incarnation != 0:
		return fmt.Sprintf("the clock of %s is more than %v off this peer's: values live shorter or longer there", p.URL, m.setup.Timings.Skew)
	}
	return ""
}

// lostStorage says what an empty storage means that was not.
func (m *Machine) lostStorage() string {
	return fmt.Sprintf("the data of this peer is gone: %s remembers that it had some. If a volume is not mounted, stop this peer and mount it; "+
		"else wait: it neither fetches nor votes for %v, until nothing can rest on what it has forgotten", m.lostKnownBy, m.setup.Timings.lossWait())
}
