package protocol

import (
	"fmt"
	"slices"
	"time"
)

// peer is what a machine knows of another.
type peer struct {
	link  LinkState
	since time.Duration
	hello Hello // the last; its Incarnation is 0 while there was none
	// skew is by how many milliseconds, within a day, its wall clock seemed ahead: the
	// lesser of the last two measurements, because a greeting that was late makes it
	// seem behind.
	skew, measured int64
	// former is the incarnation before: its late greetings say nothing.
	former uint64
	// stranger is that it was started with other members under the same number.
	stranger bool
	// clear is that nothing it does can rest on a vote of this peer's last life.
	clear bool
}

// link takes in what the transport has found out.
func (m *Machine) link(in Link) {
	p := m.peers[in.Peer]
	if p == nil {
		if in.State == Up { // it may have been a member, and not know better
			m.agree(m.council.hello(m.now, in.Peer, 0, false))
		}
		return
	}
	if p.link != in.State {
		p.link, p.since = in.State, m.now.Boot
	}
	switch in.State {
	case Up:
		m.greet(in.Peer)
		if m.partitioned {
			m.ping()
		}
	case Dead:
		m.dead(in.Peer, m.now.Boot+1)
	}
	m.links()
}

// original is whether a peer counts as one of the original's.
func (m *Machine) original(url string) bool {
	p := m.peers[url]
	return m.Mixed && p != nil && p.hello.Incarnation == 0
}

// links does what follows when a majority is connected, or no longer is.
func (m *Machine) links() {
	alone := !m.quorate()
	if alone && !m.alone && m.member() {
		m.counters.Partitions++
		m.emit(Moved{Why: whyPartitioned})
	}
	m.alone = alone
	if m.Mixed { // peers of the original's count as long as they are connected
		for _, k := range m.sortedKeys(func(k *key) bool { return k.state == Sourcing }) {
			m.retrust(k)
			m.arm(k)
		}
	}
	if alone && m.grace != 0 {
		return
	}
	for _, k := range m.sortedKeys(func(k *key) bool { return k.state == Idle && (k.wanted || len(k.waiters) > 0) }) {
		m.stand(k)
		m.arm(k)
	}
}

// dead forgets what, since before a time, binds this peer to one whose process has
// ended: it cannot be fetching any more.
func (m *Machine) dead(url string, before time.Duration) {
	m.parked = slices.DeleteFunc(m.parked, func(h Heard) bool { return h.From == url })
	for _, k := range m.keys {
		if p := k.pending; p != nil && p.from == url && p.at < before {
			k.pending = nil
		}
	}
	for _, k := range m.sortedKeys(func(k *key) bool { return k.state == Candidate && k.fresh && k.best == url }) {
		m.again(k) // its copy will not come
	}
	for _, k := range m.sortedKeys(func(k *key) bool { return k.state == Follower && k.leader == url && k.boundAt < before }) {
		m.unbound(k, "the peer that it followed has ended")
	}
}

// connected counts the members that can be heard, and this peer.
func (m *Machine) connected() int {
	n := 1
	for _, p := range m.peers {
		if p.link == Up && !p.stranger {
			n++
		}
	}
	return n
}

func (m *Machine) quorate() bool { return m.connected() >= m.config.Majority() }

// greet says who this peer is: to one, or to every other.
func (m *Machine) greet(to string) {
	h := Hello{
		Incarnation: m.Incarnation, Config: m.config.Number, Members: m.digest, Wall: m.now.Wall,
		Busy: m.busy > 0, Keeps: m.Keeps,
	}
	for _, member := range m.config.Members {
		if p := m.peers[member.URL]; p != nil && (to == "" || to == member.URL) {
			h.Echo = p.hello.Incarnation
			m.send(member.URL, h)
		}
	}
}

