package protocol

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/internal/testkit/script"
)

// epoch is the wall clock at the start of every script. Terms and times near it
// are written as the milliseconds since then: "@250".
const epoch = int64(1479145000000)

// TestScripts replays testdata/*.txt through one machine, A. A line that starts
// with "> " tells it what happened; what it then wants done follows, one effect on
// a line. "-- title | settings" begins a new machine: unless the settings say
// otherwise, a member of A,B,C that is connected to the others, has been up long
// enough to vote, and has terms for a while. Every random number is one half.
//
//	> get 1 foo [after=N|now] [refresh] [until=DURATION]  a client asks
//	> cancel 1                                    it asks no more
//	> remove 1 key NAME | prefix NAME | all       a client removes
//	> B: question foo @0 …                        a message from B: see messages
//	> link B up | down | dead
//	> unheard B [WHY]
//	> fetched foo TERM VALUE [ttl=DURATION]       the origin has answered
//	> fetched foo TERM failed TEXT [wait=DURATION]
//	> fetched foo TERM stopped | trust-ended
//	> stop                                        the peer stops
//	> raised [failed TEXT]                        what was asked for is stored, or not
//	> change 1 A,B,C,D                          the list of members is changed
//	> pass DURATION                               ticks at every time that is wanted
//	> skip DURATION                               the same, not shown
//	> pause DURATION                              nothing is told of the time
//	> wall DURATION                               the wall clock is stepped
//	> restart [lost] [incarnation=N]              with what was stored, or without
//	> look KEY, copy KEY, status, counters        show what is there; "forget KEY" evicts
func TestScripts(t *testing.T) {
	script.Transcripts(t, "testdata/*.txt", func(t *testing.T, header string) script.Play {
		s := newScripted(t, header)
		return func(in script.Input) (_, after []string) {
			s.out, s.where = nil, in.Where
			s.line(in.Words)
			return nil, s.out
		}
	})
}

// scripted is a machine with its clocks and its storage.
type scripted struct {
	t         *testing.T
	m         *Machine
	now       Now
	setup     Setup
	stored    map[string]Entry
	table     *memoryTable
	out       []string
	where     string
	prefix    string
	hellos    bool
	quiet     bool
	asked     int64 // by the last Raise
	originals map[string]bool
}

// memoryTable is a table without bounds.
type memoryTable struct {
	entries map[string]Entry
	forgot  int64
}

func newMemoryTable() *memoryTable { return &memoryTable{entries: map[string]Entry{}} }

func (t *memoryTable) Get(key string) Entry { return t.entries[key] }

func (t *memoryTable) Put(key string, e Entry) { t.entries[key] = e }

func (t *memoryTable) Forgot() int64 { return t.forgot }

func (t *memoryTable) Match(prefix string, each func(string, Entry) bool) {
	for _, key := range slices.Sorted(maps.Keys(t.entries)) {
		if strings.HasPrefix(key, prefix) && !each(key, t.entries[key]) {
			return
		}
	}
}

// evict is what a table does that is full.
func (t *memoryTable) evict(key string) {
	t.forgot = max(t.forgot, t.entries[key].Term, t.entries[key].Used)
	delete(t.entries, key)
}

