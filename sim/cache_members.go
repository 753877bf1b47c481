package sim

import (
	"slices"
	"time"

	"github.com/understudy-ha/understudy/cache/protocol"
)

// changeMembers has the operator change the list of members by one, as the docs say:
// the new list at every peer, one after another, and no further change before all have
// it and have had it for a while. A hasty operator changes two members at once, and
// restarts the peers to get around their refusal.
func (w *cacheWorld) changeMembers() {
	if w.changing {
		return
	}
	next := w.change(w.list)
	if w.setup.Hasty {
		next = w.change(next)
	}
	if len(w.list.Difference(next)) == 0 {
		return
	}
	w.trace("the members change: %v", w.list.Difference(next))
	old := w.list
	w.changing, w.list = true, next
	for _, h := range w.hosts {
		switch url := h.member.URL; {
		case next.Has(url):
			w.after(w.dice.upTo(3*w.setup.Timings.AnnounceTimeout), func() { w.giveList(h, next) })
		case old.Has(url): // it is stopped at some time
			w.after(w.dice.upTo(4*w.setup.Timings.AnnounceTimeout), func() {
				if !w.list.Has(url) {
					h.list = nil
					h.kill()
				}
			})
		}
	}
	w.after(time.Second, w.watchChange)
}

// change is a list that differs by one member.
func (w *cacheWorld) change(list protocol.Members) protocol.Members {
	m := w.anybody().member
	i := list.Index(m.URL)
	switch {
	case i < 0:
		return protocol.NewMembers(append(slices.Clone(list), m))
	case len(list) > 1:
		return slices.Delete(slices.Clone(list), i, i+1)
	default:
		return list
	}
}

// giveList puts a list into a peer's file and has it read again, until it is taken.
func (w *cacheWorld) giveList(h *cacheHost, list protocol.Members) {
	if w.list.Digest() != list.Digest() || !list.Has(h.member.URL) {
		return
	}
	added := h.list == nil
	h.list = list
	p := h.peer
	switch {
	case added:
		h.launch()
		return
	case p == nil || p.real.Members().Digest() == list.Digest():
		return
	case w.setup.Hasty:
		h.kill()
		w.after(w.dice.upTo(200*time.Millisecond), h.launch)
		return
	}
	p.ask(protocol.ChangeMembers{Members: list}, func(e protocol.Effect) {
		if why := e.(protocol.MembersChanged).Err; why != "" {
			w.trace("%s refuses the list: %s", h.name, why)
			w.after(500*time.Millisecond, func() { w.giveList(h, list) })
		}
	})
}

// watchChange ends a change when all have had the list for a while.
func (w *cacheWorld) watchChange() {
	for _, h := range w.hosts {
		if !w.list.Has(h.member.URL) {
			continue
		}
		if h.list.Digest() != w.list.Digest() || h.peer != nil && h.peer.real.Members().Digest() != w.list.Digest() {
			w.after(time.Second, w.watchChange)
			return
		}
	}
	w.after(w.setup.Timings.AnnounceTimeout+w.setup.Timings.Hello+time.Second, func() {
		w.judge.result.Changes++
		w.changing = false
	})
}
