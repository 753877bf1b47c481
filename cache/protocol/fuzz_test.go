package protocol

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// FuzzMachine tells a machine whatever may come: every input and message, numbers
// from the edges of what the wire carries, peers that it knows and that it does not.
// It must not panic, nor want a tick for the past, nor do more than an input
// deserves; and once it is left alone, everyone is answered and nothing is left.
func FuzzMachine(f *testing.F) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		f.Add(seedBytes(r))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		z := newFuzzed(t, data)
		for len(z.data) > 0 {
			z.one()
		}
		z.leave()
	})
}

func seedBytes(r *rand.Rand) []byte {
	data := make([]byte, 40+r.IntN(400))
	for i := range data {
		data[i] = byte(r.Uint32())
	}
	return data
}

// TestBrokenMachines: what FuzzMachine looks for, it finds, in few of its seeds.
func TestBrokenMachines(t *testing.T) {
	without := func(gone func(Effect) bool) func([]Effect) []Effect {
		return func(all []Effect) []Effect { return slices.DeleteFunc(slices.Clone(all), gone) }
	}
	for name, twin := range map[string]struct {
		lie  func([]Effect) []Effect
		want string
	}{
		"clients are answered twice": {func(all []Effect) []Effect {
			for _, e := range all {
				if r, ok := e.(Refuse); ok {
					return append(slices.Clone(all), Reply{Token: r.Token})
				}
			}
			return all
		}, "is answered, and was not asked or has been answered"},
		"clients are forgotten": {without(func(e Effect) bool { _, refused := e.(Refuse); return refused }), "nobody has answered"},
		"fetches are not ended": {without(func(e Effect) bool { _, abort := e.(Abort); return abort }), "twice at once"},
		"too much is done": {func(all []Effect) []Effect {
			return slices.Repeat(append(slices.Clone(all), Send{Message: Ping{}}), 300)
		}, "effects"},
	} {
		found := ""
		for seed := range uint64(300) {
			fault := caught(func(j judge) {
				z := newFuzzed(j, seedBytes(rand.New(rand.NewPCG(seed, 2))))
				z.lie = twin.lie
				for len(z.data) > 0 {
					z.one()
				}
				z.leave()
			})
			if strings.Contains(fault, twin.want) {
				found = fault
				break
			}
		}
		if found == "" {
			t.Errorf("%s: 300 seeds do not show it", name)
		}
	}
}

// fuzzed is a machine, the bytes that say what happens to it, and what it owes.
type fuzzed struct {
	t       judge
	data    []byte
	m       *Machine
	now     Now
	tokens  Token
	owed    map[Token]string
	fetches map[string]int64
	raise   int64
	log     []any // inputs and effects
	lie     func([]Effect) []Effect
}

func newFuzzed(t judge, data []byte) *fuzzed {
	z := &fuzzed{t: t, data: data, now: Now{time.Minute, epoch}, owed: map[Token]string{}, fetches: map[string]int64{}}
	r := rand.New(rand.NewPCG(3, 4))
	// Few greetings: hours are to pass.
	timings := Timings{Hello: time.Minute, Ping: time.Minute}.WithDefaults()
	s := Setup{
		Self: memberNamed("A").URL, Members: membersNamed("A,B,C"), HasStorage: z.next()%2 == 0, Incarnation: 1,
		Timings: timings, Jitter: 0.2, MaxWaiting: 5, Table: newMemoryTable(), Rand: r.Float64,
		Mixed: z.next()%4 == 0, Passive: z.next()%8 == 0,
	}
	switch z.next() % 4 {
	case 0:
		s.Members = membersNamed("A")
	case 1:
		s.Members = membersNamed("A,B,C,D,E")
	}
	z.m = New(z.now, s)
	return z
}

func (z *fuzzed) next() byte {
	if len(z.data) == 0 {
		return 0
	}
	b := z.data[0]
	z.data = z.data[1:]
	return b
}

func pick[T any](z *fuzzed, of ...T) T { return of[int(z.next())%len(of)] }

func (z *fuzzed) key() string { return pick(z, "foo", "foo", "foo", "bar", "f", "") }

