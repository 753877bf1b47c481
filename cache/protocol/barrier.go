package protocol

import (
	"iter"
	"slices"
)

// Barrier holds effects back until what must be durable before them is. Writes start at once, so that many of them
// together cost one commit. It is pure; its zero value holds nothing.
type Barrier struct {
	held []heldEffect // the first one, if any, is being written
}

// heldEffect has a ticket if it is being written; 0: it waits for those before it.
type heldEffect struct {
	effect Effect
	ticket uint64
}

// Passes reports whether an effect is to be carried out now; otherwise it is held. ticket is that of the write which the
// effect has started, larger than all before; 0: none. The end of a fetch and what is saved in any case wait for nothing;
// a fetch that is held ends, too.
func (b *Barrier) Passes(e Effect, ticket uint64) bool {
	switch e := e.(type) {
	case Save:
		return true
	case Abort:
		b.held = slices.DeleteFunc(b.held, func(h heldEffect) bool { return h.isFetch(e.Key, e.Term) })
		return true
	case Trust:
		for i, h := range b.held {
			if h.isFetch(e.Key, e.Term) {
				f := h.effect.(StartFetch)
				f.Until = e.Until
				b.held[i].effect = f
			}
		}
		return true
	}
	if ticket == 0 && len(b.held) == 0 {
		return true
	}
	b.held = append(b.held, heldEffect{e, ticket})
	return false
}

func (h heldEffect) isFetch(key string, term int64) bool {
	f, ok := h.effect.(StartFetch)
	return ok && f.Key == key && f.Term == term
}

// Completed gives what need not wait any more when all writes up to a ticket have been tried, one effect after the other: what
// carrying one out brings is held behind the rest.
func (b *Barrier) Completed(ticket uint64) iter.Seq[Effect] {
	return func(yield func(Effect) bool) {
		for len(b.held) > 0 && b.held[0].ticket <= ticket {
			h := b.held[0]
			b.held[0] = heldEffect{} // lets go of its value
			b.held = b.held[1:]
			if h.ticket == 0 && !yield(h.effect) {
				return
			}
		}
	}
}

// Len is how many effects are held.
func (b *Barrier) Len() int { return len(b.held) }
