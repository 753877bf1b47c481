package fault_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/fault"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func at(second int) time.Time { return noon.Add(time.Duration(second) * time.Second) }

// record is a batch that was started and ended at the given seconds.
func record(id string, seq, term int64, begun, ended int) dispatch.Record {
	r := dispatch.Record{Message: dispatch.Message{Queue: "q", Key: "k", ID: id}, Seq: seq, State: dispatch.Committed,
		Term: term, Attempts: 1, Begun: at(begun), Ended: at(ended)}
	r.Trail = []dispatch.TrailEntry{{At: at(begun), State: dispatch.Submitting, Term: term}, {At: at(ended), State: r.State, Term: term}}
	return r
}

// orderly is evidence that breaks no rule: three batches, the second of which an
// instance that died had sent already, at a target that is never sent to blindly.
func orderly() fault.QueueEvidence {
	second := record("b", 2, 20, 3, 9)
	second.Attempts, second.Trail = 1, []dispatch.TrailEntry{
		{At: at(3), State: dispatch.Submitting, Term: 10}, {At: at(8), State: dispatch.Unknown, Term: 20}, {At: at(9), State: dispatch.Committed, Term: 20}}
	return fault.QueueEvidence{
		Sent: []fault.Sent{{ID: "a", Key: "k", N: 1}, {ID: "x", Key: "k", N: 2, Fate: fault.RolledBack}, {ID: "b", Key: "k", N: 3},
			{ID: "c", Key: "k", N: 4}, {ID: "y", Key: "k", N: 5, Fate: fault.InDoubt}},
		Records: []dispatch.Record{record("a", 1, 10, 1, 2), second, record("c", 3, 20, 10, 11)},
		Arrivals: []fault.Arrival{{ID: "a", Term: 10, At: at(1), Effect: true}, {ID: "b", Term: 10, At: at(3), Effect: true},
			{ID: "c", Term: 20, At: at(10), Refused: true}, {ID: "c", Term: 20, At: at(10), Effect: true}},
		Target: dispatch.Semantics{HasStatus: true, Forgets: true},
		Second: 4 * time.Second,
	}
}

// again is what an operator did with the last batch, and requests for it after that which the target had, at the given seconds.
func again(e *fault.QueueEvidence, a dispatch.Action, act int, requests ...int) {
	e.Records[2].Trail = append(e.Records[2].Trail, dispatch.TrailEntry{At: at(act), State: dispatch.Queued, Term: 20, Action: a})
	for _, second := range requests {
		e.Arrivals = append(e.Arrivals, fault.Arrival{ID: "c", Term: 21, At: at(second), Effect: true})
	}
}

// untimed takes from evidence what a ledger does not tell.
func untimed(e *fault.QueueEvidence) {
	e.Arrivals = slices.DeleteFunc(e.Arrivals, func(a fault.Arrival) bool { return !a.Effect })
	for i, a := range e.Arrivals {
		e.Arrivals[i] = fault.Arrival{ID: a.ID, Effect: true}
	}
}