func (z *fuzzed) peer() string { return memberNamed(pick(z, "B", "B", "C", "C", "D", "A")).URL }

// number is a term or a time.
func (z *fuzzed) number() int64 {
	near := z.now.Wall + int64(z.next()) - 128
	return pick(z, near, near, near, near, 0, 1, MaxWireNumber, MaxWireNumber-1, z.now.Wall+dayAhead, z.now.Wall+dayAhead+1, z.now.Boot.Milliseconds(), near+time.Hour.Milliseconds())
}

func (z *fuzzed) entry() Entry {
	value := []byte(pick(z, "", "one", "two"))
	return Entry{Term: z.number(), Expire: z.number(), Made: z.number(), Value: value, Digest: Digest(value)}
}

func (z *fuzzed) removal() Removal {
	return Removal{pick(z, OneKey, PrefixKey, Everything, Owed, Scope(0)), z.key(), z.number()}
}

func (z *fuzzed) message() Message {
	key, n := z.key(), z.number()
	list := membersNamed(pick(z, "", "A,B,C", "A,B", "A,B,C,D", "A", "B,C", "A,C,D,E"))
	switch z.next() % 15 {
	case 0, 1:
		return Question{key, n, int64(z.next() % 4), z.number()}
	case 2, 3:
		return Answer{key, n, z.number(), z.next()%3 > 0}
	case 4:
		return Announce{key, n, z.number(), z.number(), int64(z.next() % 4)}
	case 5:
		return Update{key, z.entry()}
	case 6:
		return Ack{key, n, z.number()}
	case 7:
		return Release{key, n, z.next()%2 == 0}
	case 8:
		return Failed{key, n, z.number(), "no", z.number()}
	case 9:
		return Remove{z.removal()}
	case 10:
		return Removed{z.removal()}
	case 11:
		return Hello{uint64(z.next() % 3), uint64(z.next() % 3), int64(z.next()), pick(z, list.Digest(), 7), z.number(), z.next()%2 == 0, z.next()%2 == 0, z.next()%2 == 0, z.next()%2 == 0}
	case 12:
		return MembersList{list}
	case 13:
		return pick[Message](z, Ping{}, Pong{}, EntryReq{key}, FetchReq{key})
	default:
		return Hello{2, 1, 1, list.Digest(), z.now.Wall, false, true, false, false}
	}
}

// one is one thing that happens.
func (z *fuzzed) one() {
	z.now.Boot += time.Duration(z.next()%8) * 40 * time.Millisecond
	z.now.Wall += int64(z.next()%8) * 40
	switch op := z.next() % 16; op {
	case 0, 1, 2:
		z.tokens++
		g := Get{Key: z.key(), MinExpire: z.number(), Refresh: z.next()%4 == 0, Until: z.now.Boot + time.Duration(z.next())*20*time.Millisecond, Token: z.tokens}
		z.owed[g.Token] = "get"
		z.step(g)
	case 3:
		token := Token(z.next()) % (z.tokens + 2)
		z.step(Cancel{token}) // what is due comes first, and may answer it
		if z.owed[token] == "get" {
			delete(z.owed, token)
		}
	case 4:
		z.tokens++
		z.owed[z.tokens] = "remove"
		z.step(RemoveKeys{pick(z, OneKey, PrefixKey), z.key(), z.now.Boot + time.Second, z.tokens})
	case 5:
		z.step(Link{Peer: z.peer(), State: LinkState(z.next() % 3)})
	case 6:
		key := z.key()
		f := Fetched{Key: key, Term: z.fetches[key], Value: []byte("bar"), TTL: time.Duration(z.next()) * time.Second, Wait: time.Duration(z.next()) * time.Second}
		if z.next()%2 == 0 {
			f.Err, f.Stopped, f.TrustEnded = "no", z.next()%4 == 0, z.next()%4 == 0
		}
		z.step(f)
	case 7:
		z.answerRaise(z.next()%4 == 0)
	case 8:
		z.tokens++
		z.owed[z.tokens] = "change"
		z.step(ChangeMembers{Members: membersNamed(pick(z, "A,B,C", "A,B", "A,B,C,D", "A", "B,C", "A,C,D,E")), Token: z.tokens})
	case 9:
		z.now.Boot += 3 * time.Second
		z.now.Wall += z.number()%100000 - 50000
		z.tick()
	case 10:
		z.tick()
	case 11:
		if z.next()%32 == 0 {
			z.step(Stop{})
		}
		z.tick()
	default:
		z.step(Received{z.peer(), z.message()})
	}
}

