package fault_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/understudy-ha/understudy/fault"
)

func sec(n int) time.Duration { return time.Duration(n) * time.Second }

// cached is evidence that breaks no rule: three fetches, and who asked.
func cached() fault.CacheEvidence {
	answer := func(peer string, asked, got int, term int64, value string) fault.Answer {
		return fault.Answer{Key: "k", Peer: peer, Asked: sec(asked), Got: sec(got), Term: term, Expire: at(int(term)), Value: value}
	}
	return fault.CacheEvidence{
		Calls: []fault.Call{
			{N: 0, Peer: "a", Key: "k", Term: 10, Begun: sec(1), Ended: sec(2), Value: "v10"},
			{N: 1, Peer: "b", Key: "k", Term: 20, Begun: sec(3), Ended: sec(5)},
			{N: 2, Peer: "a", Key: "k", Term: 30, Begun: sec(6), Ended: sec(7), Value: "v30"},
		},
		Answers: []fault.Answer{answer("a", 1, 2, 10, "v10"), answer("b", 4, 5, 10, "v10"), answer("a", 6, 7, 30, "v30"), answer("b", 8, 9, 30, "v30")},
	}
}

// TestFaultCacheJudgeCatches shows the judge one broken cache after the other.
func TestFaultCacheJudgeCatches(t *testing.T) {
	for _, c := range []struct {
		name  string
		spoil func(e *fault.CacheEvidence)
		want  []fault.Rule
	}{
		{"nothing wrong", func(*fault.CacheEvidence) {}, nil},
		{"two at once", func(e *fault.CacheEvidence) { e.Calls[1].Beside = []int{0} }, []fault.Rule{fault.Overlap}},
		{"two at once, one of a stopped peer", func(e *fault.CacheEvidence) {
			e.Calls[1].Beside, e.Calls[0].Apart = []int{0}, true
		}, nil},
		{"one term twice", func(e *fault.CacheEvidence) { e.Calls[1].Term = 10 }, []fault.Rule{fault.Terms}},
		{"a term falls", func(e *fault.CacheEvidence) { e.Calls[1].Term = 5 }, []fault.Rule{fault.Terms}},
		{"a value that nobody fetched", func(e *fault.CacheEvidence) { e.Answers[3].Term, e.Answers[3].Value = 40, "v40" }, []fault.Rule{fault.Ghost}},
		{"another value", func(e *fault.CacheEvidence) { e.Answers[3].Value = "v31" }, []fault.Rule{fault.Ghost}},
		{"the value of a fetch that failed", func(e *fault.CacheEvidence) { e.Answers[3].Term = 20 }, []fault.Rule{fault.Ghost}},
		{"expired before what was asked for", func(e *fault.CacheEvidence) { e.Answers[3].After = at(30) }, []fault.Rule{fault.Unfit}},
		{"expires just after", func(e *fault.CacheEvidence) { e.Answers[3].After = at(29) }, nil},
		{"no new value", func(e *fault.CacheEvidence) { e.Answers[3].Refresh = true }, []fault.Rule{fault.Unfit}},
		{"a value that was being fetched", func(e *fault.CacheEvidence) { e.Answers[2].Refresh = true }, nil},
		{"older than before", func(e *fault.CacheEvidence) {
			e.Answers[3].Peer, e.Answers[1].Asked, e.Answers[1].Peer = "b", sec(10), "a"
		}, []fault.Rule{fault.Older}},
		{"older than before, in another life", func(e *fault.CacheEvidence) {
			e.Answers[1].Asked, e.Answers[1].Peer, e.Answers[1].Life = sec(10), "a", 1
		}, nil},
		{"older than what was under way", func(e *fault.CacheEvidence) { e.Answers[1].Asked, e.Answers[1].Got = sec(8), sec(10) }, nil},
		{"expires before what was given", func(e *fault.CacheEvidence) { e.Answers[3].Peer, e.Answers[3].Expire = "a", at(29) }, []fault.Rule{fault.Older}},
		{"what was removed is back", func(e *fault.CacheEvidence) {
			e.Removals = []fault.Taken{{Key: "k", Peer: "b", Begun: sec(7), Done: sec(8), Lives: map[string]int{"a": 0, "b": 0}}}
		}, []fault.Rule{fault.Return}},
		{"what was removed everywhere is back", func(e *fault.CacheEvidence) {
			e.Removals = []fault.Taken{{Key: "k", Peer: "a", All: true, Begun: sec(7), Done: sec(8), Lives: map[string]int{"a": 0, "b": 0}}}
		}, []fault.Rule{fault.Return}},
		{"what was removed elsewhere", func(e *fault.CacheEvidence) {
			e.Removals = []fault.Taken{{Key: "k", Peer: "a", Begun: sec(7), Done: sec(8), Lives: map[string]int{"a": 0, "b": 0}}}
		}, nil},
		{"removed, and fetched again", func(e *fault.CacheEvidence) {
			e.Removals = []fault.Taken{{Key: "k", Peer: "a", All: true, Begun: sec(6), Done: sec(6), Lives: map[string]int{"a": 0, "b": 0}}}
		}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := cached()
			c.spoil(&e)
			v := fault.JudgeCache(e)
			var got []fault.Rule
			for _, violation := range v.Violations {
				got = append(got, violation.Rule)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("rules broken (-want +got):\n%s\n%v", diff, v.Violations)
			}
		})
	}
}
