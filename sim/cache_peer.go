package sim

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/understudy-ha/understudy/cache/protocol"
)

// cacheMachine is what a process runs: a [protocol.Machine], or a broken one.
type cacheMachine interface {
	Step(protocol.Now, protocol.Input) []protocol.Effect
	Next() time.Duration
}

// cachePeer is one life of a peer: a process.
type cachePeer struct {
	host    *cacheHost
	life    uint64
	real    *protocol.Machine
	machine cacheMachine
	table   *cacheTable
	born    time.Duration // true time
	dead    bool
	paused  bool
	pauses  int // so far
	inbox   []func()
	before  uint64 // digest of the list of members when the step began
	dialed  uint64 // the same, when links were last looked at

	links   map[string]*cacheLink   // by url of who is heard
	up      map[string]bool         // which of them stand, as the machine was told
	asked   map[protocol.Token]bool // that the machine has not answered
	waits   map[protocol.Token]*cacheWait
	fetches map[string]*cacheFetch // by key
	barrier protocol.Barrier
	ticket  uint64          // the last one given
	dirty   map[string]bool // keys whose copies are to be saved
	wake    uint64          // the newest timer
	wakeAt  time.Duration
	spins   int
	spinAt  time.Duration
}

func newCachePeer(h *cacheHost, life uint64) *cachePeer {
	w := h.w
	p := &cachePeer{
		host: h, life: life, born: w.now, links: map[string]*cacheLink{}, up: map[string]bool{}, asked: map[protocol.Token]bool{}, waits: map[protocol.Token]*cacheWait{},
		fetches: map[string]*cacheFetch{}, dirty: map[string]bool{},
	}
	p.table = &cacheTable{peer: p, rows: maps.Clone(h.disk.rows), used: slices.Sorted(maps.Keys(h.disk.rows))}
	rng := rand.New(rand.NewPCG(w.setup.Seed, life))
	floor := int64(0)
	if h.disk.ceiling == 0 { // as a peer does that finds nothing stored
		floor = h.wallNow() + w.setup.Timings.Reach().Milliseconds()
	}
	setup := protocol.Setup{
		Floor: floor, Self: h.member.URL, Members: h.list, Stored: h.disk.members, HasStorage: h.keeps, Incarnation: rng.Uint64() | 1,
		Ceiling: h.disk.ceiling, Removals: slices.Clone(h.disk.removals), Timings: w.setup.Timings,
		Jitter: w.setup.Jitter, Passive: h.passive, MaxWaiting: 200, Table: p.table, Rand: rng.Float64,
	}
	if w.setup.Twin.Setup != nil {
		w.setup.Twin.Setup(p, &setup)
	}
	p.real = protocol.New(h.clock(), setup)
	p.machine = w.twist(p, setup, p.real)
	w.trace("%s starts: life %d, ceiling %d, %d members, %d removals", h.name, life, setup.Ceiling, len(h.list), len(setup.Removals))
	return p
}

func (p *cachePeer) begin() {
	p.host.w.judge.started(p)
	p.dial()
	p.step(protocol.Tick{})
}

// do is for what happens to a process: now, or when it continues.
func (p *cachePeer) do(f func()) {
	switch {
	case p.dead:
	case p.paused:
		p.inbox = append(p.inbox, f)
	default:
		f()
	}
}

func (p *cachePeer) input(in protocol.Input) { p.do(func() { p.step(in) }) }

func (p *cachePeer) pause(d time.Duration) {
	if p.paused || p.dead {
		return
	}
	w := p.host.w
	w.trace("%s is paused for %v", p.host.name, d)
	p.paused = true
	p.pauses++
	n := p.pauses
	w.after(d, func() {
		if n == p.pauses {
			p.resume()
		}
	})
}

func (p *cachePeer) resume() {
	if !p.paused || p.dead {
		return
	}
	w := p.host.w
	w.trace("%s goes on", p.host.name)
	p.paused = false
	for _, key := range slices.Sorted(maps.Keys(p.fetches)) {
		p.expire(p.fetches[key])
	}
	inbox := p.inbox
	p.inbox = nil
	if w.dice.hit(0.5) {
		p.step(protocol.Tick{})
	}
	for _, f := range inbox {
		p.do(f)
	}
	p.step(protocol.Tick{})
}