func (z *fuzzed) answerRaise(fail bool) {
	r := Raised{To: z.raise}
	if fail {
		r.Err = "disk full"
	}
	z.raise = 0
	if r.To > 0 {
		z.step(r)
	}
}

func (z *fuzzed) tick() {
	z.step(Tick{})
	if next := z.m.Next(); next <= z.now.Boot {
		z.fail("wants a tick at %v, and it is %v", next, z.now.Boot)
	}
}

func (z *fuzzed) fail(format string, args ...any) {
	z.t.Helper()
	var story strings.Builder
	for _, line := range z.log[max(0, len(z.log)-3000):] {
		fmt.Fprintf(&story, "%T %+v\n", line, line)
	}
	z.t.Fatalf(format+"\n%s", append(args, story.String())...)
}

func (z *fuzzed) step(in Input) {
	z.log = append(z.log, z.now.Boot, in)
	if f, ok := in.(Fetched); ok && z.fetches[f.Key] == f.Term {
		delete(z.fetches, f.Key) // the call has ended, whatever is made of it
	}
	effects := z.m.Step(z.now, in)
	if z.lie != nil {
		effects = z.lie(effects)
	}
	if bound := 60 + 8*len(z.m.keys) + 8*len(z.m.removals.known) + int(z.tokens); len(effects) > bound {
		z.fail("%d effects", len(effects))
	}
	for _, e := range effects {
		z.log = append(z.log, e)
		switch e := e.(type) {
		case Reply:
			z.settle(e.Token, "get")
		case Refuse:
			z.settle(e.Token, "get")
		case KeysRemoved:
			z.settle(e.Token, "remove")
		case MembersChanged:
			z.settle(e.Token, "change")
		case KeepAlive:
			if z.owed[e.Token] != "get" {
				z.fail("keep-alive for %d, who does not wait", e.Token)
			}
		case StartFetch:
			if _, twice := z.fetches[e.Key]; twice {
				z.fail("fetches %q twice at once", e.Key)
			}
			z.fetches[e.Key] = e.Term
		case Abort:
			delete(z.fetches, e.Key)
		case Raise:
			z.raise = e.To
		case Send:
			if e.To == z.m.setup.Self {
				z.fail("sends to itself")
			}
		}
	}
}

func (z *fuzzed) settle(token Token, what string) {
	if z.owed[token] != what {
		z.fail("%s %d is answered, and was not asked or has been answered", what, token)
	}
	delete(z.owed, token)
}

// leave lets hours pass. What was to be stored is, and what is fetched fails.
func (z *fuzzed) leave() {
	end := z.now.Boot + 3*time.Hour
	for ticks := 0; z.m.Next() <= end && ticks < 20000; ticks++ {
		at := max(z.m.Next(), z.now.Boot)
		z.now.Wall += (at - z.now.Boot).Milliseconds()
		z.now.Boot = at
		z.tick()
		for z.raise > 0 {
			z.answerRaise(false)
		}
		for key, term := range z.fetches {
			z.step(Fetched{Key: key, Term: term, Err: "no"})
		}
	}
	if len(z.owed) > 0 {
		z.fail("three hours later nobody has answered %v", z.owed)
	}
	if len(z.m.keys) > 0 || len(z.m.timers) > 0 || len(z.m.waiters) > 0 || z.m.busy != 0 {
		for name := range z.m.keys {
			z.log = append(z.log, name, z.m.KeyStatus(name))
		}
		z.fail("three hours later there are %d keys, %d timers, %d waiters and %d busy", len(z.m.keys), len(z.m.timers), len(z.m.waiters), z.m.busy)
	}
}
