package leasetest

import (
	"fmt"
	"time"

	"github.com/understudy-ha/understudy/lease"
)

// The model of one lease and the sessions that fight for it, as one object that
// changes in single steps. Time enters as bounds: when a session can at the
// earliest, and must at the latest, have lapsed.

type kind int

const (
	start kind = iota
	renew
	end
	acquire
	release
	get
)

type outcome int

const (
	done    outcome = iota
	lapsed          // ErrLapsed
	refused         // ErrHeld, ErrNotHeld
	unknown         // ErrUnknown: applied or not, now or later
	notSent         // ErrUnavailable: not applied
	odd             // an error that the port does not know
)

// request is the input of one operation.
type request struct {
	kind   kind
	who    string // session
	number int    // its place in the state
	seen   lease.Seen
	waited bool
	call   time.Duration
	back   time.Duration // when the answer was there
}

func (r request) String() string {
	name := [...]string{"start", "renew", "end", "acquire", "release", "get"}[r.kind]
	if r.kind == acquire || r.kind == release {
		return fmt.Sprintf("%s for #%d, seen %d %.4s %d, waited %t", name, r.number, r.seen.Term, r.seen.Session, r.seen.Seq, r.waited)
	}
	return fmt.Sprintf("%s for #%d (%.4s)", name, r.number, r.who)
}

// reply is the output of one operation.
type reply struct {
	outcome outcome
	seen    lease.Seen // the lease, of get and acquire
	ended   bool
	seq     int64 // of start and renew
}

func (r reply) String() string {
	name := [...]string{"ok", "lapsed", "refused", "unknown", "not sent", "odd"}[r.outcome]
	return fmt.Sprintf("%s, lease %d %.4s %d ended %t, seq %d", name, r.seen.Term, r.seen.Session, r.seen.Seq, r.ended, r.seq)
}

// maxSessions is how many sessions one contest may have.
const maxSessions = 48

// state is comparable: the checker merges equal ones.
type state struct {
	term    int64
	open    bool // the term is larger than that, but nobody has seen it
	holder  int  // place of the session, from 1; 0 is nobody
	session [maxSessions]sessionState
}

type sessionState struct {
	id    string // "" before it is started
	seq   int64
	ended bool
	// The last renewal was made between these.
	after, before time.Duration
}

// grain is how coarse a store's clock may be.
const grain = 2 * time.Millisecond

func (s sessionState) canHaveLapsed(at, timeout time.Duration) bool {
	return at >= s.after+timeout-grain
}

func (s sessionState) mustHaveLapsed(at, timeout time.Duration) bool {
	return at >= s.before+timeout+grain
}

// step returns the states in which the request may leave the store, given its
// reply: none if it cannot have replied so.
func step(s state, in request, out reply, timeout time.Duration) []any {
	if out.outcome != unknown {
		return apply(s, in, out, timeout)
	}
	next := []any{s} // never applied
	switch in.kind {
	case renew:
		n := s.session[in.number]
		next = append(next, apply(s, in, reply{outcome: lapsed}, timeout)...)
		next = append(next, apply(s, in, reply{outcome: done, seq: n.seq + 1}, timeout)...)
	case start:
		next = append(next, apply(s, in, reply{outcome: done, seq: 1}, timeout)...)
	case end, release:
		next = append(next, apply(s, in, reply{outcome: done}, timeout)...)
	case acquire:
		// The new term is not known: whoever names or is shown it next tells.
		guess := lease.Seen{Term: s.term + 1, Session: in.who, Seq: s.session[in.number].seq}
		for _, taken := range apply(s, in, reply{outcome: done, seen: guess}, timeout) {
			took := taken.(state)
			took.open = took.open || took.term != s.term
			took.term = s.term
			next = append(next, took)
		}
	}
	return next
}

// settle fills in a term that was not known, from what names it.
func (s *state) settle(in request, out reply) {
	holder := s.seen().Session
	switch {
	case !s.open:
		return
	case in.seen.Term > s.term && (in.seen.Session == holder || in.kind == release && in.who == holder):
		s.term, s.open = in.seen.Term, false
	case out.seen.Term > s.term && out.seen.Session == holder:
		s.term, s.open = out.seen.Term, false
	}
}

func apply(s state, in request, out reply, timeout time.Duration) []any {
	s.settle(in, out)
	me := &s.session[in.number]
	switch in.kind {
	case start:
		*me = sessionState{id: in.who, seq: out.seq, after: in.call, before: in.back}
		return one(s, out.outcome == done)
	case renew:
		if out.outcome == lapsed {
			ok := me.ended || me.canHaveLapsed(in.back, timeout)
			me.ended = true
			return one(s, ok)
		}
		ok := out.outcome == done && !me.ended && !me.mustHaveLapsed(in.call, timeout) && out.seq > me.seq
		me.seq, me.after, me.before = out.seq, in.call, in.back
		return one(s, ok)
	case end:
		over := me.ended
		me.ended = true
		next := one(s, out.outcome == done)
		if s.holder == in.number+1 {
			s.holder = 0
			freed := one(s, out.outcome == done)
			if !over {
				return freed
			}
			next = append(next, freed...) // a store may leave it to whoever takes it
		}
		return next
	case release:
		holds := s.holder == in.number+1 && s.term == in.seen.Term
		if holds && out.outcome == done {
			s.holder = 0
			return one(s, true)
		}
		return one(s, !holds && out.outcome == refused)
	case get:
		return one(s, out.outcome == done && s.shows(out))
	default:
		return take(s, in, out, timeout)
	}
}

// take is the rule for claims.
func take(s state, in request, out reply, timeout time.Duration) []any {
	me := &s.session[in.number]
	if out.outcome == lapsed {
		return one(s, me.ended || me.canHaveLapsed(in.back, timeout))
	}
	if out.outcome == done && (me.ended || me.mustHaveLapsed(in.call, timeout)) {
		return nil
	}
	if s.holder == in.number+1 {
		return one(s, out.outcome == done && s.shows(out))
	}
	matches := in.seen == s.seen()
	may, must := matches, matches // free, unless someone holds it
	if s.holder != 0 {
		h := s.session[s.holder-1]
		may = matches && (in.waited || h.ended || h.canHaveLapsed(in.back, timeout))
		must = matches && (in.waited || h.ended || h.mustHaveLapsed(in.call, timeout))
	}
	if out.outcome == refused {
		return one(s, !must && s.shows(out))
	}
	if !may || out.outcome != done || out.seen.Term <= s.term || out.seen.Session != in.who || out.seen.Seq != me.seq {
		return nil
	}
	if s.holder != 0 {
		s.session[s.holder-1].ended = true
	}
	s.term, s.holder = out.seen.Term, in.number+1
	return one(s, true)
}

func (s state) seen() lease.Seen {
	if s.holder == 0 {
		return lease.Seen{Term: s.term}
	}
	h := s.session[s.holder-1]
	return lease.Seen{Term: s.term, Session: h.id, Seq: h.seq}
}

// shows reports whether the lease stands as the reply says.
func (s state) shows(out reply) bool {
	return out.seen == s.seen() && out.ended == (s.holder != 0 && s.session[s.holder-1].ended)
}

func one(s state, ok bool) []any {
	if !ok {
		return nil
	}
	return []any{s}
}
