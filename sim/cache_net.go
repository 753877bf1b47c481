package sim

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/understudy-ha/understudy/cache/protocol"
)

// cacheLink is a peer's subscription to another.
type cacheLink struct {
	hears  *cachePeer
	says   *cacheHost
	conn   *cachePeer // whose process it reaches; nil: it does not stand
	up     bool       // as the hearing process knows
	dead   bool       // it was told so
	epoch  int        // grows when a connection ends: nothing of it arrives any more
	tries  int
	trying bool
	closed bool
	silent time.Duration // since when nothing can come; −1: something may
	last   time.Duration // when the last message arrives
}

// dial opens links to the members that there are none to, and closes those to
// peers that are none.
func (p *cachePeer) dial() {
	members := p.real.Members()
	for url := range p.links {
		if !members.Has(url) {
			p.hangUp(url)
		}
	}
	changed := members.Digest() != p.dialed
	p.dialed = members.Digest()
	for _, m := range members {
		if l := p.links[m.URL]; l != nil && l.up && changed {
			// A machine does not know of the links to those who become members.
			p.host.w.after(0, func() {
				if l.up && !l.closed {
					l.tell(true)
				}
			})
		}
		if m.URL == p.host.member.URL || p.links[m.URL] != nil {
			continue
		}
		l := &cacheLink{hears: p, says: p.host.w.host(m.URL), silent: -1}
		p.links[m.URL] = l
		l.tryIn(p.host.w.dice.upTo(20 * time.Millisecond))
	}
}

func (p *cachePeer) hangUp(url string) {
	if l := p.links[url]; l != nil {
		delete(p.links, url)
		l.closed = true
	}
}

func (w *cacheWorld) host(url string) *cacheHost {
	i := slices.IndexFunc(w.hosts, func(h *cacheHost) bool { return h.member.URL == url })
	return w.hosts[i]
}

func (w *cacheWorld) cut(from, to *cacheHost) bool { return w.cuts[[2]int{from.i, to.i}] }

// reachable is whether what the other end says can be heard.
func (l *cacheLink) reachable() bool {
	return l.hears.host.w.reaches(l.says, l.hears.host) && (l.says.peer == nil || !l.says.peer.paused)
}

func (w *cacheWorld) reaches(from, to *cacheHost) bool {
	return !from.off && !w.cut(from, to)
}

func (l *cacheLink) tryIn(d time.Duration) {
	if l.trying {
		return
	}
	l.trying = true
	l.hears.host.w.after(d, func() {
		l.trying = false
		l.try()
	})
}

// try connects, and tells what becomes of it.
func (l *cacheLink) try() {
	w := l.hears.host.w
	switch {
	case l.closed || l.hears.dead || l.conn != nil:
		return
	case l.hears.paused, !l.reachable():
	case l.says.peer == nil:
		if !l.dead {
			l.dead = true
			l.hears.input(protocol.Link{Peer: l.says.member.URL, State: protocol.Dead})
		}
	default:
		l.conn, l.dead, l.tries, l.silent = l.says.peer, false, 0, -1
		l.tell(true)
		if back := l.conn.links[l.hears.host.member.URL]; back == nil { // it is told the list
			l.conn.input(protocol.Link{Peer: l.hears.host.member.URL, State: protocol.Up})
		} else {
			if back.conn != nil && back.up {
				l.conn.input(protocol.Link{Peer: l.hears.host.member.URL, State: protocol.Up})
			} else {
				back.tryIn(w.dice.upTo(5 * time.Millisecond))
			}
		}
		return
	}
	l.tries++
	most := min(20*time.Millisecond<<min(l.tries, 6), time.Second)
	l.tryIn(w.dice.between(most/2, most))
}

func (l *cacheLink) tell(up bool) {
	state := protocol.Down
	if up {
		state = protocol.Up
	}
	l.up = up
	l.hears.input(protocol.Link{Peer: l.says.member.URL, State: state})
}

// breaks ends the connection: its ends may connect again.
func (l *cacheLink) breaks() {
	if l.conn == nil {
		return
	}
	l.conn = nil
	l.epoch++
	l.tell(false)
	l.tryIn(l.hears.host.w.dice.upTo(20 * time.Millisecond))
}

