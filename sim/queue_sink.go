package sim

import (
	"fmt"
	"strings"
	"time"

	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/lease"
)

// sink is the target itself. The judge's lock guards it, so that what it does and
// what the judge makes of it are one step.
type sink struct {
	world   *queueWorld
	dice    *dice
	batches map[string]*taken
	newest  map[string]int64 // term seen, by key
	last    map[string]int64 // sequence number of the last effect, by key
	down    time.Time        // refuses connections until then
}

// taken is what the sink knows of a batch, and what the judge does.
type taken struct {
	key     string
	seq     int64
	known   bool // by the sink itself: it has not forgotten it
	status  dispatch.Outcome
	decides time.Time
	waiting []bool // effects to come, one for each time that it was accepted: whether apart
	effects int
	rightly int // … of senders in their time
}

// longestRetryAfter is what the sink asks for at most.
const longestRetryAfter = 2 * time.Second

// poison tells batches that the sink refuses for good.
func poison(id string) bool { return strings.HasSuffix(id, "!") }

// submit takes a request that has arrived.
func (s *sink) submit(n *queueNode, a dispatch.Assignment) (dispatch.Answer, error) {
	j := s.world.judge
	j.mu.Lock()
	answer, err := s.arrives(n, a)
	j.trace("%s: %s %s (%d) of %s under %d, attempt %d → %s, %v", n.name, a.Work, a.ID, a.Seq, a.Key, a.Term, a.Attempt, answer.Outcome, err)
	j.mu.Unlock()
	s.works() // before it answers
	return answer, err
}

// works takes its time, as a slow target does.
func (s *sink) works() {
	if s.world.faulty() && s.dice.hit(0.1) {
		pause(s.dice.upTo(s.world.setup.Dispatch.SubmitTimeout / 3))
	}
}

func (s *sink) arrives(n *queueNode, a dispatch.Assignment) (dispatch.Answer, error) {
	setup, faulty := s.world.setup, s.world.faulty()
	if faulty && time.Now().Before(s.down) {
		return dispatch.Answer{}, fmt.Errorf("down: %w", lease.ErrUnavailable)
	}
	apart := s.world.judge.arrived(n, a)
	if setup.Compares && a.Term < s.newest[a.Key] {
		return dispatch.Answer{Outcome: dispatch.Busy, Code: 409, Detail: "an older term"}, nil
	}
	s.newest[a.Key] = max(s.newest[a.Key], a.Term)
	if faulty {
		switch {
		case s.dice.hit(0.05):
			return dispatch.Answer{Outcome: dispatch.Busy, Code: 429, Detail: "full", RetryAfter: s.dice.upTo(longestRetryAfter)}, nil
		case s.dice.hit(0.01):
			return dispatch.Answer{Outcome: dispatch.Misconfigured, Code: 404, Detail: "no such address"}, nil
		case s.dice.hit(0.02):
			return dispatch.Answer{Outcome: dispatch.Uncertain, Code: 502, Detail: "no upstream", RequestEnded: s.dice.hit(0.5)}, nil
		}
	}
	b := s.batches[a.ID]
	if b == nil {
		b = &taken{}
		s.batches[a.ID] = b
	}
	b.key, b.seq = a.Key, a.Seq
	if book := s.world.judge.batches[a.ID]; book != nil && book.last.Term == a.Term && book.last.Attempt == a.Attempt {
		book.unasked = book.asked <= a.Term
	}
	if !setup.Target.Deduplicates || !b.known {
		s.take(b, a, apart)
	}
	if faulty && s.dice.hit(0.02) {
		return dispatch.Answer{Outcome: dispatch.Uncertain, Code: 500, Detail: "half a body", RequestEnded: s.dice.hit(0.5)}, nil
	}
	return dispatch.Answer{Outcome: b.status, Code: 200, Detail: string(b.status), Link: "/" + a.ID}, nil
}

// take is what an arrival comes to: at once, or when the sink has decided.
func (s *sink) take(b *taken, a dispatch.Assignment, apart bool) {
	b.known = true
	switch {
	case s.dice.hit(s.world.setup.Decides):
		b.status, b.decides = dispatch.Accepted, time.Now().Add(s.dice.upTo(time.Second))
		b.waiting = append(b.waiting, apart)
	case poison(a.ID):
		b.status = dispatch.InvalidMessage
	default:
		b.status = dispatch.Done
		s.effect(b, a.ID, apart)
	}
}

// effect carries a batch out. The judge wants each once, and those of a key in
// order; what comes from senders past their time is counted apart.
func (s *sink) effect(b *taken, id string, apart bool) {
	j := s.world.judge
	if b.effects++; apart {
		return
	}
	if b.rightly++; b.rightly > 1 && !j.world.setup.Target.Resend {
		j.breach("%s took effect %d times", id, b.rightly)
	}
	if b.seq < s.last[b.key] {
		j.breach("%s (%d) of %s took effect after %d", id, b.seq, b.key, s.last[b.key])
	}
	s.last[b.key] = max(s.last[b.key], b.seq)
}

// asides are answers that say nothing about a batch that was asked for.
var asides = []dispatch.Outcome{dispatch.Uncertain, dispatch.Busy, dispatch.Misconfigured}

// ask tells what became of batches.
func (s *sink) ask(as []dispatch.Assignment) []dispatch.Answer {
	j := s.world.judge
	j.mu.Lock()
	defer j.mu.Unlock()
	faulty := s.world.faulty()
	if faulty && time.Now().Before(s.down) {
		return nil
	}
	var out []dispatch.Answer
	for _, a := range as {
		outcome := s.tells(a.ID)
		answer := dispatch.Answer{Outcome: outcome, Code: 200, Detail: string(outcome)}
		if faulty && s.dice.hit(0.05) {
			answer = dispatch.Answer{Outcome: asides[s.dice.n(len(asides))], Code: 503, Detail: "no upstream"}
		}
		j.told(a, answer.Outcome)
		j.trace("asked about %s under %d → %s", a.ID, a.Term, answer.Outcome)
		out = append(out, answer)
	}
	if faulty && s.dice.hit(0.02) {
		out = out[:len(out)-1]
	}
	return out
}

// tells decides what is due, and says how a batch stands.
func (s *sink) tells(id string) dispatch.Outcome {
	b := s.batches[id]
	if b == nil || !b.known {
		return dispatch.NotFound
	}
	if len(b.waiting) > 0 && !time.Now().Before(b.decides) {
		switch {
		case poison(id):
			b.status, b.waiting = dispatch.InvalidMessage, nil
		case b.status == dispatch.Accepted && s.dice.hit(0.5):
			b.status = dispatch.Executed
		default:
			for _, apart := range b.waiting {
				s.effect(b, id, apart)
			}
			b.status, b.waiting = dispatch.Done, nil
		}
	}
	return b.status
}

// restart makes the sink forget what a restart makes it forget: what it has not
// decided, and what it refused; of what it did, only a sink that does not
// recognise ids loses its memory.
func (s *sink) restart() {
	for _, b := range s.batches {
		b.waiting = nil
		if b.status != dispatch.Done || !s.world.setup.Target.Deduplicates {
			b.known = false
		}
	}
}