func newScripted(t *testing.T, header string) *scripted {
	s := &scripted{t: t, stored: map[string]Entry{}, table: newMemoryTable(), originals: map[string]bool{}, now: Now{Boot: time.Minute, Wall: epoch}}
	s.where = header
	s.setup = Setup{
		Self: memberNamed("A").URL, Members: membersNamed("A,B,C"), HasStorage: true, Incarnation: 1,
		Timings: Timings{}, MaxWaiting: 100, Table: s.table, Rand: func() float64 { return 0.5 },
	}
	settled, ceiling := true, epoch+int64(time.Hour/time.Millisecond)
	_, settings, _ := strings.Cut(header, "|")
	for word := range strings.FieldsSeq(settings) {
		name, value, _ := strings.Cut(word, "=")
		switch name {
		case "members":
			s.setup.Members = membersNamed(value)
		case "stored": // the list of its last life
			s.setup.Stored = MembersState{Members: membersNamed(value), Settled: true}
		case "raw": // at its start, and nobody is connected yet
			settled, ceiling = false, 0
		case "ceiling":
			ceiling = s.number(value)
		case "hellos":
			s.hellos = true
		case "forgets":
			s.setup.HasStorage = false
		case "passive":
			s.setup.Passive = true
		case "mixed":
			s.setup.Mixed = true
		case "originals": // who never says Hello
			s.setup.Mixed = true
			for name := range strings.SplitSeq(value, ",") {
				s.originals[memberNamed(name).URL] = true
			}
		case "waiting":
			s.setup.MaxWaiting = int(s.number(value))
		case "jitter":
			s.setup.Jitter, _ = strconv.ParseFloat(value, 64)
		case "fetch":
			s.setup.Timings.FetchTimeout = s.duration(value)
		case "ttl":
			s.setup.Timings.TTL = s.duration(value)
		default:
			t.Fatalf("setting %q", word)
		}
	}
	s.setup.Timings = s.setup.Timings.WithDefaults()
	if err := s.setup.Timings.Validate(); err != nil {
		t.Fatal(err)
	}
	s.m = New(s.now, s.setup)
	if settled {
		s.quiet = true
		for _, member := range s.setup.Members {
			if member.URL == s.setup.Self {
				continue
			}
			s.step(Link{Peer: member.URL, State: Up})
			if !s.originals[member.URL] {
				s.step(Received{member.URL, s.hello(2)})
			}
		}
		s.pass(s.setup.Timings.AnnounceTimeout)
		s.now.Wall = epoch
		s.quiet = false
	}
	// Set here, it is no ceiling of a life before, which every term has to exceed.
	s.m.ceiling, s.m.raising = ceiling, 0
	s.setup.Ceiling = ceiling
	return s
}

// hello is one that ends the abstention.
func (s *scripted) hello(incarnation uint64) Hello {
	return Hello{Incarnation: incarnation, Echo: s.setup.Incarnation, ListNumber: 1, Members: s.m.listDigest, Wall: s.now.Wall, HasStorage: true}
}

// line does what a line says.
func (s *scripted) line(words []string) {
	if from, ok := strings.CutSuffix(words[0], ":"); ok {
		s.step(Received{memberNamed(from).URL, s.message(memberNamed(from).URL, words[1:])})
		return
	}
	options, words := options(words)
	token := func() Token { return Token(s.number(words[1])) }
	until := s.now.Boot + time.Minute
	if d, ok := options["until"]; ok {
		until = s.now.Boot + s.duration(d)
	}
	switch words[0] {
	case "get":
		g := Get{Key: words[2], Until: until, Token: token(), Refresh: slices.Contains(words[3:], "refresh")}
		if after, ok := options["after"]; ok {
			g.MinExpire = s.number(after)
		}
		s.step(g)
	case "cancel":
		s.step(Cancel{token()})
	case "remove":
		r := RemoveKeys{Scope: PrefixKey, Until: until, Token: token()}
		if words[2] != "all" {
			r.Name = words[3]
		}
		if words[2] == "key" {
			r.Scope = OneKey
		}
		s.step(r)
	case "link":
		s.step(Link{Peer: memberNamed(words[1]).URL, State: map[string]LinkState{"up": Up, "down": Down, "dead": Dead}[words[2]]})
	case "unheard":
		s.step(Unusable{memberNamed(words[1]).URL, strings.Join(words[2:], " ")})
	case "fetched":
		f := Fetched{Key: words[1], Term: s.number(words[2]), TTL: s.duration(options["ttl"]), Wait: s.duration(options["wait"])}
		switch words[3] {
		case "failed":
			f.Err = strings.Join(words[4:], " ")
		case "stopped":
			f.Err, f.Stopped = "the peer stops", true
		case "trust-ended":
			f.Err, f.TrustEnded = "its time has come", true
		default:
			f.Value, f.NoStore = []byte(strings.Trim(words[3], `"`)), slices.Contains(words[4:], "nostore")
		}
		s.step(f)
	case "raised":
		r := Raised{To: s.asked}
		if s.asked = 0; r.To == 0 {
			s.t.Fatalf("%s: nothing was to be raised", s.where)
		}
		if len(words) > 1 {
			r.Err = strings.Join(words[2:], " ")
		} else {
			s.setup.Ceiling = r.To
		}
		s.step(r)
	case "stop":
		s.step(Stop{})
	case "change":
		s.setup.Members = membersNamed(words[2])
		s.step(ChangeMembers{Members: s.setup.Members, Token: token()})
	case "restart":
		s.restart(words[1:], options)
	case "forget":
		s.table.evict(words[1])
	default:
		s.time(words)
	}
}