// broken is that a process has ended: whoever hears it finds out soon, if it can.
func (w *cacheWorld) broken(p *cachePeer) {
	w.eachLink(func(l *cacheLink) {
		if l.conn == p {
			w.after(w.dice.upTo(5*time.Millisecond), func() {
				if l.conn == p && l.reachable() {
					l.breaks()
				}
			})
		}
	})
}

func (w *cacheWorld) eachLink(each func(*cacheLink)) {
	for _, h := range w.hosts {
		if h.peer == nil {
			continue
		}
		for _, url := range slices.Sorted(maps.Keys(h.peer.links)) {
			each(h.peer.links[url])
		}
	}
}

// sweep notices, again and again, who has been silent for too long.
func (w *cacheWorld) sweep() {
	limit := w.setup.Timings.AnnounceTimeout
	w.eachLink(func(l *cacheLink) {
		switch {
		case l.conn == nil || l.closed:
			return
		case l.reachable() && l.says.peer == l.conn && !l.hears.paused:
			l.silent = -1
		case l.silent < 0:
			l.silent = w.now
		case w.now-l.silent >= limit:
			l.silent = -1
			l.breaks()
		}
	})
	w.after(100*time.Millisecond, w.sweep)
}

// say sends a message to one, or to everyone who listens.
func (p *cachePeer) say(s protocol.Send) {
	w := p.host.w
	if r, ok := s.Message.(protocol.Removed); ok {
		w.judge.confirms(p, func(known *cacheRemoval) bool { return known.Removal == r.Removal })
	}
	for _, h := range w.hosts {
		if h == p.host || h.peer == nil || s.To != "" && s.To != h.member.URL {
			continue
		}
		if l := h.peer.links[p.host.member.URL]; l != nil && l.conn == p && !l.closed {
			l.carry(s.Message)
		}
	}
}

// carry takes a message over the link, if it gets there.
func (l *cacheLink) carry(msg protocol.Message) {
	w := l.hears.host.w
	n := w.network()
	times := 1
	if w.dice.hit(n.Duplicate) {
		times = 2
	}
	for range times {
		if w.dice.hit(n.Lose) {
			continue
		}
		at := w.now + w.dice.upTo(n.MaxDelay)
		if w.dice.hit(n.Late) {
			at = w.now + w.dice.upTo(10*n.MaxDelay)
		}
		if n.Ordered {
			at = max(at, l.last)
			l.last = at
		}
		epoch := l.epoch
		w.after(at-w.now, func() {
			if l.epoch == epoch && !l.closed && w.reaches(l.says, l.hears.host) {
				l.hears.input(protocol.Received{From: l.says.member.URL, Message: msg})
			}
		})
	}
}

// cacheText is an input or an effect in short, for traces.
func cacheText(v any) string {
	switch v := v.(type) {
	case protocol.Received:
		return fmt.Sprintf("%s says %s", cacheName(v.From), cacheText(v.Message))
	case protocol.Send:
		to := "all"
		if v.To != "" {
			to = cacheName(v.To)
		}
		return fmt.Sprintf("to %s %s", to, cacheText(v.Message))
	case protocol.Update:
		return fmt.Sprintf("Update{%s %s}", v.Key, cacheEntry(v.Entry))
	case protocol.Reply:
		return fmt.Sprintf("Reply{%d %s}", v.Token, cacheEntry(v.Entry))
	case protocol.Save:
		return fmt.Sprintf("Save{%s %s}", v.Key, cacheEntry(v.Entry))
	case protocol.StartFetch:
		return fmt.Sprintf("StartFetch{%s term %d until %v}", v.Key, v.Term, v.Until)
	case protocol.Fetched:
		return fmt.Sprintf("Fetched{%s term %d err %q}", v.Key, v.Term, v.Err)
	case protocol.Link:
		return fmt.Sprintf("Link %s %s", cacheName(v.Peer), []string{"down", "up", "dead"}[v.State])
	case protocol.StateChanged:
		return fmt.Sprintf("StateChanged{%s %v to %v, term %d, %s: %s}", v.Key, v.From, v.To, v.Term, cacheName(v.Peer), v.Why)
	}
	return strings.TrimPrefix(fmt.Sprintf("%T%+v", v, v), "protocol.")
}

func cacheName(url string) string { return strings.TrimSuffix(strings.TrimPrefix(url, "tcp://"), ":1") }

func cacheEntry(e protocol.Entry) string {
	return fmt.Sprintf("term %d expire %d digest %x seen %d", e.Term, e.Expire, e.Digest>>48, e.Used)
}