// TestFaultQueueJudgeCatches shows the judge one broken queue after the other.
func TestFaultQueueJudgeCatches(t *testing.T) {
	for _, c := range []struct {
		name  string
		spoil func(e *fault.QueueEvidence)
		want  []fault.Rule
	}{
		{"nothing wrong", func(*fault.QueueEvidence) {}, nil},
		{"scheduled, behind one that was committed later", func(e *fault.QueueEvidence) {
			e.Sent[2].N, e.Sent[3].N, e.Sent[3].NotBefore = 4, 3, at(10)
			e.Sent[2], e.Sent[3] = e.Sent[3], e.Sent[2]
		}, nil},
		{"sent before its time", func(e *fault.QueueEvidence) { e.Sent[0].NotBefore = at(2) }, []fault.Rule{fault.Early}},
		{"a committed batch is not there", func(e *fault.QueueEvidence) {
			e.Sent = append(e.Sent, fault.Sent{ID: "d", Key: "k", N: 6})
		}, []fault.Rule{fault.Lost}},
		{"a batch that was rolled back is there", func(e *fault.QueueEvidence) { e.Sent[0].Fate = fault.RolledBack }, []fault.Rule{fault.Ghost}},
		{"a batch that nobody enqueued is delivered", func(e *fault.QueueEvidence) {
			e.Arrivals = append(e.Arrivals, fault.Arrival{ID: "x", Term: 20, At: at(12), Effect: true})
		}, []fault.Rule{fault.Ghost}},
		{"recorded as committed, without effect", func(e *fault.QueueEvidence) { e.Arrivals[0].Effect = false }, []fault.Rule{fault.Lost}},
		{"recorded as invalid, with an effect", func(e *fault.QueueEvidence) { e.Records[0].State = dispatch.Invalid }, []fault.Rule{fault.Ghost}},
		{"given up, and the target would have said that it has it", func(e *fault.QueueEvidence) {
			e.Target, e.Records[0].State = dispatch.Semantics{HasStatus: true}, dispatch.Failed
		}, []fault.Rule{fault.Ghost}},
		{"… and a person skipped it", func(e *fault.QueueEvidence) {
			e.Target, e.Records[0].State = dispatch.Semantics{HasStatus: true}, dispatch.Failed
			e.Records[0].Trail = append(e.Records[0].Trail, dispatch.TrailEntry{At: at(2), State: dispatch.Failed, Action: dispatch.Skip})
		}, nil},
		{"not the order of commits", func(e *fault.QueueEvidence) {
			e.Sent[2].N, e.Sent[3].N = 4, 3
			e.Sent[2], e.Sent[3] = e.Sent[3], e.Sent[2]
		}, []fault.Rule{fault.Commit}},
		{"… but a person sent it again, at the end of its key", func(e *fault.QueueEvidence) {
			e.Sent[2].N, e.Sent[3].N = 4, 3
			e.Sent[2], e.Sent[3] = e.Sent[3], e.Sent[2]
			again(e, dispatch.Retry, 10)
		}, nil},
		{"a number is given twice", func(e *fault.QueueEvidence) { e.Records[2].Seq = 2 }, []fault.Rule{fault.Commit, fault.Order}},
		{"two in flight", func(e *fault.QueueEvidence) { e.Records[2].Trail[0].At = at(8) }, []fault.Rule{fault.Order}},
		{"the next begins while one waits", func(e *fault.QueueEvidence) {
			e.Records[1].State, e.Records[1].Ended, e.Records[1].Blocks = dispatch.Unknown, time.Time{}, true
		}, []fault.Rule{fault.Order}},
		{"terms fall", func(e *fault.QueueEvidence) { e.Records[2].Term = 15 }, []fault.Rule{fault.Order}},
		{"one waits unseen", func(e *fault.QueueEvidence) {
			e.Records[2].State, e.Records[2].Ended = dispatch.Delayed, time.Time{}
		}, []fault.Rule{fault.Shown}},
		{"one waits for a person", func(e *fault.QueueEvidence) {
			e.Records[2].State, e.Records[2].Ended, e.Records[2].Blocks = dispatch.Unknown, time.Time{}, true
		}, nil},
		{"sent again blindly", func(e *fault.QueueEvidence) {
			e.Arrivals = append(e.Arrivals, fault.Arrival{ID: "c", Term: 20, At: at(11), Refused: true})
		}, []fault.Rule{fault.Blind}},
		{"sent again by a person", func(e *fault.QueueEvidence) { again(e, dispatch.RetryUnknown, 11, 12) }, nil},
		{"… who did so once, and it was sent twice", func(e *fault.QueueEvidence) {
			again(e, dispatch.RetryUnknown, 11, 12, 13)
		}, []fault.Rule{fault.Blind, fault.Twice}},
		{"… after it was sent again", func(e *fault.QueueEvidence) {
			again(e, dispatch.RetryUnknown, 13, 12)
		}, []fault.Rule{fault.Blind, fault.Twice}},
		{"… and refused before it is taken", func(e *fault.QueueEvidence) {
			again(e, dispatch.Retry, 11, 12, 13)
			e.Arrivals[4].Effect, e.Arrivals[4].Refused = false, true
		}, nil},
		{"… of whose acts the trail has the latest alone", func(e *fault.QueueEvidence) {
			again(e, dispatch.RetryUnknown, 13, 12, 14)
			for len(e.Records[2].Trail) < dispatch.MaxTrail {
				e.Records[2].Trail = append(e.Records[2].Trail, dispatch.TrailEntry{At: at(15), State: dispatch.Delayed, Term: 21})
			}
		}, nil},
		{"skipped by a person, and sent again", func(e *fault.QueueEvidence) {
			again(e, dispatch.Skip, 11, 12)
		}, []fault.Rule{fault.Blind, fault.Twice}},
		{"a ledger, sent again by a person", func(e *fault.QueueEvidence) { again(e, dispatch.RetryUnknown, 11, 12); untimed(e) }, nil},
		{"… who did so once, and it took effect twice more", func(e *fault.QueueEvidence) {
			again(e, dispatch.RetryUnknown, 11, 12, 13)
			untimed(e)
		}, []fault.Rule{fault.Blind, fault.Twice}},
		{"… who skipped it", func(e *fault.QueueEvidence) {
			again(e, dispatch.Skip, 11, 12)
			untimed(e)
		}, []fault.Rule{fault.Blind, fault.Twice}},
		{"twice at a target that recognises ids", func(e *fault.QueueEvidence) {
			e.Target = dispatch.Semantics{Resend: true, Deduplicates: true}
			e.Arrivals = append(e.Arrivals, fault.Arrival{ID: "c", Term: 20, At: at(11), Effect: true})
		}, []fault.Rule{fault.Twice}},
		{"out of order at the target", func(e *fault.QueueEvidence) {
			e.Arrivals[1], e.Arrivals[3] = e.Arrivals[3], e.Arrivals[1]
			e.Arrivals = append(e.Arrivals[:2], e.Arrivals[3])
		}, []fault.Rule{fault.Effect}},
		{"the deposed sends within its second window", func(e *fault.QueueEvidence) {
			e.Records[1].Trail[1].At = at(5)
			e.Arrivals = append(e.Arrivals, fault.Arrival{ID: "b", Term: 10, At: at(6), Effect: true})
		}, []fault.Rule{fault.Blind, fault.Twice, fault.Effect}},
		{"past it, and the store does not know yet of its successor's", func(e *fault.QueueEvidence) {
			e.Target = dispatch.Semantics{HasStatus: true}
			e.Records[1].Trail[1].Term, e.Records[1].Trail[2].At, e.Records[1].Ended = 10, at(13), at(13)
			e.Records[2] = record("c", 3, 20, 14, 15)
			e.Arrivals[1] = fault.Arrival{ID: "b", Term: 20, At: at(8), Effect: true}
			e.Arrivals = slices.Insert(e.Arrivals, 2, fault.Arrival{ID: "b", Term: 10, At: at(12), Effect: true})
		}, nil},
		{"… and past it", func(e *fault.QueueEvidence) {
			e.Arrivals = append(e.Arrivals, fault.Arrival{ID: "b", Term: 10, At: at(12), Effect: true})
		}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := orderly()
			c.spoil(&e)
			v := fault.JudgeQueue(e)
			var got []fault.Rule
			for _, violation := range v.Violations {
				got = append(got, violation.Rule)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("rules broken (-want +got):\n%s\n%v", diff, v.Violations)
			}
		})
	}
	if v := fault.JudgeQueue(orderly()); v.Messages != 3 || v.Again != 1 || v.Apart != 0 || v.States[dispatch.Committed] != 3 {
		t.Errorf("findings: %+v", v)
	}
}
