package sim

import (
	"container/heap"
	"runtime/debug"
	"time"

	"github.com/understudy-ha/understudy/cache/protocol"
)

// CacheSetup is one run of a cluster of caches: its peers, and what may befall them.
type CacheSetup struct {
	Seed  uint64
	Peers int // members at the start
	Spare int // hosts whose peers may be added
	Keys  int
	// Length is for how long there are faults.
	Length  time.Duration
	Timings protocol.Timings
	Jitter  float64
	// Room is how many copies a peer holds; 0: all.
	Room int
	// Stored is which peers have storage, Passive which are passive.
	Stored, Passive []bool
	Network         CacheNetwork
	Source          CacheSource
	// Gap is the mean time between two requests of clients.
	Gap time.Duration
	// DiskFails is the chance that something is not stored, DiskSlow the longest
	// that storing takes.
	DiskFails float64
	DiskSlow  time.Duration
	// Cuts, Pauses, Restarts, Wipes (of storage), Steps (of wall clocks), Removals
	// and Changes (of members) are whether there are such faults and requests.
	Cuts, Pauses, Restarts, Wipes, Steps, Removals, Changes bool
	// Hasty is that two members change at once, whatever the peers say.
	Hasty bool
	// FalseDead has links reported dead whose other end lives.
	FalseDead bool
	Twin      CacheTwin
	// Trace, when not nil, is told what happens, for whoever replays a seed.
	Trace func(format string, args ...any)
}

// CacheNetwork is how bad the links are while they stand.
type CacheNetwork struct {
	MaxDelay        time.Duration
	Lose, Duplicate float64
	// Late is the chance that a message takes up to ten times as long.
	Late float64
	// Ordered is that messages of one connection arrive in their order.
	Ordered bool
}

// CacheSource is what fetches are like.
type CacheSource struct {
	Fast, Slow time.Duration // bounds of what a fetch takes
	Fails      float64
	Hangs      float64 // chance that it never returns by itself
}

// DrawCache returns the run of a seed.
func DrawCache(seed uint64) CacheSetup {
	d := newDice(seed, 0x6361636865)
	s := CacheSetup{
		Seed: seed, Peers: []int{1, 2, 3, 3, 3, 4, 5, 5, 7}[d.n(9)], Keys: 1 + d.n(3),
		Timings: drawCacheTimings(d),
		Network: CacheNetwork{MaxDelay: d.upTo([]time.Duration{2, 20, 150}[d.n(3)] * time.Millisecond), Ordered: d.hit(0.5)},
		Source: CacheSource{
			Fast: d.upTo(100 * time.Millisecond), Fails: []float64{0, 0.2, 1}[d.n(3)], Hangs: []float64{0, 0, 0.2}[d.n(3)],
		},
		Gap:  d.between(20*time.Millisecond, 400*time.Millisecond),
		Cuts: d.hit(0.7), Pauses: d.hit(0.5), Restarts: d.hit(0.7), Steps: d.hit(0.5), Removals: d.hit(0.5),
		FalseDead: d.hit(0.1),
	}
	s.Length = d.between(4*s.Timings.AnnounceTimeout, 10*s.Timings.AnnounceTimeout)
	s.Source.Slow = s.Source.Fast + d.upTo(s.Timings.FetchTimeout*5/4)
	if d.hit(0.3) {
		s.Jitter = 0.5 * float64(d.n(101)) / 100
	}
	if d.hit(0.7) {
		s.Network.Lose, s.Network.Duplicate, s.Network.Late = 0.2*float64(d.n(101))/100, 0.05, 0.03
	}
	if d.hit(0.3) {
		s.DiskFails, s.DiskSlow = 0.2, d.upTo(2*s.Timings.AnnounceTimeout)
	}
	if d.hit(0.2) {
		s.Keys, s.Room = 4, 1+d.n(3)
	}
	if d.hit(0.3) { // fetches outlast what befalls those who make them
		s.Timings.TTL, s.Timings.FetchTimeout = time.Second, 4*s.Timings.AnnounceTimeout
		s.Source.Fast, s.Source.Slow = s.Timings.AnnounceTimeout, 4*s.Timings.AnnounceTimeout
	}
	if s.Changes = d.hit(0.4); s.Changes {
		s.Spare = 1 + d.n(2)
	}
	if s.Changes && d.hit(0.3) {
		s.Peers, s.Spare = 1, 4
	}
	s.Hasty = s.Changes && d.hit(0.1)
	s.Wipes = !s.Changes && d.hit(0.4)
	storeless := []float64{0, 0, 0.3, 1}[d.n(4)]
	for range s.Peers + s.Spare {
		s.Stored = append(s.Stored, !d.hit(storeless))
		s.Passive = append(s.Passive, d.hit(0.05))
	}
	s.Passive[0] = false
	return s
}

