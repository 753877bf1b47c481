package dispatchtest

import (
	"fmt"
	"strings"
	"time"

	"github.com/understudy-ha/understudy/dispatch"
)

type kind string

const (
	add     kind = "add"
	take    kind = "take"
	turn    kind = "turn"
	release kind = "release"
)

type outcome string

const (
	answered outcome = "ok"
	lapsed   outcome = "lapsed"
	notSent  outcome = "not sent"
	unknown  outcome = "unknown"
)

// who is a session: when it was started, by the clock of the check. It is never
// renewed.
type who struct {
	number          int
	started, around time.Duration // from the request to its answer
	timeout         time.Duration
}

// request is one operation on one key.
type request struct {
	kind
	who
	term int64
	// add: the ids, and where they ended up.
	ids     string
	first   int64
	n       int64
	nowhere bool // of an unknown outcome, and never stored
	// turn
	settles bool
	result  dispatch.Result
	begins  bool

	call, back time.Duration
}

func (q request) String() string {
	switch q.kind {
	case add:
		return fmt.Sprintf("add %s", q.ids)
	case turn:
		s := fmt.Sprintf("turn of %d under %d:", q.number, q.term)
		if q.settles {
			s += fmt.Sprintf(" %d (term %d) is %s, %s;", q.result.Seq, q.result.Term, q.result.State, q.result.After)
		}
		if q.begins {
			s += " begin"
		}
		return s
	}
	return fmt.Sprintf("%s by %d under %d", q.kind, q.number, q.term)
}

// placed tells an addition where its messages ended up.
func (q request) placed(_ string, places map[string]place) request {
	ids := strings.Fields(strings.Trim(q.ids, "[]"))
	q.n = int64(len(ids))
	for i, id := range ids {
		at, ok := places[id]
		switch {
		case !ok:
			q.nowhere = true
		case i == 0:
			q.first = at.seq
		case at.seq != q.first+int64(i):
			q.first = -1 // not one behind the other: no order explains it
		}
	}
	return q
}

// reply is what the store answered.
type reply struct {
	outcome
	term        int64 // take
	interrupted bool
	accepted    bool // turn
	begun       bool
	todo        dispatch.Work
	seq         int64
	attempt     int
	standing    dispatch.Holding
}

func (p reply) String() string {
	s := string(p.outcome)
	if p.term != 0 {
		s += fmt.Sprintf(" term %d", p.term)
	}
	if p.interrupted {
		s += " interrupted"
	}
	if p.accepted {
		s += " accepted"
	}
	if p.begun {
		s += fmt.Sprintf(" %s %d attempt %d", p.todo, p.seq, p.attempt)
	}
	return s + " " + string(p.standing)
}

// state is a key in the model.
type state struct {
	last int64 // messages that were added
	next int64 // messages that have ended; the head is the next one
	term int64
	held bool
	who  who
	idle bool // never ready until something is added; so starts every key
	used bool // something was ever added
	// ready is when the key is ready, at the earliest.
	ready time.Duration
	// A step, and when it was started, at the earliest.
	step        bool
	begun       time.Duration
	interrupted bool
	head        dispatch.State // "" is queued
	attempts    int
}

// tolerance is what the store's clock and the check's may differ by in a second.
const tolerance = 5 * time.Millisecond

// step1 returns the states in which the key may be after an operation that was
// answered so: none if it cannot have been.
func step1(s state, in request, out reply, l Concurrent) []any {
	switch in.kind {
	case add:
		return s.added(in, out)
	case take:
		return s.taken(in, out, l)
	case release:
		next := s
		if s.mine(in, in.term) {
			next.free(in.call)
		}
		if out.outcome == unknown {
			return []any{s, next}
		}
		return []any{next}
	}
	return s.turned(in, out)
}

func (s state) mine(in request, term int64) bool {
	return s.held && s.who.number == in.number && s.term == term
}

func (s *state) free(at time.Duration) {
	s.interrupted = s.interrupted || s.step
	s.held, s.step, s.who = false, false, who{}
	s.ready = max(s.ready, at)
}

