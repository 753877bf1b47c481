package sim

import (
	"slices"
	"time"

	"github.com/understudy-ha/understudy/cache/protocol"
)

// recover ends all faults. Every key must then be answered everywhere in time, all
// copies must agree, and everything must be forgotten that need not be remembered.
func (w *cacheWorld) recover() {
	w.calm = true
	w.trace("calm")
	clear(w.cuts)
	for _, h := range w.hosts {
		h.off = false
		h.wall = w.skew()
		switch {
		case !w.list.Has(h.member.URL):
			h.list = nil
			h.kill()
		case h.list == nil:
			h.list = w.list
		case w.setup.Hasty && h.list.Digest() != w.list.Digest():
			h.list = w.list
			h.kill()
		}
		if h.peer != nil {
			h.peer.resume()
		}
		h.launch()
	}
	began := w.now
	w.judge.result.Within = w.within()
	left := w.demand()
	for end := w.now + w.within(); w.now < end && *left > 0 && !w.judge.enough(); {
		w.until(w.now + 20*time.Millisecond)
	}
	if w.judge.enough() {
		return
	}
	w.judge.result.Settle = w.now - began
	if *left > 0 {
		w.judge.breach("%d keys have no fresh copy at a member %v after the last fault", *left, w.now-began)
	}
	w.until(began + w.within())
	w.agree()
	w.until(w.now + 2*w.setup.Timings.FailMax*11/10 + w.setup.Timings.AnnounceTimeout + 10*time.Second)
	w.forgotten()
}

// within is how long it may take until every key is answered: a broken connection
// is noticed, and made again; promises run out, and a peer that started votes; one
// that found itself partitioned asks who is there; the last fetch ends, or its
// failure is old enough; all have the last list of members; and a few elections.
func (w *cacheWorld) within() time.Duration {
	t := w.setup.Timings
	d := t.AnnounceTimeout + time.Second + t.AnnounceTimeout + t.Ping + t.FetchTimeout + t.FailMax*11/10 + 2*t.Hello + 4*time.Second + w.setup.DiskSlow
	if w.setup.Changes {
		d += 4*t.AnnounceTimeout + t.Hello // to stop, to be given the list, and to wait for the change before
	}
	return d
}

// demand has every key asked for at every peer until there is a fresh copy; it
// returns how many are missing.
func (w *cacheWorld) demand() *int {
	left := new(int)
	for _, h := range w.hosts {
		for i := range w.setup.Keys {
			if !w.list.Has(h.member.URL) {
				continue
			}
			*left++
			w.insist(h, cacheKey(i), left)
		}
	}
	return left
}

func (w *cacheWorld) insist(h *cacheHost, key string, left *int) {
	p := h.peer
	in := protocol.Get{Key: key, MinExpire: h.wallNow(), Until: h.boot() + 10*time.Second}
	p.ask(in, func(e protocol.Effect) {
		_, replied := e.(protocol.Reply)
		refused, _ := e.(protocol.Refuse)
		if replied || h.passive && refused.Reason >= protocol.NotMember {
			*left--
			return
		}
		w.after(100*time.Millisecond, func() { w.insist(h, key, left) })
	})
}

// agree checks that the members are of one mind, then that a refresh of each key
// comes to all of them.
func (w *cacheWorld) agree() {
	var members []*cachePeer
	for _, h := range w.hosts {
		if !w.list.Has(h.member.URL) {
			continue
		}
		members = append(members, h.peer)
		s := h.peer.real.Status()
		if change := w.list.Difference(h.peer.real.Members()); len(change) > 0 || !s.Member {
			w.judge.breach("%s has another list of members: %v", h.name, change)
		}
		if s.Partitioned || s.Abstaining || s.Connected != len(w.list) {
			w.judge.breach("%s is not well long after the last fault: %+v", h.name, s)
		}
	}
	for i := range w.setup.Keys {
		w.refresh(members, cacheKey(i))
	}
	if slices.ContainsFunc(members, func(p *cachePeer) bool { return !p.host.passive }) {
		for _, p := range members {
			if p.host.passive {
				w.refreshStale(p, cacheKey(0))
			}
		}
	}
}

// refreshStale checks that a stale copy which a passive peer gives is refreshed, though nobody asks for it elsewhere.
func (w *cacheWorld) refreshStale(p *cachePeer, key string) {
	t := w.setup.Timings
	w.until(w.now + t.TTL + t.Skew)
	old := p.table.rows[key]
	if !old.Held() {
		return
	}
	for end := w.now + t.AnnounceTimeout + 3*time.Second; p.table.rows[key].Term <= old.Term; {
		if w.now > end {
			w.judge.breach("%s, which is passive, gives a stale copy of %s, and no peer fetches it: %s", p.host.name, key, cacheEntry(old))
			return
		}
		p.ask(protocol.Get{Key: key, Until: p.host.boot() + time.Second}, func(protocol.Effect) {})
		w.until(w.now + 100*time.Millisecond)
	}
}

func (w *cacheWorld) refresh(members []*cachePeer, key string) {
	var p *cachePeer
	for _, m := range members {
		if !m.host.passive {
			p = m
		}
	}
	if p == nil {
		return
	}
	t := w.setup.Timings
	got := false
	p.ask(protocol.Get{Key: key, Refresh: true, Until: p.host.boot() + t.AnnounceTimeout + 2*time.Second}, func(e protocol.Effect) {
		if _, got = e.(protocol.Reply); !got {
			w.judge.breach("%s refuses to refresh %s long after the last fault: %s", p.host.name, key, cacheText(e))
		}
	})
	w.until(w.now + t.AnnounceTimeout + 3*time.Second)
	first := members[0].table.rows[key]
	for _, m := range members {
		if e := m.table.rows[key]; got && !(w.judge.skewed && e.Term > first.Term) && (e.Term != first.Term || e.Digest != first.Digest || e.Expire != first.Expire) {
			w.judge.breach("%s has %s of %s, %s has %s", m.host.name, cacheEntry(e), key, members[0].host.name, cacheEntry(first))
		}
	}
}

// forgotten checks that nothing is left that grows.
func (w *cacheWorld) forgotten() {
	for _, h := range w.hosts {
		if h.peer == nil {
			continue
		}
		h.peer.real.Active(func(name string, l protocol.KeyStatus) bool {
			w.judge.breach("%s still remembers %s: %+v", h.name, name, l)
			return true
		})
		for token, wait := range h.peer.waits {
			w.judge.breach("%s: %d was never answered: %s", h.name, token, cacheText(wait.in))
		}
	}
}