func drawCacheTimings(d *dice) protocol.Timings {
	t := protocol.Timings{
		TTL: d.between(time.Second, 5*time.Second), FetchTimeout: d.between(500*time.Millisecond, 5*time.Second),
		FailMin: d.between(100*time.Millisecond, time.Second),
	}
	t.FailMax = t.FailMin + d.upTo(4*time.Second)
	if d.hit(0.3) {
		t.AnnounceTimeout, t.Announce = 700*time.Millisecond, 200*time.Millisecond
		t.Hello, t.Ping = 300*time.Millisecond, 500*time.Millisecond
	}
	return t.WithDefaults()
}

// CacheResult is what a run came to.
type CacheResult struct {
	Broken    []string // promises, each with what happened
	Gets      int
	Replies   int
	Fetches   int
	Elections int
	Removals  int // confirmed by at least one other peer
	Changes   int // that happened
	// Apart are overlaps of fetches of which one was paused past its time, or
	// whose peer was falsely reported dead, or whose peers' lists differ by more than
	// one member, because a hasty operator gave them such lists.
	Apart int
	// Again are terms fetched in twice, by a host that had lost its storage.
	Again int
	// Busiest is the most elections of one key at one peer within a second.
	Busiest int
	// Settle is how long after the last fault every key was answered everywhere, and
	// Within how long that may have taken.
	Settle, Within time.Duration
}

// cacheWorld is a cluster under one virtual clock. Everything happens on one
// goroutine, in an order that the seed decides.
type cacheWorld struct {
	setup  CacheSetup
	dice   *dice
	now    time.Duration // true time
	events cacheEvents
	seq    uint64
	hosts  []*cacheHost
	cuts   map[[2]int]bool // nothing passes from the first to the second
	calm   bool
	// list is what the operator wants every peer to have; changing is that not all
	// have had it for long.
	list     protocol.Members
	changing bool
	judge    *cacheJudge
	lives    uint64
}

// cacheEpoch is the true wall clock at the beginning, in Unix milliseconds.
const cacheEpoch = int64(1_800_000_000_000)

type cacheEvent struct {
	at  time.Duration
	seq uint64
	do  func()
}

type cacheEvents []cacheEvent

func (q cacheEvents) Len() int { return len(q) }
func (q cacheEvents) Less(i, j int) bool {
	return q[i].at < q[j].at || q[i].at == q[j].at && q[i].seq < q[j].seq
}
func (q cacheEvents) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *cacheEvents) Push(x any)   { *q = append(*q, x.(cacheEvent)) }
func (q *cacheEvents) Pop() any {
	old := *q
	e := old[len(old)-1]
	old[len(old)-1] = cacheEvent{}
	*q = old[:len(old)-1]
	return e
}

// RunCache runs a cluster of caches from its seed. The same seed does the same.
func RunCache(setup CacheSetup) (result CacheResult) {
	w := &cacheWorld{setup: setup, dice: newDice(setup.Seed, 0x776f726c64), cuts: map[[2]int]bool{}}
	w.judge = newCacheJudge(w)
	defer func() {
		if r := recover(); r != nil {
			w.judge.breach("panic: %v\n%s", r, debug.Stack())
			result = w.judge.result
		}
	}()
	w.build()
	w.sweep()
	w.clients()
	w.suffer()
	w.until(setup.Length)
	w.recover()
	simulated.Add(int64(w.now))
	return w.judge.result
}

func (w *cacheWorld) build() {
	n := w.setup.Peers + w.setup.Spare
	var members []protocol.Member
	for i := range n {
		h := w.newHost(i)
		w.hosts = append(w.hosts, h)
		if i < w.setup.Peers {
			members = append(members, h.member)
		}
	}
	w.list = protocol.NewMembers(members)
	for _, h := range w.hosts[:w.setup.Peers] {
		h.list = w.list
		w.after(w.dice.upTo(300*time.Millisecond), h.launch)
	}
}

func (w *cacheWorld) after(d time.Duration, do func()) {
	w.seq++
	heap.Push(&w.events, cacheEvent{w.now + max(0, d), w.seq, do})
}

// until lets everything happen that happens before a time.
func (w *cacheWorld) until(end time.Duration) {
	for len(w.events) > 0 && w.events[0].at <= end && !w.judge.enough() {
		e := heap.Pop(&w.events).(cacheEvent)
		w.now = e.at
		e.do()
	}
	w.now = max(w.now, end)
}

func (w *cacheWorld) trace(format string, args ...any) {
	if w.setup.Trace != nil {
		w.setup.Trace("%12v "+format, append([]any{w.now}, args...)...)
	}
}

func (w *cacheWorld) network() CacheNetwork {
	if w.calm {
		return CacheNetwork{MaxDelay: time.Millisecond, Ordered: true}
	}
	return w.setup.Network
}

func cacheKey(i int) string { return []string{"a/0", "a/1", "b/0", "b/1"}[i] }
