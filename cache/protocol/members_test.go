package protocol

import (
	"container/heap"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

var (
	membersRewrite = flag.Bool("members.rewrite", false, "write what the scripts of the members really print; look at the difference")
	membersSeeds   = flag.Int("members.seeds", 2000, "simulated clusters that agree on members")
)

// memberNamed is a member with a short name.
func memberNamed(name string) Member {
	return Member{URL: "tcp://" + name + ":1", API: "tcp://" + name + ":2"}
}

// membersNamed is a configuration: "2:a,b,c".
func membersNamed(text string) Config {
	number, list, _ := strings.Cut(text, ":")
	var c Config
	if list != "" {
		for name := range strings.SplitSeq(list, ",") {
			c.Members = append(c.Members, memberNamed(name))
		}
	}
	c = NewConfig(c.Members)
	c.Number, _ = strconv.ParseInt(number, 10, 64)
	return c
}

// councilName is the short name of a peer.
func councilName(url string) string {
	return strings.TrimSuffix(strings.TrimPrefix(url, "tcp://"), ":1")
}

// councilConfig is the inverse of membersNamed.
func councilConfig(c Config) string {
	var names []string
	for _, m := range c.Members {
		names = append(names, councilName(m.URL))
	}
	return fmt.Sprintf("%d:%s", c.Number, strings.Join(names, ","))
}

// councilScript replays a script through one council. A line that begins with "> "
// tells it what happened; what it wants done follows. "-- self config
// [nothing-kept]" begins a new one. The settling time is 1s, and waits are exact.
func noTerms() int64 { return 0 }

type councilScript struct {
	c   *council
	now time.Duration
}

var councilSteps = map[string]byte{
	"prepare": stepPrepare, "promise": stepPromise, "accept": stepAccept, "accepted": stepAccepted,
	"refused": stepRefused, "agreed": stepAgreed, "have": stepHave,
}

func (s *councilScript) line(t *testing.T, text string) []Effect {
	f := strings.Fields(text)
	at, err := time.ParseDuration(f[0])
	if err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	s.now = at
	now := Now{Boot: s.now}
	switch f = f[1:]; f[0] {
	case "tick":
		return s.c.tick(now)
	case "add", "remove": // add NAME UNTIL
		in := Change{Token: 7}
		if in.Until, err = time.ParseDuration(f[2]); err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		if f[0] == "add" {
			in.Add = new(memberNamed(f[1]))
		} else {
			in.Remove = memberNamed(f[1]).URL
		}
		return s.c.propose(now, in)
	case "hello": // hello FROM NUMBER [nothing-kept]
		number, _ := strconv.ParseInt(f[2], 10, 64)
		return s.c.hello(now, memberNamed(f[1]).URL, number, len(f) == 3)
	}
	// FROM STEP CONFIG [ballot=N] [accepted=N] [basis=CONFIG]
	m := Membership{Step: councilSteps[f[1]], Config: membersNamed(f[2]), Basis: s.c.basis}
	if m.Step == 0 {
		t.Fatalf("%q: no such step", text)
	}
	for _, word := range f[3:] {
		name, value, _ := strings.Cut(word, "=")
		n, _ := strconv.ParseInt(value, 10, 64)
		switch name {
		case "ballot":
			m.Ballot = n
		case "accepted":
			m.Accepted = n
		case "basis":
			m.Basis = membersNamed(value).Digest()
		}
	}
	return s.c.heard(now, memberNamed(f[0]).URL, m)
}

func councilEffect(e Effect) string {
	switch e := e.(type) {
	case SaveMembership:
		out := fmt.Sprintf("  save %s promised %d", councilConfig(e.State.Config), e.State.Promised)
		if e.State.Ballot > 0 {
			out += fmt.Sprintf(" accepted %d %s", e.State.Ballot, councilConfig(e.State.Accepted))
		}
		if !e.State.Settled {
			out += " unsettled"
		}
		return out
	case Send:
		m := e.Message.(Membership)
		for name, step := range councilSteps {
			if step == m.Step {
				out := fmt.Sprintf("  to %s: %s %s", councilName(e.To), name, councilConfig(m.Config))
				if m.Ballot > 0 {
					out += fmt.Sprintf(" ballot=%d", m.Ballot)
				}
				if m.Accepted > 0 {
					out += fmt.Sprintf(" accepted=%d", m.Accepted)
				}
				return out
			}
		}
	case Changed:
		if e.Err == "" {
			return "  changed: " + councilConfig(e.Config)
		}
		return "  not changed: " + councilConfig(e.Config) + ": " + e.Err
	case Drop:
		return "  drop " + councilName(e.Peer)
	}
	return fmt.Sprintf("  %#v", e)
}

// TestMembersScripts replays testdata/members/*.txt.
func TestMembersScripts(t *testing.T) {
	for _, file := range []string{"proposer", "acceptor", "learner", "refused"} {
		t.Run(file, func(t *testing.T) {
			path := "testdata/members/" + file + ".txt"
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			var out strings.Builder
			s := &councilScript{}
			for line := range strings.Lines(string(text)) {
				line = strings.TrimSuffix(line, "\n")
				if strings.HasPrefix(line, "  ") {
					continue
				}
				fmt.Fprintln(&out, line)
				if begin, ok := strings.CutPrefix(line, "-- "); ok {
					f := strings.Fields(begin)
					state := MembershipState{Config: membersNamed(f[1])}
					s = &councilScript{c: newCouncil(memberNamed(f[0]).URL, state, len(f) == 2, time.Second, noTerms, func() float64 { return 0.5 })}
				} else if happened, ok := strings.CutPrefix(line, "> "); ok {
					for _, e := range s.line(t, happened) {
						fmt.Fprintln(&out, councilEffect(e))
					}
					if at, wanted := s.c.next(); wanted {
						fmt.Fprintf(&out, "  next %v\n", at)
					}
				}
			}
			if *membersRewrite {
				if err := os.WriteFile(path, []byte(out.String()), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			want, got := strings.Split(string(text), "\n"), strings.Split(out.String(), "\n")
			for i := range max(len(want), len(got)) {
				if i >= len(want) || i >= len(got) || want[i] != got[i] {
					t.Fatalf("%s:%d: is %q", path, i+1, got[min(i, len(got)-1)])
				}
			}
		})
	}
}

// TestMembersRestart continues from what was stored: a promise and an acceptance
// outlive the process, and the settling time counts anew unless it was over.
func TestMembersRestart(t *testing.T) {
	state := MembershipState{Config: membersNamed("2:a,b,c"), Promised: 33, Ballot: 17, Accepted: membersNamed("3:a,b,c,d")}
	for _, test := range []struct {
		settled bool
		at      time.Duration // since the start
		ballot  int64
		want    string
	}{
		{false, 0, 48, ""},
		{false, time.Second - 1, 48, ""},
		{false, time.Second, 32, "save 2:a,b,c promised 33 accepted 17 3:a,b,c,d; to a: refused 3: ballot=33"},
		{true, 0, 32, "to a: refused 3: ballot=33"},
		{true, 0, 48, "save 2:a,b,c promised 48 accepted 17 3:a,b,c,d; to a: promise 3:a,b,c,d ballot=48 accepted=17"},
	} {
		state.Settled = test.settled
		c := newCouncil(memberNamed("b").URL, state, true, time.Second, noTerms, func() float64 { return 0 })
		c.tick(Now{Boot: time.Minute})
		effects := c.heard(Now{Boot: time.Minute + test.at}, memberNamed("a").URL,
			Membership{Step: stepPrepare, Config: Config{Number: 3}, Basis: c.basis, Ballot: test.ballot})
		var got []string
		for _, e := range effects {
			got = append(got, strings.TrimSpace(councilEffect(e)))
		}
		if got := strings.Join(got, "; "); got != test.want {
			t.Errorf("%v, at %v, ballot %d: %q, want %q", test.settled, test.at, test.ballot, got, test.want)
		}
	}
}

// TestMembersBallots: what one proposer uses, no other may, and none is used twice.
func TestMembersBallots(t *testing.T) {
	used := map[int64]string{}
	for i, name := range []string{"a", "b", "c", "a", "b", "a"} {
		state := MembershipState{Config: membersNamed("1:a,b,c"), Promised: int64(i/3) * 16}
		if i == 5 {
			state.Promised = slices.Max(slices.Collect(maps.Keys(used)))
		}
		c := newCouncil(memberNamed(name).URL, state, true, 0, noTerms, func() float64 { return 0 })
		for _, e := range c.propose(Now{}, Change{Remove: memberNamed("c").URL, Until: time.Second}) {
			if save, ok := e.(SaveMembership); ok {
				if who, twice := used[save.State.Promised]; twice {
					t.Errorf("ballot %d of %s is also %s's", save.State.Promised, who, name)
				}
				used[save.State.Promised] = name
			}
		}
	}
	if len(used) != 6 {
		t.Errorf("%d ballots were stored before use, want 6", len(used))
	}
	c := newCouncil(memberNamed("a").URL, MembershipState{Config: membersNamed("1:a,b,c"), Promised: MaxUint}, true, 0, noTerms, func() float64 { return 0 })
	if changed, ok := c.propose(Now{}, Change{Remove: memberNamed("c").URL, Until: time.Second})[0].(Changed); !ok || !strings.Contains(changed.Err, "used up") {
		t.Errorf("a ballot above %d was used", int64(MaxUint))
	}
}

// TestMembersWanted: what cannot be asked for, beyond the script refused.txt.
func TestMembersWanted(t *testing.T) {
	moved, taken := memberNamed("b"), memberNamed("d")
	moved.API, taken.API = "tcp://b:3", memberNamed("c").API
	for name, test := range map[string]struct {
		in   Change
		want string
	}{
		"nothing":       {Change{}, "adds one member or removes one"},
		"both":          {Change{Add: new(memberNamed("d")), Remove: memberNamed("c").URL}, "adds one member or removes one"},
		"other api":     {Change{Add: &moved}, "remove it first"},
		"another's api": {Change{Add: &taken}, "named twice"},
		"no address":    {Change{Add: &Member{URL: "d", API: "d"}}, "tcp://host:port"},
	} {
		c := newCouncil(memberNamed("a").URL, MembershipState{Config: membersNamed("1:a,b,c")}, true, 0, noTerms, func() float64 { return 0 })
		test.in.Until, test.in.Token = time.Second, 9
		got := c.propose(Now{}, test.in)
		if changed, ok := got[0].(Changed); len(got) != 1 || !ok || changed.Token != 9 || !strings.Contains(changed.Err, test.want) {
			t.Errorf("%s: %v, want an end with %q", name, got, test.want)
		}
	}
}

// TestMembersImproper: what is no configuration, or no successor, is never adopted
// or accepted, nor answered.
func TestMembersImproper(t *testing.T) {
	two := memberNamed("a")
	two.API = "tcp://elsewhere:2"
	unsorted := membersNamed("2:a,b,c,d")
	slices.Reverse(unsorted.Members)
	many := Config{Number: 2}
	for i := range MaxMembers + 1 {
		many.Members = append(many.Members, memberNamed(string(rune('a'+i))))
	}
	for name, config := range map[string]Config{
		"nobody":       {Number: 2},
		"too many":     many,
		"unsorted":     unsorted,
		"twice":        {Number: 2, Members: []Member{memberNamed("a"), two}},
		"bad address":  {Number: 2, Members: []Member{{URL: "a", API: "b"}}},
		"above uint":   {Number: MaxUint + 1, Members: membersNamed("1:a,b").Members},
		"two added":    membersNamed("2:a,b,c,d,e"),
		"one replaced": membersNamed("2:a,b,d"),
		"nothing new":  membersNamed("2:a,b,c"),
	} {
		c := newCouncil(memberNamed("a").URL, MembershipState{Config: membersNamed("1:a,b,c")}, true, 0, noTerms, func() float64 { return 0 })
		b := memberNamed("b").URL
		if got := c.heard(Now{}, b, Membership{Step: stepAccept, Config: config, Basis: c.basis, Ballot: 17}); c.state.Ballot != 0 {
			t.Errorf("%s: accepted: %v", name, got)
		}
		if proper(config) {
			continue // it may be the result of several changes
		}
		if got := c.heard(Now{}, b, Membership{Step: stepAgreed, Config: config}); len(got) != 0 {
			t.Errorf("%s: adopted: %v", name, got)
		}
	}
}

// The simulation: peers that agree on members while messages are lost, doubled and
// reordered, while peers are cut off, crash and restart, with and without storage;
// and, on top, one lock that peers take by the promises of a majority, as the
// machine takes keys.
const (
	clusterSettle = 400 * time.Millisecond
	clusterHello  = 250 * time.Millisecond
	clusterFaults = 6 * time.Second // then they stop
	clusterAsked  = 4 * time.Second // the longest change
	clusterEnd    = clusterFaults + clusterAsked + 6*time.Second
)

// clusterPeer is a process, what it stored, and what it promised.
type clusterPeer struct {
	url     string
	c       *council // nil: it is down
	first   MembershipState
	stored  MembershipState
	keeps   bool
	cut     bool // nothing goes in or out
	waiting map[Token]int64
	ticking time.Duration // the tick that is scheduled

	bound     string // to whom it promised the lock
	boundTill time.Duration
	abstain   time.Duration
	holdsTill time.Duration // the lock, under holdsAt
	holdsAt   int64
}

type clusterEvent struct {
	at  time.Duration
	seq int
	do  func()
}

type clusterEvents []clusterEvent

func (q clusterEvents) Len() int { return len(q) }
func (q clusterEvents) Less(i, j int) bool {
	return q[i].at < q[j].at || q[i].at == q[j].at && q[i].seq < q[j].seq
}
func (q clusterEvents) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *clusterEvents) Push(e any)   { *q = append(*q, e.(clusterEvent)) }
func (q *clusterEvents) Pop() any {
	last := (*q)[len(*q)-1]
	*q = (*q)[:len(*q)-1]
	return last
}

// cluster is one simulated run, judged by somebody who sees everything.
type cluster struct {
	rnd    *rand.Rand
	now    time.Duration
	queue  clusterEvents
	seq    int
	peers  []*clusterPeer
	calm   bool
	loss   float64
	broken string // which rule is broken
	token  Token
	final  Token // the change asked for when all faults are over
	ended  map[Token]Changed
	asked  map[Token]Change
	failed map[string]string // rule → how it was broken

	configs  map[int64]Config                    // in force, anywhere, ever
	accepted map[int64]map[int64]map[string]bool // number → ballot → acceptors
	values   map[int64]map[int64]Config          // number → ballot → value
	chosen   map[int64]Config                    // by a majority of the number before
	promised map[string][2]int64                 // peer → number, highest ballot promised
	adopted  map[int64]map[string]time.Duration  // number → who stored it, when
}

func (s *cluster) fail(rule, format string, args ...any) {
	if s.failed[rule] == "" {
		s.failed[rule] = fmt.Sprintf("at %v: ", s.now) + fmt.Sprintf(format, args...)
	}
}

func (s *cluster) after(d time.Duration, do func()) {
	s.seq++
	heap.Push(&s.queue, clusterEvent{s.now + d, s.seq, do})
}

func (s *cluster) random(upTo time.Duration) time.Duration {
	return time.Duration(s.rnd.Int64N(int64(upTo)))
}

// runCluster runs one seed and returns what was broken.
func runCluster(seed uint64, broken string) *cluster {
	s := &cluster{
		rnd: rand.New(rand.NewPCG(seed, 6)), broken: broken,
		ended: map[Token]Changed{}, asked: map[Token]Change{}, failed: map[string]string{},
		configs: map[int64]Config{}, accepted: map[int64]map[int64]map[string]bool{}, values: map[int64]map[int64]Config{},
		chosen: map[int64]Config{}, promised: map[string][2]int64{}, adopted: map[int64]map[string]time.Duration{},
	}
	n := 3 + s.rnd.IntN(5)
	members := n - s.rnd.IntN(3)
	var list []Member
	for i := range members {
		list = append(list, memberNamed(string(rune('a'+i))))
	}
	first := NewConfig(list)
	s.configs[1] = first
	s.loss = s.rnd.Float64() * 0.3
	forgetful := 0
	for i := range n {
		p := &clusterPeer{url: memberNamed(string(rune('a' + i))).URL, keeps: true, first: MembershipState{Config: first}}
		if i >= members {
			p.first.Config.Number = 0
		}
		if s.rnd.IntN(5) == 0 && forgetful < (members-1)/2 {
			p.keeps = false
			forgetful++
		}
		s.peers = append(s.peers, p)
		s.start(p)
		s.after(s.random(clusterHello), func() { s.hello(p) })
		s.after(s.random(time.Second), func() { s.lock(p) })
	}
	for range 4 + s.rnd.IntN(8) {
		s.after(s.random(clusterFaults), s.disturb)
	}
	for range 3 + s.rnd.IntN(6) {
		s.after(s.random(clusterFaults), s.change)
	}
	s.after(clusterFaults, s.repair)
	s.after(clusterFaults+clusterAsked, s.last)
	s.after(clusterFaults+clusterAsked+2*time.Second, s.last)
	for len(s.queue) > 0 && s.now < clusterEnd && len(s.failed) == 0 {
		e := heap.Pop(&s.queue).(clusterEvent)
		s.now = e.at
		e.do()
	}
	s.judgeEnd()
	return s
}

func (s *cluster) start(p *clusterPeer) {
	state := p.first
	if p.keeps && p.stored.Config.Number > 0 {
		state = p.stored
	}
	settle := clusterSettle
	if s.broken == "no settling" {
		settle = 0
	}
	p.c = newCouncil(p.url, state, p.keeps, settle, noTerms, s.rnd.Float64)
	p.waiting, p.ticking = map[Token]int64{}, 0
	p.bound, p.holdsTill, p.abstain = "", 0, s.now+clusterSettle
	s.did(p, p.c.tick(s.clock()))
}

func (s *cluster) clock() Now { return Now{Boot: s.now} }

// crash ends a process; whoever waited for it waits no more.
func (s *cluster) crash(p *clusterPeer) {
	p.c, p.holdsTill = nil, 0
	for token := range p.waiting {
		delete(s.asked, token)
	}
}

func (s *cluster) disturb() {
	p := s.peers[s.rnd.IntN(len(s.peers))]
	again := s.random(2 * time.Second)
	switch {
	case p.c == nil || p.cut:
	case s.rnd.IntN(2) == 0:
		s.crash(p)
		s.after(again, func() {
			if p.c == nil {
				s.start(p)
			}
		})
	default:
		p.cut = true
		s.after(again, func() { p.cut = false })
	}
}

// change asks one peer, or two at once, for something.
func (s *cluster) change() {
	for range 1 + s.rnd.IntN(2) {
		if p := s.peers[s.rnd.IntN(len(s.peers))]; p.c != nil {
			s.propose(p, time.Second+s.random(clusterAsked-time.Second))
		}
	}
}

func (s *cluster) propose(p *clusterPeer, wait time.Duration) Token {
	s.token++
	in := Change{Token: s.token, Until: s.now + wait}
	other := s.peers[s.rnd.IntN(len(s.peers))].url
	if p.c.config().Has(other) {
		in.Remove = other
	} else {
		in.Add = new(memberNamed(councilName(other)))
	}
	s.asked[in.Token] = in
	p.waiting[in.Token] = p.c.config().Number
	s.did(p, p.c.propose(s.clock(), in))
	return in.Token
}

// repair ends all faults.
func (s *cluster) repair() {
	s.calm, s.loss = true, 0
	for _, p := range s.peers {
		p.cut = false
		if p.c == nil {
			s.start(p)
		}
	}
}

// last asks for one more change when all is well, twice: the first may find what
// was accepted long ago. If those who store are a majority, the second succeeds.
func (s *cluster) last() {
	s.final = 0
	for _, p := range s.peers {
		config, keep := p.c.config(), 0
		for _, q := range s.peers {
			if q.keeps && config.Has(q.url) {
				keep++
			}
		}
		if p.keeps && config.Has(p.url) && keep >= config.Majority() && len(config.Members) > 1 {
			s.final = s.propose(p, 3*time.Second)
			return
		}
	}
}

func (s *cluster) hello(p *clusterPeer) {
	if p.c != nil {
		to := map[string]bool{}
		for _, m := range p.c.config().Members {
			to[m.URL] = true
		}
		for url := range p.c.telling {
			to[url] = true
		}
		number, keeps := p.c.config().Number, p.keeps
		for _, q := range s.peers {
			if q != p && to[q.url] {
				s.carry(p, q, func() []Effect { return q.c.hello(s.clock(), p.url, number, keeps) })
			}
		}
	}
	s.after(clusterHello, func() { s.hello(p) })
}

// carry brings something from p to q: or not, or twice, and late.
func (s *cluster) carry(p, q *clusterPeer, give func() []Effect) {
	times := 1
	if !s.calm && s.rnd.IntN(10) == 0 {
		times = 2
	}
	for range times {
		late := time.Millisecond + s.random(20*time.Millisecond)
		if !s.calm && s.rnd.IntN(20) == 0 {
			late += s.random(time.Second)
		}
		if p.cut || s.rnd.Float64() < s.loss {
			continue
		}
		s.after(late, func() {
			if q.c != nil && !q.cut {
				s.did(q, give())
			}
		})
	}
}

// did carries out a peer's effects, in order; a crash may come between two.
func (s *cluster) did(p *clusterPeer, effects []Effect) {
	for _, e := range effects {
		if !s.calm && s.rnd.IntN(400) == 0 {
			s.crash(p)
			s.after(s.random(time.Second), func() {
				if p.c == nil {
					s.start(p)
				}
			})
			return
		}
		switch e := e.(type) {
		case SaveMembership:
			s.saved(p, e.State)
			if p.stored = e.State; s.broken == "acceptance not stored" {
				p.stored.Ballot, p.stored.Accepted = 0, Config{}
			}
		case Changed:
			s.changed(p, e)
		case Send:
			for _, q := range s.peers {
				if q.url == e.To {
					m := e.Message.(Membership)
					s.carry(p, q, func() []Effect { return s.heard(q, p.url, m) })
				}
			}
		}
	}
	s.see(p)
	at, wanted := p.c.next()
	if wanted && (p.ticking == 0 || at < p.ticking) {
		p.ticking = max(at, s.now)
		c, due := p.c, p.ticking
		s.after(due-s.now, func() {
			if p.c == c && p.ticking == due {
				p.ticking = 0
				s.did(p, c.tick(s.clock()))
			}
		})
	}
}

// heard gives a message to a peer, with one rule broken.
func (s *cluster) heard(p *clusterPeer, from string, m Membership) []Effect {
	switch {
	case s.broken == "promise not checked":
		p.c.state.Promised = 0
	case s.broken == "accepted value ignored" && m.Step == stepPromise:
		m.Accepted, m.Config.Members = 0, nil
	}
	effects := p.c.heard(s.clock(), from, m)
	if r := p.c.run; s.broken == "majority of the new" && r != nil && r.value.Number > 0 && len(r.yes) >= r.value.Majority() {
		p.c.adopt(s.now, r.value, 0)
		p.c.spread(s.now)
		effects = append(effects, p.c.take()...)
	}
	return effects
}

// see judges the configuration that a peer has in force.
func (s *cluster) see(p *clusterPeer) {
	config := p.c.config()
	n := config.Number
	if n == 0 {
		return
	}
	if known, ok := s.configs[n]; !ok {
		s.configs[n] = config
	} else if !slices.Equal(known.Members, config.Members) {
		s.fail("one configuration of a number", "%s and %s", councilConfig(known), councilConfig(config))
	}
	if chosen := s.chosen[n]; n > 1 && !slices.Equal(chosen.Members, config.Members) {
		s.fail("agreed by the old majority", "%s has %s, a majority accepted %s", councilName(p.url), councilConfig(config), councilConfig(chosen))
	}
	for _, other := range []int64{n - 1, n + 1} {
		if known, ok := s.configs[other]; ok && len(changes(known, config)) != 1 {
			s.fail("one member's difference", "%s and %s", councilConfig(known), councilConfig(config))
		}
	}
}

// saved judges what a peer stores.
func (s *cluster) saved(p *clusterPeer, state MembershipState) {
	n, was := state.Config.Number+1, s.promised[p.url]
	// A broken rule must show in what comes of it.
	if s.broken == "" && (n < was[0] || n == was[0] && state.Promised < was[1]) {
		s.fail("no acceptor forgets", "%s promised %d for %d, now %d for %d", councilName(p.url), was[1], was[0], state.Promised, n)
	}
	s.promised[p.url] = [2]int64{n, state.Promised}
	if s.adopted[n-1] == nil {
		s.adopted[n-1] = map[string]time.Duration{}
	}
	if _, known := s.adopted[n-1][p.url]; !known {
		s.adopted[n-1][p.url] = s.now
	}
	if state.Ballot == 0 {
		return
	}
	if s.accepted[n] == nil {
		s.accepted[n], s.values[n] = map[int64]map[string]bool{}, map[int64]Config{}
	}
	if s.accepted[n][state.Ballot] == nil {
		s.accepted[n][state.Ballot], s.values[n][state.Ballot] = map[string]bool{}, state.Accepted
	}
	if v := s.values[n][state.Ballot]; !slices.Equal(v.Members, state.Accepted.Members) {
		s.fail("one value of a ballot", "ballot %d: %s and %s", state.Ballot, councilConfig(v), councilConfig(state.Accepted))
	}
	s.accepted[n][state.Ballot][p.url] = true
	if len(s.accepted[n][state.Ballot]) >= state.Config.Majority() {
		s.choose(n, state)
	}
}

// choose notes that a majority accepted: from now on it is agreed, whoever knows.
func (s *cluster) choose(n int64, state MembershipState) {
	if chosen, ok := s.chosen[n]; ok {
		if !slices.Equal(chosen.Members, state.Accepted.Members) {
			s.fail("one configuration of a number", "a majority accepted %s, and one %s", councilConfig(chosen), councilConfig(state.Accepted))
		}
		return
	}
	s.chosen[n] = state.Accepted
	settled := 0
	for _, m := range state.Config.Members {
		if at, ok := s.adopted[n-1][m.URL]; ok && s.now >= at+clusterSettle {
			settled++
		}
	}
	if s.broken == "" && n > 2 && settled < state.Config.Majority() {
		s.fail("settled before the next", "%s, %d have had the one before for %v", councilConfig(state.Accepted), settled, clusterSettle)
	}
}

func (s *cluster) changed(p *clusterPeer, e Changed) {
	in, ok := s.asked[e.Token]
	if _, twice := s.ended[e.Token]; !ok || twice {
		s.fail("one end of a change", "change %d", e.Token)
	}
	s.ended[e.Token] = e
	delete(p.waiting, e.Token)
	if s.now > in.Until {
		s.fail("every change ends", "%v late", s.now-in.Until)
	}
	if r := (&proposal{change: in}); e.Err == "" && !r.satisfied(e.Config) {
		s.fail("success is true", "change %d, %s", e.Token, councilConfig(e.Config))
	}
	if e.Err == "" && !s.calm && s.rnd.IntN(2) == 0 {
		s.after(0, func() {
			if p.c != nil {
				s.propose(p, time.Second)
			}
		})
	}
}

// lock lets a peer ask for the lock, or renew it, by the rules that the head of
// members.go asks of the machine. Questions and answers take no time here.
func (s *cluster) lock(p *clusterPeer) {
	s.after(20*time.Millisecond+s.random(150*time.Millisecond), func() { s.lock(p) })
	if p.c == nil || !s.awake(p) || p.c.config().Number == 0 || !p.c.config().Has(p.url) {
		return
	}
	config, votes := p.c.config(), 0
	for _, v := range s.peers {
		reached := v == p || !p.cut && !v.cut && s.rnd.Float64() >= s.loss
		if v.c == nil || !reached || !config.Has(v.url) || !s.awake(v) {
			continue
		}
		if v.c.config().Number != config.Number && s.broken != "any number heard out" {
			continue
		}
		if v.bound == "" || v.bound == p.url || s.now >= v.boundTill {
			v.bound, v.boundTill = p.url, s.now+clusterSettle
			votes++
		}
	}
	if votes < config.Majority() {
		for _, v := range s.peers {
			if v.bound == p.url && !s.holds(p) {
				v.bound = "" // the promise is released
			}
		}
		return
	}
	p.holdsTill, p.holdsAt = s.now+clusterSettle, config.Number
	for _, q := range s.peers {
		if q != p && s.holds(q) {
			s.fail("one lock", "%s under %s, %s under %s", councilName(p.url), councilConfig(config), councilName(q.url), councilConfig(q.c.config()))
		}
	}
}

func (s *cluster) holds(p *clusterPeer) bool {
	return p.c != nil && s.now < p.holdsTill && p.holdsAt == p.c.config().Number
}

// awake reports whether a peer abstains no more.
func (s *cluster) awake(p *clusterPeer) bool {
	if s.now < p.abstain {
		if !p.c.settled() && s.broken != "woken before it settled" {
			return false
		}
		for _, q := range s.peers {
			if q == p || !p.c.config().Has(q.url) {
				continue
			}
			if p.cut || q.cut || q.c == nil || s.holds(q) || q.c.config().Number != p.c.config().Number {
				return false
			}
		}
		p.abstain = s.now
	}
	return true
}

func (s *cluster) judgeEnd() {
	if len(s.failed) > 0 {
		return
	}
	for token := range s.asked {
		if _, ok := s.ended[token]; !ok {
			s.fail("every change ends", "change %d does not", token)
		}
	}
	newest := s.configs[slices.Max(slices.Collect(maps.Keys(s.configs)))]
	for _, p := range s.peers {
		if n := p.c.config().Number; newest.Has(p.url) && n != newest.Number {
			s.fail("all members agree", "%s has %d of %s", councilName(p.url), n, councilConfig(newest))
		}
	}
	if end, ok := s.ended[s.final]; ok && end.Err != "" {
		s.fail("changes succeed without faults", "%s", end.Err)
	}
}

// TestMembersSimulated: whatever happens to messages and peers, a number has one
// configuration, agreed by a majority of the one before, and two configurations
// never act at once; and changes end, and succeed when nothing stands against them.
func TestMembersSimulated(t *testing.T) {
	numbers, last, done := 0, 0, map[bool]int{}
	for seed := range uint64(*membersSeeds) {
		s := runCluster(seed, "")
		for rule, how := range s.failed {
			t.Fatalf("seed %d: %s: %s", seed, rule, how)
		}
		numbers += len(s.chosen)
		if s.final > 0 {
			last++
		}
		for _, e := range s.ended {
			done[e.Err == ""]++
		}
	}
	t.Logf("%d seeds: %d configurations agreed, %d changes made, %d not; %d last ones", *membersSeeds, numbers, done[true], done[false], last)
	if numbers < *membersSeeds || last < *membersSeeds/2 {
		t.Error("hardly anything happened")
	}
}

// TestMembersBroken proves that the simulation sees what it is there to see.
func TestMembersBroken(t *testing.T) {
	for _, test := range []struct {
		broken, rule string
		seed         uint64 // near the first that shows it
	}{
		{"acceptance not stored", "one configuration of a number", 0},
		{"promise not checked", "one configuration of a number", 0},
		{"accepted value ignored", "one configuration of a number", 0},
		{"majority of the new", "agreed by the old majority", 0},
		{"any number heard out", "one lock", 380},
		{"woken before it settled", "one lock", 4_660},
		{"no settling", "one lock", 9_410},
	} {
		t.Run(test.broken, func(t *testing.T) {
			for seed := test.seed; seed < test.seed+20_000; seed++ {
				if how := runCluster(seed, test.broken).failed[test.rule]; how != "" {
					t.Logf("seed %d: %s: %s", seed, test.rule, how)
					return
				}
			}
			t.Errorf("nobody saw that it was broken: %s", test.broken)
		})
	}
}
