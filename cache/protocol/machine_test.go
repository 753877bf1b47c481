package protocol

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// judge is who is told of a fault: a test, or who expects one.
type judge interface {
	Helper()
	Fatalf(format string, args ...any)
}

// expecting is a judge that takes down the fault and ends the attempt.
type expecting struct{ fault string }

func (*expecting) Helper() {}

func (x *expecting) Fatalf(format string, args ...any) {
	x.fault, _, _ = strings.Cut(fmt.Sprintf(format, args...), "\n")
	panic(x)
}

// caught runs what must not go unnoticed, and returns what was said.
func caught(attempt func(judge)) (fault string) {
	x := &expecting{}
	defer func() {
		if r := recover(); r != nil && r != x {
			panic(r)
		}
		fault = x.fault
	}()
	attempt(x)
	return ""
}

// hopNet is machines with a network in which a message takes one hop: what was
// sent in one round arrives in the next, all of it or in parts, in any order.
type hopNet struct {
	t        judge
	lie      func(Message) Message // what becomes of a message on the way; nil: nothing
	names    []string
	machines map[string]*Machine
	now      Now
	flying   []flying
	fetches  []string // "A@12": who fetched, in which term
	running  map[string]int64
	replies  map[string]string
	asked    int   // questions, one for each candidacy
	log      []any // inputs and effects
}

type flying struct {
	from, to string
	m        Message
}

func newHopNet(t judge, names ...string) *hopNet {
	c := &hopNet{t: t, names: names, machines: map[string]*Machine{}, now: Now{Boot: time.Minute, Wall: epoch}, running: map[string]int64{}, replies: map[string]string{}}
	members := membersNamed(strings.Join(names, ","))
	for i, name := range names {
		c.machines[name] = New(c.now, Setup{
			Self: memberNamed(name).URL, Members: members, Incarnation: uint64(i + 1), MaxWaiting: 10,
			Timings: Timings{}.WithDefaults(), Table: newMemoryTable(), Rand: func() float64 { return 0.5 },
		})
	}
	for _, from := range names {
		for _, to := range names {
			if from != to {
				c.step(from, Link{Peer: memberNamed(to).URL, State: Up})
			}
		}
	}
	c.now.Boot += Timings{}.WithDefaults().AnnounceTimeout
	for _, name := range names {
		c.step(name, Tick{})
		// As if the ceiling had been raised in this life.
		c.machines[name].ceiling = epoch + time.Hour.Milliseconds()
	}
	c.drain(func([]flying) {})
	c.fetches, c.log, c.asked = nil, nil, 0
	return c
}

// step gives one machine an input and puts what it says on the way.
func (c *hopNet) step(name string, in Input) {
	c.log = append(c.log, Received{From: name}, in)
	m := c.machines[name]
	for _, e := range slices.Clone(m.Step(c.now, in)) {
		c.log = append(c.log, e)
		switch e := e.(type) {
		case Send:
			if _, question := e.Message.(Question); question {
				c.asked++
			}
			for _, to := range c.names {
				if to != name && (e.To == "" || e.To == memberNamed(to).URL) {
					msg := e.Message
					if c.lie != nil {
						msg = c.lie(msg)
					}
					c.flying = append(c.flying, flying{name, to, msg})
				}
			}
		case StartFetch:
			c.fetches = append(c.fetches, fmt.Sprintf("%s%s", name, stamp(e.Term)))
			c.running[name] = e.Term
			if len(c.running) > 1 {
				c.t.Fatalf("two fetch at once: %v\n%s", c.running, c.story())
			}
		case Abort:
			delete(c.running, name)
		case Reply:
			c.replies[name] += string(e.Entry.Value)
		}
	}
}

// story is the log as text.
func (c *hopNet) story() string {
	var out strings.Builder
	for _, line := range c.log {
		if e, ok := line.(Effect); ok {
			fmt.Fprintln(&out, "  ", showEffect(e, func(d time.Duration) string { return d.String() }))
		} else {
			fmt.Fprintf(&out, "%T %+v\n", line, line)
		}
	}
	return out.String()
}

// round delivers what is under way, in the order that shuffle makes of it.
func (c *hopNet) round(shuffle func([]flying)) {
	now := c.flying
	c.flying = nil
	shuffle(now)
	for _, f := range now {
		c.step(f.to, Received{memberNamed(f.from).URL, f.m})
	}
}

