package fault

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// The rules of the cache, beside Overlap, Terms and Ghost.
const (
	Older  Rule = "older"
	Unfit  Rule = "unfit"
	Return Rule = "return"
)

// Call is one call of the origin. Times are those of the host's boot clock.
type Call struct {
	N         int // in the order of their begin
	Peer, Key string
	Term      int64
	Begun     time.Duration
	Ended     time.Duration // 0: it runs
	Value     string        // that was given; "" when none was
	// Apart: its peer was stopped while it ran, or just before. Nobody can keep
	// such a peer from going on for a moment when it wakes.
	Apart bool
	// Beside are the calls for the same key that ran when it began.
	Beside []int
}

func (c Call) String() string {
	return fmt.Sprintf("call %d by %s in term %d from %v to %v", c.N, c.Peer, c.Term, c.Begun, c.Ended)
}

// Answer is what a client was told, by a peer that is known, or, when Peer is
// empty, by any. Times are those of the host's boot clock.
type Answer struct {
	Key, Peer string
	// Life counts the starts of the peer; below 0: it is not known in which it answered.
	Life       int
	Asked, Got time.Duration
	// Demanded were a copy that expires after this, if it is not zero, and a value
	// that was fetched, at least in part, after the question.
	After   time.Time
	Refresh bool

	Term   int64
	Expire time.Time // zero: not told
	Value  string
	Err    error
}

// Taken is a removal of a key.
type Taken struct {
	Key, Peer   string
	Begun, Done time.Duration
	// All: every peer has confirmed it.
	All bool
	// Lives of the peers when it was done.
	Lives map[string]int
}

// CacheEvidence is what [JudgeCache] looks at.
type CacheEvidence struct {
	Calls    []Call
	Answers  []Answer
	Removals []Taken
	// Late is how much earlier than it was asked for the fetch of a new value may have
	// ended, if the peer that was asked had not heard of it.
	Late time.Duration
}

// CacheVerdict is what it says.
type CacheVerdict struct {
	Violations []Violation
	Calls      int
	Answered   int
	Refused    int
	// Apart are overlaps of calls with those of peers that were stopped meanwhile.
	Apart int
	// Slowest answer that had a value.
	Slowest time.Duration
}

// JudgeCache looks for broken rules.
func JudgeCache(e CacheEvidence) CacheVerdict {
	j := cacheJudge{CacheEvidence: e, made: map[callID]Call{}}
	j.verdict.Calls = len(e.Calls)
	j.calls()
	for _, a := range e.Answers {
		if a.Err != nil {
			j.verdict.Refused++
			continue
		}
		j.verdict.Answered++
		j.verdict.Slowest = max(j.verdict.Slowest, a.Got-a.Asked)
		j.answer(a)
	}
	j.order()
	return j.verdict
}

type cacheJudge struct {
	CacheEvidence
	verdict CacheVerdict
	made    map[callID]Call
}

type callID struct {
	key  string
	term int64
}

func (j *cacheJudge) add(rule Rule, key, format string, args ...any) {
	j.verdict.Violations = append(j.verdict.Violations, Violation{rule, key, fmt.Sprintf(format, args...)})
}

// calls: one at a time of a key, each in a term above those before it.
func (j *cacheJudge) calls() {
	apart := map[int]bool{}
	for _, c := range j.Calls {
		apart[c.N] = c.Apart
	}
	top := map[string]Call{}
	for _, c := range slices.SortedFunc(slices.Values(j.Calls), func(a, b Call) int { return cmp.Compare(a.N, b.N) }) {
		id := callID{c.Key, c.Term}
		if other, twice := j.made[id]; twice {
			j.add(Terms, c.Key, "%v and %v are of one term", other, c)
		} else {
			j.made[id] = c
		}
		for _, other := range c.Beside {
			if c.Apart || apart[other] {
				j.verdict.Apart++
				continue
			}
			j.add(Overlap, c.Key, "%v began while call %d ran", c, other)
		}
		if before, ok := top[c.Key]; ok && c.Term < before.Term && !c.Apart {
			j.add(Terms, c.Key, "%v came after %v", c, before)
		}
		if c.Term > top[c.Key].Term {
			top[c.Key] = c
		}
	}
}

// answer: what was given is what the source gave, and what was asked for.
func (j *cacheJudge) answer(a Answer) {
	c, known := j.made[callID{a.Key, a.Term}]
	switch {
	case !known:
		j.add(Ghost, a.Key, "%s gave %.80q as of term %d, in which nobody called the source", a.Peer, a.Value, a.Term)
		return
	case c.Value != a.Value:
		j.add(Ghost, a.Key, "%s gave, as of term %d, %.80q; the source gave %.80q", a.Peer, a.Term, a.Value, c.Value)
	case !a.After.IsZero() && !a.Expire.IsZero() && !a.Expire.After(a.After):
		j.add(Unfit, a.Key, "%s gave a copy that expired at %v; one that expires after %v was asked for", a.Peer, a.Expire, a.After)
	case a.Refresh && c.Ended+j.Late < a.Asked && !c.Apart:
		j.add(Unfit, a.Key, "%s was asked for a new value at %v, and gave at %v that of term %d, which %s had fetched from %v to %v",
			a.Peer, a.Asked, a.Got, a.Term, c.Peer, c.Begun, c.Ended)
	}
	for _, r := range j.Removals {
		if r.Key != a.Key || a.Asked < r.Done || c.Begun >= r.Begun || a.Peer == "" || a.Life < 0 || r.Lives[a.Peer] != a.Life {
			continue
		}
		if r.All || r.Peer == a.Peer {
			j.add(Return, a.Key, "%s gave, asked at %v, the value of term %d, which was removed at %v", a.Peer, a.Asked, a.Term, r.Done)
		}
	}
}

type seen struct {
	term   int64
	expire time.Time
}

func (s seen) older(than seen) bool {
	if s.term != than.term {
		return s.term < than.term
	}
	return !s.expire.IsZero() && !than.expire.IsZero() && s.expire.Before(than.expire)
}

// order: in one life, a peer gives nothing older than it has given before the
// question.
func (j *cacheJudge) order() {
	type place struct {
		key, peer string
		life      int
	}
	groups := map[place][]Answer{}
	for _, a := range j.Answers {
		if a.Err == nil && a.Peer != "" && a.Life >= 0 {
			p := place{a.Key, a.Peer, a.Life}
			groups[p] = append(groups[p], a)
		}
	}
	for p, asked := range groups {
		slices.SortFunc(asked, func(a, b Answer) int { return cmp.Compare(a.Asked, b.Asked) })
		got := slices.SortedFunc(slices.Values(asked), func(a, b Answer) int { return cmp.Compare(a.Got, b.Got) })
		var newest seen
		for _, a := range asked {
			for ; len(got) > 0 && got[0].Got < a.Asked; got = got[1:] {
				if s := (seen{got[0].Term, got[0].Expire}); newest.older(s) {
					newest = s
				}
			}
			if s := (seen{a.Term, a.Expire}); s.older(newest) {
				j.add(Older, p.key, "%s gave term %d, asked at %v, after it had given term %d", p.peer, a.Term, a.Asked, newest.term)
			}
		}
	}
}
