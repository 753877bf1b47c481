package protocol

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

// The members of configuration n agree on configuration n+1, which differs by one
// member, by single-decree Paxos: one instance per number, C(n) its acceptors. Any
// member that stores what it promises may propose. Two majorities without a peer in
// common never act at the same time, because:
//
//  1. A number has one configuration. The acceptors of an instance have all adopted
//     the same C(n) (a message carries the digest of it), a ballot belongs to one
//     proposer and one value, and promises and acceptances are stored before they
//     are told. The rest is Paxos.
//  2. Majorities of C(n) and C(n+1) share a peer: of k members and of k+1 they have
//     ⌊k/2⌋+1 and ⌊(k+1)/2⌋+1, in all k+2 among k+1 peers. What that peer promised
//     to a candidate of one binds it towards candidates of the other.
//  3. Majorities of C(n) and of C(m), m ≥ n+2, may share nobody, but they never act
//     at the same time. Before C(m) is agreed, C(n+2) was, by a majority A of
//     C(n+1), each of whom had adopted C(n+1), durably, for the settling time when
//     it accepted. Every majority Q of C(n) shares a peer with A. Since that peer
//     adopted C(n+1) it has promised nothing to candidates of C(n), and what it
//     promised before has run out. So Q is not promised to anybody any more.
//
// For the same reason terms used under C(n) may be unknown to a majority of C(n+2).
// So a promise tells up to where its peer may have used terms, and the highest of
// a majority becomes the floor of what is proposed: a majority of C(n) shares a peer
// with every majority of C(n+1), and that peer's terms of C(n) are in what it tells.
//
// What this needs of the rest of the machine:
//   - A peer promises (votes, acknowledges announcements) only to peers of its own
//     number. One of a lower number it refuses and tells; one of a higher number
//     it hears out only after it has adopted, and stored, that configuration.
//   - No promise outlasts the settling time: it is at least [Timings.Source].
//   - A candidate counts the promises of members of its own configuration alone,
//     and counts again when it adopts another. Adopting frees nobody of a promise.
//   - A peer that starts has forgotten its promises: it abstains for
//     [Timings.Source], or until every other member of its configuration has
//     greeted it with that very number, and not busy, but this only if the
//     configuration is known to be settled: a promise from under an earlier one may
//     bind it to a peer that is no member any more. A peer without storage may
//     also have forgotten a later number, and promises under it; but whoever found
//     that number agreed is another member of the earlier one, and has stored it.
//   - All peers that start with number 1 were given the same members.
//   - Storage does not forget. A peer that lost its storage is removed before it
//     comes back, and added again; until then it may have forgotten a promise.
//
// Agreement needs a majority of C(n) that stores. A peer that does not is no
// acceptor: it stays silent, and adopts what was agreed.

// Steps of a [Membership] message.
const (
	stepPrepare  byte = 'p' // asks for a promise to refuse lower ballots
	stepPromise  byte = 'P' // gives it, and tells what was accepted
	stepAccept   byte = 'a' // asks to accept a configuration
	stepAccepted byte = 'A' // it is accepted
	stepRefused  byte = 'r' // a higher ballot, told in Ballot, or another basis stands against it
	stepAgreed   byte = 'g' // the configuration in force
	stepHave     byte = 'h' // which number the sender has
)

const (
	// ballots is above every index of a member: ballot = round × ballots + index
	// of the proposer in C(n), so that no two proposers share one.
	ballots = MaxMembers + 1
	// councilWait is the least wait for answers; it doubles up to councilDoublings times.
	councilWait      = 200 * time.Millisecond
	councilDoublings = 4
	// councilTells bounds how often one peer is told of a configuration; afterwards
	// its next Hello gets the answer.
	councilTells = 10
)

// MembershipState is what a peer must not forget of the agreement on its members.
type MembershipState struct {
	Config   Config // in force
	Promised int64  // ballots below this are refused for the next number
	Ballot   int64  // under which Accepted was accepted; 0: nothing was
	Accepted Config
	// Settled is that Config has been in force here for so long that no promise
	// from under an earlier one is left.
	Settled bool
}

