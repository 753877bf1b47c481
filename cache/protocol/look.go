package protocol

import (
	"fmt"
	"time"
)

// Counters count since the start.
type Counters struct {
	Elections, Won, Yielded, Partitions, Removals int64
	// Failures are of this peer's fetches; Aborted are fetches that it gave up.
	Failures, Aborted int64
	// Silences are the times that a peer followed another for too long.
	Silences int64
	// Ignored are messages that make no sense: from strangers, of absurd terms, or
	// with copies that expire too late.
	Ignored int64
	// ElectionTime is the sum from standing to winning.
	ElectionTime time.Duration
}

// Look is what a machine does about a key.
type Look struct {
	State   State
	Term    int64
	Peer    string // who is followed
	Source  bool   // it fetches
	Waiting int
	Failure string        // of the last fetch, while its back-off lasts
	Retry   time.Duration // when that ends, on the boot clock
}

// PeerLook is what a machine knows of another peer.
type PeerLook struct {
	Member
	State    LinkState
	Since    time.Duration
	Hello    Hello // the last; Incarnation 0: none
	Skew     time.Duration
	Stranger bool // it was started with other members
}

// Status is how a machine fares.
type Status struct {
	Member, Partitioned, Abstaining bool
	Connected, Majority             int
	Trouble                         string // what a person should look at
}

// Config is the configuration in force.
func (m *Machine) Config() Config { return m.config }

// Counters are the counters now.
func (m *Machine) Counters() Counters { return m.counters }

// Look tells of one key.
func (m *Machine) Look(name string) Look {
	k := m.keys[name]
	if k == nil {
		return Look{}
	}
	return m.look(k)
}

func (m *Machine) look(k *key) Look {
	l := Look{State: k.state, Term: k.term, Peer: k.leader, Source: k.source, Waiting: len(k.waiters)}
	if k.failure.until > m.now.Boot {
		l.Failure, l.Retry = k.failure.text, k.failure.until
	}
	return l
}

// Active tells of the keys of which anything is known besides the copy, in no
// particular order, until each returns false.
func (m *Machine) Active(each func(name string, l Look) bool) {
	for name, k := range m.keys {
		if !each(name, m.look(k)) {
			return
		}
	}
}

// Peers tells of the other members.
func (m *Machine) Peers() []PeerLook {
	var out []PeerLook
	for _, member := range m.config.Members {
		if p := m.peers[member.URL]; p != nil {
			out = append(out, PeerLook{
				Member: member, State: p.link, Since: p.since, Hello: p.hello,
				Skew: time.Duration(p.skew) * time.Millisecond, Stranger: p.stranger,
			})
		}
	}
	return out
}

// Status tells how this peer fares.
func (m *Machine) Status() Status {
	s := Status{
		Member: m.member(), Partitioned: m.partitioned || !m.quorate(), Abstaining: m.abstaining(),
		Connected: m.connected(), Majority: m.config.Majority(),
	}
	if m.behind != 0 && m.now.Boot-m.behind > 3*m.Timings.Hello {
		s.Trouble = fmt.Sprintf("the others have a later configuration than this peer, which has number %d: it may have been removed, see `cache peers` at another", m.config.Number)
	}
	for _, p := range m.Peers() {
		switch {
		case p.State == Up && p.Hello.Incarnation == 0 && !m.Mixed && m.now.Boot-p.Since > 3*m.Timings.Hello:
			s.Trouble = fmt.Sprintf("%s is connected and says no hello: a peer of another kind needs all others to run with --mixed", p.URL)
		case p.Stranger:
			s.Trouble = fmt.Sprintf("%s was started with other members than this peer: give all peers the same list", p.URL)
		case p.Skew.Abs() > m.Timings.Skew && p.Hello.Incarnation != 0:
			s.Trouble = fmt.Sprintf("the clock of %s is off by %v from this peer's: values live shorter or longer there", p.URL, p.Skew)
		}
	}
	return s
}
