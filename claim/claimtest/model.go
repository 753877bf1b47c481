package claimtest

import (
	"fmt"
	"time"
)

type kind string

const (
	offer   kind = "offer"
	take    kind = "take"
	begin   kind = "begin"
	finish  kind = "finish"
	release kind = "release"
	look    kind = "look"
)

type outcome string

const (
	answered outcome = "ok"
	lapsed   outcome = "lapsed"
	unknown  outcome = "unknown"
)

// who is a session: when it was started, by the clock of the check. It is never
// renewed.
type who struct {
	number          int           // from 1
	started, around time.Duration // from the request to its answer
	timeout         time.Duration
}

// request is one operation on the key.
type request struct {
	kind
	who
	term    int64
	in      time.Duration // until it is ready; the hold of a begin
	idle    bool
	release bool

	call, back time.Duration
}

func (q request) String() string {
	s := fmt.Sprintf("%s by %d under %d, in %v", q.kind, q.number, q.term, q.in)
	if q.idle {
		s += " idle"
	}
	if q.release {
		s += " release"
	}
	return s
}

// reply is what the store answered.
type reply struct {
	outcome
	yes         bool // taken, started, accepted, there
	term        int64
	holder      int
	step        bool
	idle        bool
	interrupted bool
}

func (p reply) String() string {
	return fmt.Sprintf("%s %t, term %d of %d, in step %t, idle %t, interrupted %t", p.outcome, p.yes, p.term, p.holder, p.step, p.idle, p.interrupted)
}

// state is the key in the model. Times are the earliest that are possible.
type state struct {
	there       bool
	term        int64
	who         who // number 0 is nobody
	idle        bool
	ready       time.Duration
	offer       time.Duration // what was offered since the step began, if inStep
	inStep      bool
	step        bool
	until       time.Duration // the step's hold
	interrupted bool
}

// tolerance is what the store's clock and the check's may be apart.
const tolerance = 5 * time.Millisecond

// after returns the states in which the key may be after an operation that was
// answered so: none if it cannot have been.
func after(s state, in request, out reply) []any {
	if out.outcome == unknown {
		return s.either(in)
	}
	if out.outcome == lapsed {
		may := in.kind == take || in.kind == begin
		return only(s, may && in.back+tolerance >= in.started+in.timeout)
	}
	mine := s.who.number == in.number && s.term == in.term
	alive := in.call <= in.around+in.timeout+tolerance // may be
	switch in.kind {
	case offer:
		return only(s.offered(in), true)
	case take:
		if !out.yes {
			return only(s, alive)
		}
		ok := alive && out.term > s.term && s.takeable(in) && out.interrupted == (s.interrupted || s.step)
		return only(s.taken(in, out.term), ok)
	case begin:
		if !out.yes {
			return only(s, alive && (!mine || s.step))
		}
		return only(s.begun(in), alive && mine && !s.step)
	case finish:
		if !out.yes {
			return only(s, !mine)
		}
		return only(s.finished(in), mine)
	case release:
		if mine {
			return only(s.freed(), true)
		}
		return only(s, true)
	}
	ok := out.yes == s.there && out.term == s.term && out.holder == s.who.number && out.step == s.step &&
		out.interrupted == s.interrupted && (!s.there || out.idle == s.idle)
	return only(s, ok)
}

// either is what may be after a request whose answer is not known. A take is not
// among them: see contest.judge.
func (s state) either(in request) []any {
	mine := s.who.number == in.number && s.term == in.term
	out := []any{s}
	switch {
	case in.kind == offer:
		out = append(out, s.offered(in))
	case in.kind == begin && mine && !s.step:
		out = append(out, s.begun(in))
	case in.kind == finish && mine:
		out = append(out, s.finished(in))
	case in.kind == release && mine:
		out = append(out, s.freed())
	}
	return out
}

func only(s state, ok bool) []any {
	if !ok {
		return nil
	}
	return []any{s}
}

func (s state) offered(in request) state {
	at := in.call + in.in
	switch {
	case s.step && (!s.inStep || at < s.offer):
		s.offer, s.inStep = at, true
	case !s.step && (!s.there || s.idle || at < s.ready):
		s.there, s.idle, s.ready = true, false, at
	}
	return s
}

// takeable reports whether the key may be had at some moment of the request.
func (s state) takeable(in request) bool {
	if !s.there || s.idle || in.back+tolerance < s.ready {
		return false
	}
	if s.who.number == 0 {
		return true
	}
	return in.back+tolerance >= s.who.started+s.who.timeout && (!s.step || in.back+tolerance >= s.until)
}

func (s state) taken(in request, term int64) state {
	s.interrupted = s.interrupted || s.step
	s.who, s.term, s.step, s.until = in.who, term, false, 0
	return s
}

func (s state) begun(in request) state {
	s.step, s.until = true, in.call+in.in
	s.offer, s.inStep = 0, false
	return s
}

func (s state) finished(in request) state {
	s.step, s.interrupted, s.until = false, false, 0
	s.idle, s.ready = in.idle, in.call+in.in
	if s.inStep && (s.idle || s.offer < s.ready) {
		s.idle, s.ready = false, s.offer
	}
	s.offer, s.inStep = 0, false
	if in.release {
		s = s.freed()
	}
	return s
}

func (s state) freed() state {
	s.interrupted = s.interrupted || s.step
	s.who, s.step, s.until = who{}, false, 0
	return s
}
