package fault

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/understudy-ha/understudy/dispatch"
)

// The rules of queues.
const (
	Lost   Rule = "lost"
	Ghost  Rule = "ghost"
	Commit Rule = "commit"
	Order  Rule = "order"
	Effect Rule = "effect"
	Twice  Rule = "twice"
	Blind  Rule = "blind"
	Shown  Rule = "shown"
	Early  Rule = "early"
)

// Sent is a batch of a user's transaction.
type Sent struct {
	ID, Key string
	// By is who sent it, one after the other in the order of N.
	By, N int
	Fate  Fate
	// NotBefore is when it may be sent at the earliest; zero: at once, in the order of N.
	NotBefore time.Time
}

// Fate of a transaction.
type Fate int

// Fates.
const (
	Committed  Fate = iota
	RolledBack      // and never to be seen
	InDoubt         // its COMMIT got no answer
)

// Arrival is a request that reached the target, in the order in which the target
// acted. Of ledgers, only those that had an effect are known, without a term.
type Arrival struct {
	ID   string
	Term int64
	At   time.Time
	// Effect: it was carried out.
	Effect bool
	// Refused: the target answered that it had not taken it.
	Refused bool
}

// QueueEvidence is what [JudgeQueue] looks at.
type QueueEvidence struct {
	Sent     []Sent
	Records  []dispatch.Record // whole, of all batches of the queue
	Arrivals []Arrival
	Target   dispatch.Semantics
	// Second window; see package claim.
	Second time.Duration
}

// QueueVerdict is what it says.
type QueueVerdict struct {
	Violations []Violation
	Messages   int // that were committed
	States     map[dispatch.State]int
	Arrivals   int
	// Again are batches that reached the target more than once, Apart requests of
	// senders that were past their second window.
	Again, Apart int
	Attempts     int // the most that a batch needed
}

// JudgeQueue looks for broken rules.
func JudgeQueue(e QueueEvidence) QueueVerdict {
	j := queueJudge{QueueEvidence: e, records: map[string]dispatch.Record{}, effects: map[string]int{}, carriedOut: map[string]int{}}
	j.verdict = QueueVerdict{States: map[dispatch.State]int{}, Arrivals: len(e.Arrivals)}
	for _, r := range e.Records {
		j.records[r.ID] = r
		j.verdict.States[r.State]++
		j.verdict.Attempts = max(j.verdict.Attempts, r.Attempts)
	}
	j.arrivals()
	j.sent()
	j.order()
	return j.verdict
}

type queueJudge struct {
	QueueEvidence
	verdict QueueVerdict
	records map[string]dispatch.Record
	effects map[string]int // of senders in their time, by batch
	// carriedOut counts those of all senders.
	carriedOut map[string]int
}

func (j *queueJudge) add(rule Rule, key, format string, args ...any) {
	j.verdict.Violations = append(j.verdict.Violations, Violation{rule, key, fmt.Sprintf(format, args...)})
}

// sent: what was committed is there, in the order of its sender, and what was
// rolled back is not.
func (j *queueJudge) sent() {
	type line struct {
		key string
		by  int
	}
	last := map[line]Sent{}
	for _, s := range j.Sent {
		r, there := j.records[s.ID]
		switch {
		case s.Fate == Committed && !there:
			j.add(Lost, s.Key, "%s was committed, and is not there", s.ID)
		case s.Fate == RolledBack && there:
			j.add(Ghost, s.Key, "%s was rolled back, and is there as %s", s.ID, r.State)
		}
		if !there {
			continue
		}
		j.verdict.Messages++
		if !s.NotBefore.IsZero() {
			continue
		}
		at := line{s.Key, s.By}
		if before, ok := last[at]; ok && j.records[before.ID].Seq >= r.Seq && !dispatch.WasRetried(j.records[before.ID].Trail) {
			j.add(Commit, s.Key, "%s is number %d, and %s, which was committed before it, number %d", s.ID, r.Seq, before.ID, j.records[before.ID].Seq)
		}
		last[at] = s
	}
}

// arrivals: nothing reaches the target twice that must not, and effects come in
// order.
func (j *queueJudge) arrivals() {
	reached, last := map[string]int{}, map[string]dispatch.Record{}
	sent, took := map[string]Arrival{}, map[string]Arrival{} // the last request for a batch, and the last that took effect
	newest := map[string]int64{}                             // the term under which a batch was sent last
	due := map[string]time.Time{}
	for _, s := range j.Sent {
		due[s.ID] = s.NotBefore
	}
	for _, a := range j.Arrivals {
		if !a.At.IsZero() && a.At.Before(due[a.ID]) { // a ledger tells what took effect, not when it came
			j.add(Early, "", "%s reached the target %v before its time", a.ID, due[a.ID].Sub(a.At))
		}
		if a.Effect {
			j.carriedOut[a.ID]++
		}
		r, there := j.records[a.ID]
		if !there {
			j.add(Ghost, "", "%s reached the target, and is not in the store", a.ID)
			continue
		}
		if reached[a.ID]++; reached[a.ID] == 2 {
			j.verdict.Again++
		}
		if j.apart(r, a, newest[a.ID]) {
			j.verdict.Apart++
			continue
		}
		newest[a.ID] = max(newest[a.ID], a.Term)
		before, again := sent[a.ID]
		if again && !before.Refused && !j.Target.Resend && j.Target.Forgets && !j.sentAgain(r, before, a) {
			j.add(Blind, r.Key, "%s reached the target again, under term %d, and nobody knew what had become of it", a.ID, a.Term)
		}
		sent[a.ID] = a
		if !a.Effect {
			continue
		}
		if j.effects[a.ID]++; j.effects[a.ID] > 1 && (j.Target.Deduplicates || !j.Target.Resend && !j.sentAgain(r, took[a.ID], a)) {
			j.add(Twice, r.Key, "%s took effect %d times%s", a.ID, j.effects[a.ID], j.story(r))
		}
		took[a.ID] = a
		if before := last[r.Key]; before.Seq > r.Seq {
			j.add(Effect, r.Key, "%s (%d) took effect after %s (%d)%s%s", r.ID, r.Seq, before.ID, before.Seq, j.story(r), j.story(before))
		}
		last[r.Key] = r
	}
}