// council is one peer's part in agreeing on the members.
type council struct {
	self   string
	keeps  bool          // there is storage
	settle time.Duration // how long a configuration must be in force here before its successor is
	terms  func() int64
	jitter func() float64

	state MembershipState
	basis uint64        // digest of the members in force
	since time.Duration // when they were adopted, or the peer started; -1: not yet known

	run     *proposal           // the change under way here
	known   map[string]standing // what others said of themselves
	telling map[string]*telling // who may not know the configuration in force
	effects []Effect
}

// standing is what a peer says of itself.
type standing struct {
	config int64
	keeps  bool
}

// telling is the telling of one peer.
type telling struct {
	at    time.Duration
	tries int
}

// proposal is a change that this peer drives.
type proposal struct {
	change Change
	want   Config
	at     time.Duration // when the next attempt begins
	tries  int
	seen   int64 // highest ballot that stood against this one

	ballot   int64
	value    Config          // what is to be accepted; number 0: promises are collected
	found    int64           // highest ballot under which something was accepted
	accepted Config          // what was
	floor    int64           // up to which acceptors may have used terms
	yes      map[string]bool // promises, then acceptances
	offered  bool            // want was given to acceptors: it may come to be agreed

	heard   map[string]bool // who has answered at all
	strange map[string]bool // who has other members under this number
}

// newCouncil continues from state: as stored, or the members that the peer was
// started with. settle is at least as long as any promise; jitter returns [0, 1).
// terms tells up to which term this peer may have used any.
func newCouncil(self string, state MembershipState, keeps bool, settle time.Duration, terms func() int64, jitter func() float64) *council {
	// Nothing comes before number 1.
	state.Settled = state.Settled || state.Config.Number <= 1
	return &council{
		self: self, keeps: keeps, settle: settle, terms: terms, jitter: jitter,
		state: state, basis: state.Config.Digest(), since: -1,
		known: map[string]standing{}, telling: map[string]*telling{},
	}
}

// config is the configuration in force; number 0: only whom to reach.
func (c *council) config() Config { return c.state.Config }

// settled reports whether no promise from under an earlier configuration is left.
func (c *council) settled() bool { return c.state.Settled }

// next is when, on the boot clock, tick is wanted.
func (c *council) next() (time.Duration, bool) {
	var at time.Duration
	wanted := false
	add := func(t time.Duration) {
		if !wanted || t < at {
			at, wanted = t, true
		}
	}
	if c.run != nil {
		add(min(c.run.at, c.run.change.Until))
	}
	if !c.state.Settled && c.since >= 0 {
		add(c.since + c.settle)
	}
	for _, t := range c.telling {
		add(t.at)
	}
	return at, wanted
}

// tick lets time pass.
func (c *council) tick(now Now) []Effect {
	c.begin(now)
	c.advance(now.Boot)
	return c.take()
}

// propose begins a change; its end is a [Changed].
func (c *council) propose(now Now, in Change) []Effect {
	c.begin(now)
	want, err := c.wanted(in)
	if err != nil {
		c.effects = append(c.effects, Changed{in.Token, c.state.Config, err.Error()})
		return c.take()
	}
	c.run = &proposal{change: in, want: want, at: now.Boot, heard: map[string]bool{}, strange: map[string]bool{}}
	if !c.state.Settled {
		c.run.at = c.since + c.settle
	}
	c.advance(now.Boot)
	return c.take()
}

// hello hears which configuration a peer has, and whether it has storage.
func (c *council) hello(now Now, from string, config int64, keeps bool) []Effect {
	c.begin(now)
	if c.state.Config.Has(from) || c.telling[from] != nil {
		c.known[from] = standing{config, keeps}
	}
	c.compare(from, config)
	return c.take()
}