func (c *hopNet) drain(shuffle func([]flying)) (rounds int) {
	for ; len(c.flying) > 0; rounds++ {
		if rounds == 100 {
			c.t.Fatalf("no end of messages\n%s", c.story())
		}
		c.round(shuffle)
	}
	return rounds
}

// settle lets everyone ask for the key at once, the wall clocks apart by these
// milliseconds, and returns after how many rounds a fetch began.
func (c *hopNet) settle(key string, apart []int64, shuffle func([]flying)) (rounds int) {
	for i, name := range c.names {
		c.now.Wall = epoch + apart[i]
		c.step(name, Get{Key: key, Until: time.Hour, Token: 1})
	}
	c.now.Wall = epoch + slices.Max(apart)
	for rounds = 0; len(c.fetches) == 0 && len(c.flying) > 0; rounds++ {
		c.round(shuffle)
	}
	c.drain(shuffle)
	if len(c.fetches) != 1 {
		c.t.Fatalf("fetches %v without any wait\n%s", c.fetches, c.story())
	}
	for name, term := range c.running {
		c.step(name, Fetched{Key: key, Term: term, Value: []byte("bar")})
		delete(c.running, name)
	}
	c.drain(shuffle)
	for _, name := range c.names {
		if c.replies[name] != "bar" {
			c.t.Fatalf("%s replied %q\n%s", name, c.replies[name], c.story())
		}
		if look := c.machines[name].KeyStatus(key); look.State != Idle {
			c.t.Fatalf("%s is %s afterwards", name, look.State)
		}
	}
	return rounds
}

// permutations calls each with every order of n things.
func permutations(n int, each func([]int)) {
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	var place func(int)
	place = func(i int) {
		if i == n {
			each(order)
			return
		}
		for j := i; j < n; j++ {
			order[i], order[j] = order[j], order[i]
			place(i + 1)
			order[i], order[j] = order[j], order[i]
		}
	}
	place(0)
}

// TestEqualCandidatesOfThree: asked at once, and whatever the order in which the six
// questions arrive: one fetch, in one round trip, and nobody stands twice.
func TestEqualCandidatesOfThree(t *testing.T) {
	number := 0
	for _, test := range []struct {
		key   string
		apart []int64
	}{
		{"foo", []int64{0, 0, 0}}, {"q1", []int64{0, 0, 0}}, {"bar", []int64{0, 0, 0}},
		{"foo", []int64{0, 1, 2}}, {"foo", []int64{2, 1, 0}}, {"foo", []int64{1, 0, 1}},
	} {
		permutations(6, func(order []int) {
			c := newHopNet(t, "A", "B", "C")
			number++
			first := true
			rounds := c.settle(test.key, test.apart, func(f []flying) {
				switch {
				case first:
					sent := slices.Clone(f)
					for i, j := range order {
						f[i] = sent[j]
					}
					first = false
				case number%3 == 1: // as no connection ever does it
					slices.Reverse(f)
				case number%3 == 2:
					slices.SortStableFunc(f, func(a, b flying) int { return strings.Compare(a.to+a.from, b.to+b.from) })
				}
			})
			if c.asked != 3 || rounds != 2 {
				t.Fatalf("a fetch after %d rounds and %d candidacies, want one round trip and one each\n%s", rounds, c.asked, c.story())
			}
		})
	}
}

// TestEqualCandidatesOfFive does the same with five, in random orders: a vote may
// have to be released first, which takes one hop more.
func TestEqualCandidatesOfFive(t *testing.T) {
	for seed := range uint64(1000) {
		r := rand.New(rand.NewPCG(seed, 5))
		c := newHopNet(t, "A", "B", "C", "D", "E")
		apart := make([]int64, 5)
		for i := range apart {
			apart[i] = r.Int64N(3) * (int64(seed) % 2)
		}
		rounds := c.settle("foo", apart, func(f []flying) {
			r.Shuffle(len(f), func(i, j int) { f[i], f[j] = f[j], f[i] })
		})
		if rounds > 3 {
			t.Fatalf("seed %d: a fetch after %d rounds\n%s", seed, rounds, c.story())
		}
	}
}