// sentAgain reports whether an operator had a batch sent again after one of its requests and before another. What took effect
// at a ledger has no time: there each such act allows one effect more.
func (j *queueJudge) sentAgain(r dispatch.Record, before, a Arrival) bool {
	acts := 0
	for _, step := range r.Trail {
		if !step.Action.Retries() {
			continue
		}
		acts++
		if step.At.After(before.At) && !step.At.After(a.At) {
			return true
		}
	}
	// A trail that is full has lost entries. Of such acts it keeps the latest alone, so that it may have been another one.
	full := len(r.Trail) >= dispatch.MaxTrail
	return acts > 0 && (full || a.At.IsZero() && j.carriedOut[a.ID] <= 1+acts)
}

// story is what the store and the target know of a batch, a line each.
func (j *queueJudge) story(r dispatch.Record) string {
	var out strings.Builder
	for _, step := range r.Trail {
		fmt.Fprintf(&out, "\n\t%s %s %s under term %d", step.At.Format(time.StampMicro), r.ID, step.State, step.Term)
	}
	for _, a := range j.Arrivals {
		if a.ID == r.ID {
			fmt.Fprintf(&out, "\n\t%s %s arrived under term %d, effect %t, refused %t", a.At.Format(time.StampMicro), r.ID, a.Term, a.Effect, a.Refused)
		}
	}
	return out.String()
}

// apart tells that a request came from a sender past its second window, whom
// nobody can recall: its batch had been started, or sent, under a newer term.
func (j *queueJudge) apart(r dispatch.Record, a Arrival, newest int64) bool {
	var begun time.Time
	for _, step := range r.Trail {
		if step.At.Before(a.At) {
			newest = max(newest, step.Term)
		}
		if step.Term == a.Term && begun.IsZero() {
			begun = step.At
		}
	}
	return a.Term > 0 && a.Term < newest && !begun.IsZero() && a.At.After(begun.Add(j.Second))
}

// order: of each key, the next batch starts when the one before has ended, under
// terms that do not fall; each has ended, or shown to a person, or behind one that
// is; and what is over is so truly.
func (j *queueJudge) order() {
	keys := map[string][]dispatch.Record{}
	for _, r := range j.Records {
		keys[r.Key] = append(keys[r.Key], r)
	}
	for _, key := range sortedKeys(keys) {
		line := keys[key]
		slices.SortFunc(line, func(a, b dispatch.Record) int { return cmp.Compare(a.Seq, b.Seq) })
		var before dispatch.Record
		blocked := false
		for _, r := range line {
			if r.Seq == before.Seq {
				j.add(Order, key, "%s and %s both have number %d", before.ID, r.ID, r.Seq)
			}
			first := begun(r)
			switch {
			case before.ID == "" || first.IsZero():
			case before.Ended.IsZero() || first.Before(before.Ended):
				j.add(Order, key, "%s (%d) was begun at %v, and %s (%d) ended at %v", r.ID, r.Seq, first, before.ID, before.Seq, before.Ended)
			case r.Term != 0 && r.Term < before.Term:
				j.add(Order, key, "%s (%d) was sent under term %d, after %s under %d", r.ID, r.Seq, r.Term, before.ID, before.Term)
			}
			blocked = blocked || r.Blocks
			if !blocked && !r.State.IsFinal() {
				j.add(Shown, key, "%s is %s, and waits for nobody", r.ID, r.State)
			}
			j.true(r)
			before = r
		}
	}
}

// begun is when a batch was first started; zero when it never was.
func begun(r dispatch.Record) time.Time {
	for _, step := range r.Trail {
		if step.State == dispatch.Submitting {
			return step.At
		}
	}
	return r.Begun
}

// true: what is committed took effect, and what is cancelled did not, nor what was given up where the target can be asked
// and does not forget. A person may skip what took effect.
func (j *queueJudge) true(r dispatch.Record) {
	effects := j.carriedOut[r.ID]
	if r.State == dispatch.Committed && effects == 0 {
		j.add(Lost, r.Key, "%s is recorded as committed, and never took effect", r.ID)
	}
	if (r.State == dispatch.Cancelled || r.State == dispatch.Invalid) && effects > 0 {
		j.add(Ghost, r.Key, "%s is recorded as %s, and took effect", r.ID, r.State)
	}
	skipped := slices.ContainsFunc(r.Trail, func(e dispatch.TrailEntry) bool { return e.Action == dispatch.Skip })
	if r.State == dispatch.Failed && j.effects[r.ID] > 0 && j.Target.HasStatus && !j.Target.Forgets && !skipped {
		j.add(Ghost, r.Key, "%s was given up, and took effect, as the target could have said%s", r.ID, j.story(r))
	}
}