// time is for lines about the clocks, and those that only look.
func (s *scripted) time(words []string) {
	switch words[0] {
	case "pass":
		s.pass(s.duration(words[1]))
	case "skip":
		s.quiet = true
		s.pass(s.duration(words[1]))
		s.quiet = false
	case "pause":
		s.now.Boot += s.duration(words[1])
		s.now.Wall += s.duration(words[1]).Milliseconds()
	case "wall":
		s.now.Wall += s.duration(words[1]).Milliseconds()
	case "look":
		s.print(showLook(s.m.KeyStatus(words[1]), s.since))
	case "copy":
		s.print(showEntry(s.m.setup.Table.Get(words[1])))
	case "status":
		s.print(fmt.Sprintf("%+v", s.m.Status()))
	case "counters":
		s.print(fmt.Sprintf("%+v", s.m.Counters()))
	default:
		s.t.Fatalf("%s: no such input", s.where)
	}
}

// pass ticks at every time that the machine wants on the way.
func (s *scripted) pass(d time.Duration) {
	start, end := s.now.Boot, s.now.Boot+d
	for ticks := 0; s.m.Next() <= end; ticks++ {
		if ticks == 10000 {
			s.t.Fatalf("%s: no end of ticks", s.where)
		}
		at := max(s.m.Next(), s.now.Boot)
		s.now.Wall += (at - s.now.Boot).Milliseconds()
		s.now.Boot = at
		s.prefix = fmt.Sprintf("%v later: ", at-start)
		s.step(Tick{})
		s.prefix = ""
	}
	s.now.Wall += (end - s.now.Boot).Milliseconds()
	s.now.Boot = end
}

// restart is the end of the process and a new one at once.
func (s *scripted) restart(words []string, options map[string]string) {
	s.setup.Incarnation++
	s.table = newMemoryTable()
	s.setup.Table = s.table
	if slices.Contains(words, "lost") {
		s.setup.Ceiling, s.setup.Removals, s.setup.Stored, s.stored = 0, nil, MembersState{}, map[string]Entry{}
	} else {
		s.setup.Removals = s.m.removals.all()
		for key, e := range s.stored {
			e.Used = 0
			s.table.Put(key, e)
		}
	}
	if n, ok := options["incarnation"]; ok {
		s.setup.Incarnation = uint64(s.number(n))
	}
	s.m = New(s.now, s.setup)
}

// step tells the machine one thing, and shows what it wants done.
func (s *scripted) step(in Input) {
	s.show(s.m.Step(s.now, in))
	if _, tick := in.(Tick); tick && s.m.Next() <= s.now.Boot {
		s.t.Fatalf("%s: wants another tick for the same time", s.where)
	}
}

func (s *scripted) show(effects []Effect) {
	for _, e := range effects {
		switch e := e.(type) {
		case Save:
			s.stored[e.Key] = e.Entry
		case SaveMembers:
			s.setup.Stored = e.State
		case Raise:
			s.asked = e.To
		case Send:
			if _, hello := e.Message.(Hello); hello && !s.hellos {
				continue
			}
		}
		s.print(showEffect(e, s.since))
	}
}

// since shows a time of the boot clock as the wait until then.
func (s *scripted) since(at time.Duration) string {
	if at == never {
		return "for ever"
	}
	return "in " + (at - s.now.Boot).String()
}

func (s *scripted) print(line string) {
	if !s.quiet {
		s.out = append(s.out, "  "+s.prefix+line)
	}
}

// options takes the words name=value out.
func options(words []string) (map[string]string, []string) {
	found := map[string]string{}
	var rest []string
	for _, w := range words {
		if name, value, ok := strings.Cut(w, "="); ok {
			found[name] = value
		} else {
			rest = append(rest, w)
		}
	}
	return found, rest
}

// number reads 17, @250 (milliseconds since the epoch), @1h, now, and max.
func (s *scripted) number(text string) int64 {
	switch {
	case text == "now":
		return s.now.Wall
	case text == "max":
		return MaxWireNumber
	}
	rest, relative := strings.CutPrefix(text, "@")
	n, err := strconv.ParseInt(rest, 10, 64)
	if err != nil {
		n = s.duration(rest).Milliseconds()
	}
	if relative {
		n += epoch
	}
	return n
}

func (s *scripted) duration(text string) time.Duration {
	if text == "" {
		return 0
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		s.t.Fatalf("%s: %v", s.where, err)
	}
	return d
}