// TestBrokenElections: what the tests of elections look for, they find.
func TestBrokenElections(t *testing.T) {
	messages := 0
	for name, twin := range map[string]struct {
		lie  func(Message) Message
		want string
	}{
		"voters say yes to everybody, and a third of the questions is lost": {func(m Message) Message {
			messages++
			if a, ok := m.(Answer); ok {
				a.Yes = true
				return a
			} else if _, ok := m.(Question); ok && messages%3 == 0 {
				return Ping{}
			}
			return m
		}, "two fetch at once"},
		"no answer arrives": {func(m Message) Message {
			if _, ok := m.(Answer); ok {
				return Ping{}
			}
			return m
		}, "fetches [] without any wait"},
		"no value arrives": {func(m Message) Message {
			if _, ok := m.(Update); ok {
				return Ping{}
			}
			return m
		}, "replied \"\""},
	} {
		fault := ""
		for seed := uint64(0); seed < 100 && !strings.Contains(fault, twin.want); seed++ {
			r := rand.New(rand.NewPCG(seed, 6))
			fault = caught(func(j judge) {
				c := newHopNet(j, "A", "B", "C", "D", "E")
				c.lie = twin.lie
				c.settle("foo", []int64{0, 0, 0, 0, 0}, func(f []flying) {
					r.Shuffle(len(f), func(i, j int) { f[i], f[j] = f[j], f[i] })
				})
			})
		}
		if !strings.Contains(fault, twin.want) {
			t.Errorf("%s: %q, want %q", name, fault, twin.want)
		}
	}
}

// TestDocumentNamesScripts: what differences.md says is shown by a script is,
// and every section with a number is of a topic that is there.
func TestDocumentNamesScripts(t *testing.T) {
	text, err := os.ReadFile("differences.md")
	if err != nil {
		t.Fatal(err)
	}
	var headings []string
	files, _ := filepath.Glob("testdata/*.txt")
	topics := regexp.MustCompile(`^-- ((?:[0-9.SLR]+(?:, )?)+) (?:kept|changed|\()`)
	for _, file := range files {
		script, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimSuffix(filepath.Base(file), ".txt")
		for line := range strings.Lines(string(script)) {
			if strings.HasPrefix(line, "--") {
				headings = append(headings, name+" "+line)
			}
			if found := topics.FindStringSubmatch(line); found != nil {
				for topic := range strings.SplitSeq(found[1], ", ") {
					if !strings.Contains(string(text), "\n| "+topic+" |") {
						t.Errorf("%s: %s names %s, of which the document says nothing", file, strings.TrimSpace(line), topic)
					}
				}
			}
		}
	}
	named := 0
	script := ""
	for _, found := range regexp.MustCompile("`([a-z]+)`|“([^”]+)”|\n").FindAllStringSubmatch(string(text), -1) {
		switch {
		case found[0] == "\n":
			script = ""
		case found[1] != "":
			script = found[1]
		case script != "":
			named++
			if !slices.ContainsFunc(headings, func(h string) bool { return strings.HasPrefix(h, script+" ") && strings.Contains(h, found[2]) }) {
				t.Errorf("no section of testdata/%s.txt is about %q", script, found[2])
			}
		}
	}
	if named < 60 {
		t.Errorf("only %d sections are named", named)
	}
}