// heard takes a message from a peer.
func (c *council) heard(now Now, from string, m Membership) []Effect {
	c.begin(now)
	n := m.Config.Number
	switch m.Step {
	case stepHave:
		c.compare(from, n)
	case stepAgreed:
		if !proper(m.Config) {
			break
		}
		if n > c.state.Config.Number {
			c.adopt(now.Boot, m.Config, c.wait(councilDoublings))
		}
		if c.compare(from, n); n == c.state.Config.Number {
			c.send(from, Membership{Step: stepHave, Config: Config{Number: n}})
		}
	case stepPrepare, stepAccept:
		if n != c.state.Config.Number+1 {
			// The asker has at least the number before the one that it proposes.
			c.compare(from, n-1)
		} else if reply, ok := c.judge(from, m); ok {
			c.send(from, reply)
		}
	case stepPromise, stepAccepted, stepRefused:
		c.count(now.Boot, from, m)
	}
	return c.take()
}

// compare answers a peer whose configuration has this number.
func (c *council) compare(from string, number int64) {
	switch ours := c.state.Config.Number; {
	case number < ours:
		c.send(from, Membership{Step: stepAgreed, Config: c.state.Config})
	case number > ours:
		c.send(from, Membership{Step: stepHave, Config: Config{Number: ours}})
	default:
		c.told(from)
	}
}

// judge is the acceptor's answer to a proposer, which may be this peer itself;
// false: it has none to give. What the answer promises is stored before it.
func (c *council) judge(from string, m Membership) (Membership, bool) {
	ours := c.state.Config
	if !c.keeps || ours.Number == 0 || !ours.Has(c.self) || !c.state.Settled {
		return Membership{}, false
	}
	reply := Membership{Step: stepRefused, Config: Config{Number: ours.Number + 1}, Basis: c.basis, Ballot: c.state.Promised}
	if m.Basis != c.basis || m.Ballot < c.state.Promised {
		return reply, true
	}
	if i := ours.index(from); i < 0 || m.Ballot%ballots != int64(i) || m.Ballot < ballots || m.Ballot > MaxUint {
		return Membership{}, false
	}
	if m.Step == stepAccept && !c.follows(m.Config) {
		return Membership{}, false
	}
	news := c.state.Promised != m.Ballot
	c.state.Promised = m.Ballot
	reply.Ballot, reply.Step = m.Ballot, stepPromise
	if m.Step == stepAccept {
		news = news || c.state.Ballot != m.Ballot
		c.state.Ballot, c.state.Accepted = m.Ballot, m.Config
		reply.Step = stepAccepted
	} else if c.state.Ballot > 0 {
		reply.Config, reply.Accepted = c.state.Accepted, c.state.Ballot
	} else {
		reply.Config.Floor = c.terms()
	}
	if news {
		c.save()
	}
	return reply, true
}

// attempt asks all acceptors for a promise under a ballot that was never used.
func (c *council) attempt(now time.Duration) {
	r := c.run
	r.at = now + c.wait(r.tries)
	r.tries++
	round := max(r.seen, c.state.Promised)/ballots + 1
	r.ballot = round*ballots + int64(c.state.Config.index(c.self))
	if r.ballot > MaxUint {
		c.finish("cache: the ballots of this configuration are used up: a peer must have sent a false one")
		return
	}
	r.value, r.accepted, r.found, r.floor = Config{}, Config{}, 0, 0
	c.ask(now, Membership{Step: stepPrepare, Config: Config{Number: r.want.Number}})
}

// ask gives a step of the proposal to all acceptors, this one included: it has
// stored the ballot before anybody else sees it.
func (c *council) ask(now time.Duration, m Membership) {
	m.Basis, m.Ballot = c.basis, c.run.ballot
	c.run.yes = map[string]bool{}
	reply, ok := c.judge(c.self, m)
	for _, member := range c.state.Config.Members {
		c.send(member.URL, m)
	}
	if ok {
		c.count(now, c.self, reply)
	}
}