func (s state) added(in request, out reply) []any {
	if out.outcome == unknown && in.nowhere {
		return []any{s}
	}
	if in.nowhere || in.first != s.last+1 {
		return nil
	}
	s.last += in.n
	if s.idle || !s.used {
		s.idle, s.used, s.ready = false, true, in.call
	}
	return []any{s}
}

func (s state) taken(in request, out reply, l Concurrent) []any {
	if s.idle || !s.used || out.term <= s.term || in.back+tolerance < s.ready {
		return nil
	}
	if s.held {
		// Its holder must be able to have lapsed, and its step's window to be over.
		if in.back+tolerance < s.who.started+s.who.timeout || s.step && in.back+tolerance < s.begun+l.Window {
			return nil
		}
	}
	if out.interrupted != (s.interrupted || s.step) {
		return nil
	}
	s.interrupted = s.interrupted || s.step
	s.held, s.step, s.who, s.term = true, false, in.who, out.term
	return []any{s}
}

// turned is a result, a begin, or both.
func (s state) turned(in request, out reply) (states []any) {
	surelyDead := in.call > in.around+in.timeout+tolerance
	surelyAlive := in.back+tolerance < in.started+in.timeout
	if out.outcome == unknown {
		states = append(states, s)
	}
	for _, alive := range []bool{true, false} {
		if alive && surelyDead || !alive && surelyAlive {
			continue
		}
		next, would := s.turn(in, alive)
		if out.outcome == unknown || would.matches(out, in) {
			states = append(states, next)
		}
	}
	return states
}

// matches reports whether the answer is what it would be.
func (p reply) matches(out reply, in request) bool {
	if in.settles && in.begins && p.standing == dispatch.InProgress && !p.begun && in.result.After == dispatch.Hold && out.todo == dispatch.Poll {
		return true // it may be asked for again at once
	}
	return p.accepted == out.accepted && p.begun == out.begun && p.todo == out.todo && p.seq == out.seq &&
		p.attempt == out.attempt && p.standing == out.standing
}

// turn is the rule.
func (s state) turn(in request, alive bool) (state, reply) {
	var p reply
	given := false
	if in.settles && s.mine(in, in.result.Term) && in.result.Seq == s.next+1 && s.next < s.last {
		p.accepted = true
		given = s.settle(in)
	}
	mine := s.mine(in, in.term)
	if in.begins && mine && alive && !s.step {
		p.begun = true
		switch {
		case s.next == s.last:
			p.begun, given = false, true
			s.idle = true
			s.free(in.call)
		case s.head == dispatch.Pending && p.accepted:
			p.begun = false
		case s.head == dispatch.Pending:
			p.todo = dispatch.Poll
		case s.head == dispatch.Unknown || s.interrupted:
			p.todo, s.head = dispatch.Resolve, dispatch.Unknown
			s.step, s.begun = true, in.call
		default:
			p.todo = dispatch.Send
			s.attempts++
			s.step, s.begun = true, in.call
		}
		if p.begun {
			p.seq, p.attempt = s.next+1, s.attempts
		}
	}
	switch {
	case !alive:
		p.standing = dispatch.Lost
	case given && in.term == s.term:
		p.standing = dispatch.Released
	case !s.mine(in, in.term):
		p.standing = dispatch.Lost
	case s.step || s.head == dispatch.Pending:
		p.standing = dispatch.InProgress
	default:
		p.standing = dispatch.Ready
	}
	return s, p
}

// settle records a result that counts, and reports whether the key is released.
func (s *state) settle(in request) (given bool) {
	s.step, s.interrupted = false, false
	s.head, s.attempts = in.result.State, in.result.Attempt
	switch in.result.After {
	case dispatch.Next:
		s.next++
		s.head, s.attempts = "", 0
		if s.next == s.last {
			s.idle = true
			s.free(in.call)
			return true
		}
	case dispatch.RetryLater:
		s.free(in.call)
		s.ready = in.call + in.result.Wait
		return true
	}
	return false
}