// TestTimings: the defaults fit together, and every rule refuses what breaks it.
func TestTimings(t *testing.T) {
	if err := (Timings{}).WithDefaults().Validate(); err != nil {
		t.Fatal(err)
	}
	for name, bad := range map[string]func(*Timings){
		"candidate min": func(x *Timings) { x.CandidateMin = 1 },
		"candidate max": func(x *Timings) { x.CandidateMax = x.CandidateMin - 1 },
		"repeat":        func(x *Timings) { x.Repeat = 1 },
		"candidate":     func(x *Timings) { x.OriginalVote = x.CandidateMax - 1 },
		"announce":      func(x *Timings) { x.Announce = x.AnnounceTimeout/2 + 1 },
		"announce min":  func(x *Timings) { x.Announce = 1 },
		"source":        func(x *Timings) { x.AnnounceTimeout, x.Announce = 2*x.CandidateMax-1, x.CandidateMin },
		"keep-alive":    func(x *Timings) { x.KeepAlive = 1 },
		"ping":          func(x *Timings) { x.Ping = 1 },
		"hello":         func(x *Timings) { x.Hello = 1 },
		"fetch":         func(x *Timings) { x.FetchTimeout = 1 },
		"fail min":      func(x *Timings) { x.FailMin = -1 },
		"fail max":      func(x *Timings) { x.FailMax = x.FailMin - 1 },
		"ttl":           func(x *Timings) { x.TTL = time.Second - 1 },
		"max ttl":       func(x *Timings) { x.MaxTTL = x.TTL - 1 },
		"skew":          func(x *Timings) { x.Skew = -1 },
	} {
		x := Timings{}.WithDefaults()
		bad(&x)
		if err := x.Validate(); !errors.Is(err, ErrUnsafeTiming) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestCopiesAreOrdered: of two different copies exactly one is newer, whatever the
// order in which three are compared.
func TestCopiesAreOrdered(t *testing.T) {
	var all []Entry
	for i := range int64(27) {
		all = append(all, Entry{Term: i % 3, Expire: i / 3 % 3, Digest: uint64(i / 9)})
	}
	for i, a := range all {
		for j, b := range all {
			if a.Newer(b) == b.Newer(a) && i != j || a.Newer(a) {
				t.Errorf("%+v and %+v: newer %t and %t", a, b, a.Newer(b), b.Newer(a))
			}
			for _, c := range all {
				if a.Newer(b) && b.Newer(c) && !c.Newer(a) && !a.Newer(c) {
					t.Errorf("%+v > %+v > %+v, and the last is not below the first", a, b, c)
				}
			}
		}
	}
	if (Entry{Term: 1}).Newer(Entry{Term: 1, Used: 7, Made: 5, Value: []byte("x")}) {
		t.Error("something else than term, expiry and digest counts")
	}
}

// TestOutranks: of two candidates one wins, for all who compare; over keys the peers
// share the wins.
func TestOutranks(t *testing.T) {
	peers := []string{"A", "B", "C", "D", "E"}
	first := map[string]int{}
	for i := range 5000 {
		key := fmt.Sprintf("key-%d", i)
		best := peers[0]
		for _, a := range peers {
			for _, b := range peers {
				if a != b && outranks(key, 1, memberNamed(a).URL, 1, memberNamed(b).URL) == outranks(key, 1, memberNamed(b).URL, 1, memberNamed(a).URL) {
					t.Fatalf("%s: %s and %s do not agree", key, a, b)
				}
			}
			if outranks(key, 1, memberNamed(a).URL, 1, memberNamed(best).URL) {
				best = a
			}
		}
		first[best]++
		if !outranks(key, 2, memberNamed("A").URL, 1, memberNamed("B").URL) {
			t.Fatalf("%s: a lower term wins", key)
		}
	}
	for _, peer := range peers {
		if n := first[peer]; n < 850 || n > 1150 {
			t.Errorf("%s is first for %d of 5000 keys", peer, n)
		}
	}
}

// TestRemovalsAreBounded: beyond the bound the oldest are forgotten, and the peers
// that have not confirmed them are owed the removal of everything as old.
func TestRemovalsAreBounded(t *testing.T) {
	c := newHopNet(t, "A", "B", "C")
	delete(c.machines, "C") // it says nothing, and hears nothing
	c.names = c.names[:2]
	a := c.machines["A"]
	a.removals.checkAt = c.now.Boot + time.Hour // nobody is told of these
	for i := range maxRemovals {
		a.removals.add(Removal{OneKey, fmt.Sprint("old-", i), int64(i + 1)})
	}
	for i := range 5 {
		c.step("A", RemoveKeys{Scope: OneKey, Name: fmt.Sprint("key-", i), Until: c.now.Boot + time.Second, Token: Token(i)})
		c.drain(func([]flying) {})
	}
	if n := len(a.removals.known); n != maxRemovals {
		t.Errorf("%d removals are known, want %d", n, maxRemovals)
	}
	want := map[string]int64{memberNamed("B").URL: 5, memberNamed("C").URL: 5}
	if !maps.Equal(a.removals.owed, want) {
		t.Errorf("owed: %v, want %v", a.removals.owed, want)
	}
}

// TestKeysAreForgotten: keys that were asked for, fetched and fell silent
// leave nothing but their copies.
func TestKeysAreForgotten(t *testing.T) {
	c := newHopNet(t, "A", "B", "C")
	for i := range 200 {
		key := fmt.Sprint("key-", i)
		c.fetches, c.replies = nil, map[string]string{}
		c.settle(key, []int64{0, 0, 0}, func([]flying) {})
		c.log = nil
	}
	for _, name := range c.names {
		m := c.machines[name]
		if len(m.keys)+len(m.timers)+len(m.waiters)+m.busy != 0 {
			t.Errorf("%s remembers %d keys, %d timers, %d waiters, %d busy", name, len(m.keys), len(m.timers), len(m.waiters), m.busy)
		}
	}
}