// step has the machine take an input and carries out its effects.
func (p *cachePeer) step(in protocol.Input) {
	if p.dead || p.paused {
		p.do(func() { p.step(in) })
		return
	}
	w := p.host.w
	if _, tick := in.(protocol.Tick); !tick && w.setup.Trace != nil {
		w.trace("%s < %s", p.host.name, cacheText(in))
	}
	w.judge.begins(p, in)
	effects := slices.Clone(p.machine.Step(p.host.clock(), in))
	w.judge.effects(p, in, effects)
	w.judge.took(p, in)
	for _, e := range effects {
		if w.setup.Trace != nil {
			w.trace("%s > %s", p.host.name, cacheText(e))
		}
		p.carry(e)
		if p.dead {
			return
		}
	}
	p.dial()
	p.arm()
}

// arm sets the timer, which may be late.
func (p *cachePeer) arm() {
	w := p.host.w
	next := p.machine.Next()
	if p.spinAt != w.now {
		p.spinAt, p.spins = w.now, 0
	}
	if next <= p.host.boot() {
		if p.spins++; p.spins > 1000 {
			w.judge.breach("%s asks for ticks without end: Next is %v, now %v", p.host.name, next, p.host.boot())
			p.dead = true
			return
		}
	}
	if next == p.wakeAt && next > p.host.boot() {
		return
	}
	p.wakeAt = next
	p.wake++
	n := p.wake
	late := time.Duration(0)
	if !w.calm && w.dice.hit(0.2) {
		late = w.dice.upTo(20 * time.Millisecond)
	}
	w.after(p.host.in(next)+late, func() {
		if n == p.wake && !p.dead {
			p.wakeAt = -1
			p.input(protocol.Tick{})
		}
	})
}

// carry does one effect, or keeps it until what must be stored before it is.
func (p *cachePeer) carry(e protocol.Effect) {
	var apply func()
	d := &p.host.disk
	switch e := e.(type) {
	case protocol.SaveRemovals:
		all := slices.Clone(e.All)
		apply = func() {
			// A removal that is not in the list any more is needed no longer only
			// when what it took away is not stored any more.
			for _, key := range slices.Sorted(maps.Keys(p.dirty)) {
				d.save(key, p.table.rows[key])
			}
			clear(p.dirty)
			d.removals, d.undo = all, nil
		}
	case protocol.SaveMembers:
		apply = func() { d.members, d.undo = e.State, nil }
	}
	ticket := uint64(0)
	if apply != nil && p.host.keeps {
		p.ticket++
		written := p.ticket
		p.host.store(p, cacheOp{apply, func(string) { p.stored(written) }, true})
		if !p.host.w.setup.Twin.HastyRemovals {
			ticket = written
		}
	}
	if p.barrier.Passes(e, ticket) {
		p.act(e)
	}
}

// stored continues with what waited for the disk.
func (p *cachePeer) stored(ticket uint64) {
	for e := range p.barrier.Completed(ticket) {
		if p.dead {
			break
		}
		p.act(e)
	}
	p.dial()
	p.arm()
}

// act carries an effect out.
func (p *cachePeer) act(e protocol.Effect) {
	w := p.host.w
	switch e := e.(type) {
	case protocol.Send:
		p.say(e)
	case protocol.Reply, protocol.KeepAlive, protocol.Refuse, protocol.KeysRemoved, protocol.MembersChanged:
		p.answer(e)
	case protocol.StartFetch:
		if e.Until > p.host.boot() {
			p.fetch(e)
		}
	case protocol.Trust:
		if f := p.fetches[e.Key]; f != nil && f.term == e.Term && !w.setup.Twin.Deaf {
			f.until = e.Until
			p.watch(f)
		}
	case protocol.Abort:
		if f := p.fetches[e.Key]; f != nil && f.term == e.Term && !w.setup.Twin.Deaf {
			p.endFetch(f, "aborted")
		}
	case protocol.Raise:
		p.raise(e)
	case protocol.Save:
		p.save(e.Key)
	}
}