// count takes an acceptor's answer.
func (c *council) count(now time.Duration, from string, m Membership) {
	r, acceptors := c.run, c.state.Config
	if r == nil || m.Config.Number != r.want.Number || !acceptors.Has(from) {
		return
	}
	r.heard[from] = true
	collecting := r.value.Number == 0
	switch {
	case m.Basis != c.basis:
		r.strange[from] = true
	case m.Step == stepRefused:
		r.seen = max(r.seen, m.Ballot)
	case m.Ballot != r.ballot || collecting != (m.Step == stepPromise):
	case collecting:
		if m.Accepted > 0 && !c.follows(m.Config) {
			return
		}
		if m.Accepted > r.found {
			r.found, r.accepted = m.Accepted, m.Config
		}
		r.floor = max(r.floor, m.Config.Floor)
		if r.yes[from] = true; len(r.yes) < acceptors.Majority() {
			return
		}
		// Something that was accepted may have been agreed: it comes first.
		if r.value, r.value.Floor = r.want, r.floor; r.found > 0 {
			r.value = r.accepted
		}
		r.offered = r.offered || slices.Equal(r.value.Members, r.want.Members)
		c.ask(now, Membership{Step: stepAccept, Config: r.value})
	default:
		if r.yes[from] = true; len(r.yes) >= acceptors.Majority() {
			c.adopt(now, r.value, 0)
			c.spread(now)
		}
	}
}

// adopt puts an agreed configuration in force, and begins, after a while, to tell
// it to the old and the new members: whoever hears of it late is told by others.
func (c *council) adopt(now time.Duration, config Config, after time.Duration) {
	old := c.state.Config
	c.state, c.basis, c.since = MembershipState{Config: config}, config.Digest(), now
	c.save()
	for _, m := range slices.Concat(old.Members, config.Members) {
		if m.URL != c.self {
			c.telling[m.URL] = &telling{at: now + after}
		}
	}
	maps.DeleteFunc(c.known, func(url string, _ standing) bool { return !config.Has(url) })
	r := c.run
	switch {
	case r == nil:
	case r.satisfied(config):
		c.finish("")
	case config.Number == r.want.Number:
		c.finish(fmt.Sprintf("cache: another change came first: configuration %d %s", config.Number, difference(old, config)))
	default:
		c.finish(fmt.Sprintf("cache: other changes came first: configuration %d is in force, and is not as asked for", config.Number))
	}
}

// advance does what is due.
func (c *council) advance(now time.Duration) {
	if r := c.run; r != nil && now >= r.change.Until {
		c.finish(c.outcome())
	} else if r != nil && now >= r.at {
		c.attempt(now)
	}
	c.spread(now)
}

// spread tells the configuration in force to whoever may not know it.
func (c *council) spread(now time.Duration) {
	for _, url := range slices.Sorted(maps.Keys(c.telling)) {
		t := c.telling[url]
		switch {
		case t.at > now:
		case t.tries == councilTells || c.known[url].config >= c.state.Config.Number:
			c.told(url)
		default:
			t.at = now + c.wait(t.tries)
			t.tries++
			c.send(url, Membership{Step: stepAgreed, Config: c.state.Config})
		}
	}
}

// told ends the telling of a peer. The link to one that is a member no more has
// stood so long only for that.
func (c *council) told(url string) {
	if c.telling[url] == nil {
		return
	}
	delete(c.telling, url)
	if !c.state.Config.Has(url) {
		c.effects = append(c.effects, Drop{url})
	}
}

// finish ends the change under way.
func (c *council) finish(err string) {
	c.effects = append(c.effects, Changed{c.run.change.Token, c.state.Config, err})
	c.run = nil
}

// begin notes when the peer started, as what it promised before that is not known,
// and when the settling time is over.
func (c *council) begin(now Now) {
	if c.since < 0 {
		c.since = now.Boot
	}
	if !c.state.Settled && now.Boot >= c.since+c.settle {
		c.state.Settled = true
		c.save()
	}
}

func (c *council) take() []Effect {
	out := c.effects
	c.effects = nil
	return out
}

func (c *council) send(to string, m Membership) {
	if to != c.self {
		c.effects = append(c.effects, Send{to, m})
	}
}

func (c *council) save() {
	if c.keeps {
		c.effects = append(c.effects, SaveMembership{c.state})
	}
}

// wait grows with every try and is random by half, so that two proposers do not
// meet again and again.
func (c *council) wait(tries int) time.Duration {
	base := councilWait << min(tries, councilDoublings)
	return base/2 + time.Duration(c.jitter()*float64(base))
}