func (m *Machine) hello(from string, p *peer, h Hello) {
	if h.Incarnation == 0 || h.Incarnation == p.former {
		m.counters.Ignored++
		return
	}
	news := p.hello.Incarnation != h.Incarnation
	restarted := p.hello.Incarnation != 0 && p.hello.Incarnation != h.Incarnation
	if restarted {
		p.former = p.hello.Incarnation
	}
	p.hello = h
	measured := max(-dayAhead, min(dayAhead, h.Wall-m.now.Wall))
	p.skew = measured
	if !news && max(p.measured, -p.measured) < max(measured, -measured) {
		p.skew = p.measured
	}
	p.measured = measured
	if h.Config <= m.config.Number {
		m.behind = 0
	} else if m.behind == 0 {
		m.behind = m.now.Boot
	}
	p.stranger = h.Config == m.config.Number && h.Members != m.digest
	if restarted {
		p.clear = false
		m.dead(from, p.since) // a connection is one process: what it said on this one counts
	}
	if h.Echo != m.Incarnation || news {
		m.greet(from)
	}
	if h.Echo == m.Incarnation && !h.Busy {
		p.clear = true
		m.voteAgain()
	}
	m.agree(m.council.hello(m.now, from, h.Config, h.Keeps))
	m.links()
}

// voteAgain ends the abstention early, once every other member of the configuration
// knows of this life and neither stands nor fetches: nothing rests on a vote of the
// last one.
func (m *Machine) voteAgain() {
	if !m.abstaining() || !m.council.settled() {
		return
	}
	for _, p := range m.peers {
		if !p.clear || p.hello.Config != m.config.Number {
			return
		}
	}
	m.abstain = m.now.Boot
}

// cutOff is that an election heard of too few, whatever the links say.
func (m *Machine) cutOff() {
	if !m.partitioned {
		m.partitioned = true
		m.counters.Partitions++
		m.emit(Moved{Why: "too few peers answer"})
		m.ping()
	}
}

func (m *Machine) ping() {
	m.pingAt = m.now.Boot + m.Timings.Ping
	clear(m.pongs)
	m.send("", Ping{})
}

func (m *Machine) pong(from string) {
	if !m.partitioned {
		return
	}
	m.pongs[from] = true
	if len(m.pongs)+1 >= m.config.Majority() {
		m.partitioned = false
		m.links()
	}
}

func (m *Machine) adopt(c Config) {
	m.config, m.digest = c, c.Digest()
	if !m.absurd(c.Floor) {
		m.floor = max(m.floor, c.Floor)
	}
	m.partitioned, m.behind = false, 0
}

// agree carries out what the agreement on members asks for.
func (m *Machine) agree(effects []Effect) {
	m.effects = append(m.effects, effects...)
	next := m.council.config()
	if next.Number == m.config.Number {
		return
	}
	// Who was there before tells the new member what it may have missed.
	steady := m.member() && next.Number == m.config.Number+1
	m.adopt(next)
	if !steady {
		// It may have been no member meanwhile, and what was removed then it has.
		m.clean(Removal{Everything, "", MaxUint})
	}
	for url := range m.peers {
		if !next.Has(url) {
			delete(m.peers, url)
		}
	}
	for _, member := range next.Members {
		if member.URL != m.Self && m.peers[member.URL] == nil {
			m.peers[member.URL] = &peer{since: m.now.Boot}
			if steady {
				m.removals.owed[member.URL] = m.now.Wall + m.Timings.Reach().Milliseconds()
			}
		}
	}
	for url := range m.removals.owed {
		if !next.Has(url) {
			delete(m.removals.owed, url)
		}
	}
	m.recountRemovals()
	m.emit(Moved{Why: fmt.Sprintf("configuration %d: %d members", next.Number, len(next.Members))})
	for _, k := range m.sortedKeys(func(k *key) bool { return k.state != Idle }) {
		switch {
		case k.state == Follower: // its promise holds, whoever is a member
		case k.state == Candidate:
			m.giveUp(k, "")
			m.standIfWanted(k)
		case !m.member():
			m.abort(k, "this peer is no member any more")
			m.standIfWanted(k)
		default:
			m.retrust(k)
		}
		m.arm(k)
	}
	m.greet("")
	m.links()
}