// save has what the table then has of a key stored, at some time.
func (p *cachePeer) save(key string) {
	w, d := p.host.w, &p.host.disk
	if !p.host.keeps {
		return
	}
	p.dirty[key] = true
	w.after(w.dice.upTo(500*time.Millisecond), func() {
		if p.host.peer == p && p.dirty[key] {
			p.host.store(p, cacheOp{func() { delete(p.dirty, key); d.save(key, p.table.rows[key]) }, func(string) {}, true})
		}
	})
}

func (p *cachePeer) raise(e protocol.Raise) {
	if !p.host.keeps {
		p.host.w.after(0, func() { p.input(protocol.Raised{To: e.To}) })
		return
	}
	d := &p.host.disk
	if p.host.w.setup.Twin.HastyTerms {
		p.host.w.after(0, func() { p.input(protocol.Raised{To: e.To}) })
		return
	}
	p.host.store(p, cacheOp{
		func() { d.ceiling, d.undo = max(d.ceiling, e.To), nil },
		func(err string) { p.step(protocol.Raised{To: e.To, Err: err}) },
		false,
	})
}

// cacheFetch is a call of the source.
type cacheFetch struct {
	peer  *cachePeer
	key   string
	term  int64
	until time.Duration // boot clock
	watch uint64
	begun time.Duration // true time
	late  bool          // its process was paused at its end
	ahead bool          // its term was further ahead of all clocks than restarts take it
	over  bool
}

func (p *cachePeer) fetch(e protocol.StartFetch) {
	w := p.host.w
	if old := p.fetches[e.Key]; old != nil && !w.setup.Twin.Deaf {
		w.judge.breach("%s fetches %s in term %d while its fetch of term %d goes on", p.host.name, e.Key, e.Term, old.term)
	}
	f := &cacheFetch{peer: p, key: e.Key, term: e.Term, until: e.Until, begun: w.now}
	p.fetches[e.Key] = f
	w.judge.fetches(f)
	p.watch(f)
	src := w.setup.Source
	takes, fails, hangs := w.dice.between(src.Fast, src.Slow), w.dice.hit(src.Fails), w.dice.hit(src.Hangs)
	wait := time.Duration(0)
	if w.dice.hit(0.1) {
		wait = w.dice.upTo(w.setup.Timings.FailMax)
	}
	if w.calm {
		takes, fails, hangs = w.dice.upTo(100*time.Millisecond), false, false
	}
	if hangs {
		return
	}
	w.after(takes, func() {
		if f.over {
			return
		}
		p.endFetch(f, "the source returned")
		out := protocol.Fetched{Key: e.Key, Term: e.Term, Value: fmt.Appendf(nil, "%s of term %d at %v", e.Key, e.Term, w.now)}
		if fails {
			out = protocol.Fetched{Key: e.Key, Term: e.Term, Err: "the source is down", Wait: wait}
		}
		p.do(func() {
			if f.until > p.host.boot() || w.setup.Twin.Deaf {
				p.step(out)
			}
		})
	})
}

// watch sets the timer that ends a fetch when the authority for it does.
func (p *cachePeer) watch(f *cacheFetch) {
	f.watch++
	n := f.watch
	p.host.w.after(p.host.in(f.until), func() {
		if n == f.watch && !p.dead {
			p.expire(f)
		}
	})
}

func (p *cachePeer) expire(f *cacheFetch) {
	if f.over || p.host.boot() < f.until || p.host.w.setup.Twin.Deaf {
		return
	}
	if p.paused {
		f.late = true
		p.host.w.judge.becameLate(f)
		return
	}
	p.endFetch(f, "its time is over")
}

func (p *cachePeer) endFetch(f *cacheFetch, why string) {
	if f.over {
		return
	}
	f.over = true
	p.host.w.trace("%s: fetch of %s in term %d ends: %s", p.host.name, f.key, f.term, why)
	if p.fetches[f.key] == f {
		delete(p.fetches, f.key)
	}
	p.host.w.judge.fetchEnds(f)
}
