package sim

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/understudy-ha/understudy/cache/protocol"
)

// cacheHost is a machine with clocks and a disk, on which a peer runs, or does not.
type cacheHost struct {
	w       *cacheWorld
	i       int
	name    string
	member  protocol.Member
	list    protocol.Members // in its configuration; nil: no peer is to run here
	keeps   bool
	passive bool
	disk    cacheDisk
	peer    *cachePeer // nil: no process runs
	off     bool       // the host is down: it does not even refuse connections
	// hadOthers is that the process before had a list of several members, so shortly before its end that it may have been bound by
	// a promise to one of them; others is when a process had one last.
	hadOthers bool
	others    time.Duration

	rate     float64
	bootBase time.Duration
	bootAt   time.Duration
	wall     int64 // milliseconds that the wall clock is off
}

func (w *cacheWorld) newHost(i int) *cacheHost {
	name := fmt.Sprintf("p%d", i)
	return &cacheHost{
		w: w, i: i, name: name, keeps: w.setup.Stored[i], passive: w.setup.Passive[i],
		member:   protocol.Member{URL: "tcp://" + name + ":1", API: "tcp://" + name + ":2"},
		rate:     1 + 0.001*[]float64{-1, 1, 0, 0.5}[w.dice.n(4)],
		bootBase: w.dice.upTo(1000 * time.Hour), wall: w.skew(),
		disk: cacheDisk{rows: map[string]protocol.Entry{}},
	}
}

// skew is how far a wall clock is off that someone looks after.
func (w *cacheWorld) skew() int64 {
	most := w.setup.Timings.Skew.Milliseconds() / 2
	return int64(w.dice.n(int(2*most+1))) - most
}

func (h *cacheHost) boot() time.Duration {
	return h.bootBase + time.Duration(float64(h.w.now-h.bootAt)*h.rate)
}

// in is how long it takes until the boot clock shows a time; a timer is never early.
func (h *cacheHost) in(boot time.Duration) time.Duration {
	left := boot - h.boot()
	if left <= 0 {
		return 0
	}
	if left > 1000*time.Hour {
		return 1000 * time.Hour
	}
	return time.Duration(math.Ceil(float64(left)/h.rate)) + 2
}

func (h *cacheHost) clock() protocol.Now {
	return protocol.Now{Boot: h.boot(), Wall: h.wallNow()}
}

func (h *cacheHost) wallNow() int64 {
	return cacheEpoch + time.Duration(float64(h.w.now)*h.rate).Milliseconds() + h.wall
}

// launch starts a process on the host, with what the disk has.
func (h *cacheHost) launch() {
	if h.peer != nil || h.off || h.list == nil {
		return
	}
	h.w.lives++
	h.peer = newCachePeer(h, h.w.lives)
	h.peer.begin()
}

// kill ends the process. What was not stored is lost.
func (h *cacheHost) kill() {
	p := h.peer
	if p == nil {
		return
	}
	h.w.trace("%s dies", h.name)
	p.dead = true
	h.peer = nil
	h.disk.ops = nil
	h.disk.busy++
	if !h.keeps {
		h.disk = cacheDisk{rows: map[string]protocol.Entry{}, busy: h.disk.busy}
	}
	h.w.judge.died(p)
	h.w.broken(p)
}

// crash ends the host: the last saves are lost, and the boot clock starts again.
func (h *cacheHost) crash() {
	h.kill()
	h.off = true
	h.disk.lose(h.w.dice.n(10))
	h.bootBase, h.bootAt = h.w.dice.upTo(time.Minute), h.w.now
}

// wipe takes the storage away.
func (h *cacheHost) wipe() {
	h.kill()
	h.disk = cacheDisk{rows: map[string]protocol.Entry{}, busy: h.disk.busy}
	h.w.judge.wiped(h)
	h.w.trace("%s loses its storage", h.name)
}

// cacheDisk is what a host stores. One thing is written at a time.
type cacheDisk struct {
	ceiling  int64
	removals []protocol.Removal
	members  protocol.MembersState
	rows     map[string]protocol.Entry
	undo     []cacheRow // the last saves, which nothing has made durable

	ops  []cacheOp
	busy uint64 // grows when the process that writes ends
}

type cacheRow struct {
	key string
	old protocol.Entry
}

type cacheOp struct {
	apply func()
	done  func(err string)
	again bool // what fails is tried again
}

func (d *cacheDisk) lose(n int) {
	for range min(n, len(d.undo)) {
		last := d.undo[len(d.undo)-1]
		d.undo = d.undo[:len(d.undo)-1]
		d.put(last.key, last.old)
	}
}

func (d *cacheDisk) put(key string, e protocol.Entry) {
	e.Used = 0
	if e.Term == 0 && !e.Held() {
		delete(d.rows, key)
		return
	}
	d.rows[key] = e
}

func (d *cacheDisk) save(key string, e protocol.Entry) {
	d.undo = append(d.undo, cacheRow{key, d.rows[key]})
	if len(d.undo) > 100 {
		d.undo = slices.Delete(d.undo, 0, 1)
	}
	d.put(key, e)
}

// store has something written after what waits already. done is told by the process.
func (h *cacheHost) store(p *cachePeer, op cacheOp) {
	h.disk.ops = append(h.disk.ops, op)
	if len(h.disk.ops) == 1 {
		h.write(p)
	}
}

func (h *cacheHost) write(p *cachePeer) {
	d := h.w.dice
	takes := d.upTo(3 * time.Millisecond)
	if !h.w.calm && h.w.setup.DiskSlow > 0 && d.hit(0.2) {
		takes = d.upTo(h.w.setup.DiskSlow)
	}
	life := h.disk.busy
	applied := d.hit(0.5) // before the report, or with it
	op := h.disk.ops[0]
	fails := !h.w.calm && d.hit(h.w.setup.DiskFails)
	if applied && !fails {
		h.w.after(takes/2, func() {
			if h.disk.busy == life {
				op.apply()
			}
		})
	}
	h.w.after(takes, func() {
		if h.disk.busy != life {
			return
		}
		why := ""
		if fails {
			why = "the disk is full"
		} else if !applied {
			op.apply()
		}
		if fails && op.again {
			h.write(p)
			return
		}
		if h.disk.ops = h.disk.ops[1:]; len(h.disk.ops) > 0 {
			h.write(p)
		}
		p.do(func() { op.done(why) })
	})
}

// cacheTable is a peer's copies, under the judge's eyes.
type cacheTable struct {
	peer   *cachePeer
	rows   map[string]protocol.Entry
	used   []string // the least recently used first
	forgot int64
}

func (t *cacheTable) Get(key string) protocol.Entry { return t.rows[key] }

func (t *cacheTable) Forgot() int64 { return t.forgot }

func (t *cacheTable) Put(key string, e protocol.Entry) {
	w := t.peer.host.w
	w.judge.put(t.peer, key, t.rows[key], e)
	t.rows[key] = e
	t.used = append(slices.DeleteFunc(t.used, func(k string) bool { return k == key }), key)
	if room := w.setup.Room; room > 0 && len(t.used) > room && !w.calm {
		old := t.used[0]
		t.used = t.used[1:]
		t.forgot = max(t.forgot, t.rows[old].Term, t.rows[old].Used)
		delete(t.rows, old)
		t.peer.save(old)
	}
}

func (t *cacheTable) Match(prefix string, each func(string, protocol.Entry) bool) {
	for _, key := range slices.Sorted(maps.Keys(t.rows)) {
		if e, ok := t.rows[key]; ok && strings.HasPrefix(key, prefix) && !each(key, e) {
			return
		}
	}
}
