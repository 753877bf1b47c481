package sim

import (
	"time"

	"github.com/understudy-ha/understudy/cache/protocol"
)

// suffer lets a fault befall the cluster, and the next one some time later.
func (w *cacheWorld) suffer() {
	s := w.setup
	var faults []func()
	add := func(is bool, f ...func()) {
		if is {
			faults = append(faults, f...)
		}
	}
	add(s.Cuts && len(w.hosts) > 1, w.cutSome, w.cutSome, w.breakSome, w.breakSome)
	add(s.Pauses, w.pauseSome, w.pauseSome)
	add(s.Restarts, w.killSome, w.killSome, w.crashSome)
	add(s.Wipes, w.wipeSome)
	add(s.Steps, w.stepSome)
	add(s.Changes, w.changeMembers, w.changeMembers)
	add(s.FalseDead && len(w.hosts) > 1, w.lieOfDeath)
	if w.calm || len(faults) == 0 {
		return
	}
	w.after(w.dice.upTo(s.Timings.AnnounceTimeout), func() {
		if !w.calm {
			faults[w.dice.n(len(faults))]()
			w.suffer()
		}
	})
}

func (w *cacheWorld) anybody() *cacheHost { return w.hosts[w.dice.n(len(w.hosts))] }

// active is a peer that fetches or stands, or any.
func (w *cacheWorld) active() *cacheHost {
	if w.dice.hit(0.5) {
		for _, h := range w.hosts {
			if h.peer != nil && len(h.peer.fetches) > 0 {
				return h
			}
		}
	}
	return w.anybody()
}

// cutSome has some links carry nothing, in one direction or both, for a while.
func (w *cacheWorld) cutSome() {
	var cuts [][2]int
	switch w.dice.n(3) {
	case 0: // one from all
		h := w.active()
		way := w.dice.n(3)
		for _, o := range w.hosts {
			if way != 1 {
				cuts = append(cuts, [2]int{h.i, o.i})
			}
			if way != 0 {
				cuts = append(cuts, [2]int{o.i, h.i})
			}
		}
	case 1: // two groups
		side := w.dice.n(1 << len(w.hosts))
		for i := range w.hosts {
			for j := range w.hosts {
				if side>>i&1 != side>>j&1 {
					cuts = append(cuts, [2]int{i, j})
				}
			}
		}
	default: // some of all
		for range 1 + w.dice.n(2*len(w.hosts)) {
			cuts = append(cuts, [2]int{w.dice.n(len(w.hosts)), w.dice.n(len(w.hosts))})
		}
	}
	w.trace("cut: %v", cuts)
	for _, c := range cuts {
		w.cuts[c] = true
	}
	w.after(w.dice.upTo(3*w.setup.Timings.AnnounceTimeout), func() {
		w.trace("cut ends: %v", cuts)
		for _, c := range cuts {
			delete(w.cuts, c)
		}
	})
}

// breakSome ends connections whose ends live.
func (w *cacheWorld) breakSome() {
	chance := []float64{0.1, 0.5, 1}[w.dice.n(3)]
	w.eachLink(func(l *cacheLink) {
		if w.dice.hit(chance) {
			l.breaks()
		}
	})
}

func (w *cacheWorld) pauseSome() {
	if p := w.active().peer; p != nil {
		p.pause(w.dice.upTo(w.setup.Timings.AnnounceTimeout * time.Duration(1+w.dice.n(3)) / 2))
	}
}

func (w *cacheWorld) killSome() {
	n := 1
	if w.dice.hit(0.1) {
		n = len(w.hosts)
	}
	for range n {
		h := w.active()
		h.kill()
		w.launchLater(h)
	}
}

func (w *cacheWorld) launchLater(h *cacheHost) {
	wait := w.dice.upTo(50 * time.Millisecond)
	if w.dice.hit(0.5) {
		wait = w.dice.upTo(2 * w.setup.Timings.AnnounceTimeout)
	}
	w.after(wait, func() {
		h.off = false
		h.launch()
	})
}

func (w *cacheWorld) crashSome() {
	h := w.active()
	h.crash()
	w.launchLater(h)
}

func (w *cacheWorld) wipeSome() {
	h := w.active()
	h.wipe()
	w.launchLater(h)
}

// stepSome steps a wall clock: by seconds, or now and then by up to two hours.
func (w *cacheWorld) stepSome() {
	h := w.active()
	by := w.dice.upTo(5 * time.Second).Milliseconds()
	if w.dice.hit(0.1) {
		by = w.dice.upTo(2 * time.Hour).Milliseconds()
	}
	if w.dice.hit(0.5) {
		by = -by
	}
	w.trace("the wall clock of %s steps by %d ms", h.name, by)
	h.wall += by
	least, most := w.hosts[0].wall, w.hosts[0].wall
	for _, h := range w.hosts {
		least, most = min(least, h.wall), max(most, h.wall)
	}
	skew := w.setup.Timings.Skew.Milliseconds() - 100 // clocks drift
	w.judge.skewed = w.judge.skewed || most-least > skew || by < -skew
}

// lieOfDeath has a peer believe that another has ended.
func (w *cacheWorld) lieOfDeath() {
	p, other := w.anybody().peer, w.active()
	if p == nil || p.host == other || p.links[other.member.URL] == nil {
		return
	}
	w.judge.lied()
	p.links[other.member.URL].breaks()
	p.input(protocol.Link{Peer: other.member.URL, State: protocol.Dead})
}
