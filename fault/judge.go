package fault

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/understudy-ha/understudy/fault/worker/ledger"
	"github.com/understudy-ha/understudy/history"
)

// Rule names what a [Violation] breaks; doc.go says what each demands.
type Rule string

// The rules.
const (
	Late    Rule = "late"
	Terms   Rule = "terms"
	Overlap Rule = "overlap"
	Gap     Rule = "gap"
	History Rule = "history"
)

// Violation is one rule broken once.
type Violation struct {
	Rule    Rule
	Subject string
	Detail  string
}

func (v Violation) String() string { return fmt.Sprintf("%s: %s: %s", v.Rule, v.Subject, v.Detail) }

// Evidence is what a judge looks at.
type Evidence struct {
	// Effects in the order in which they came about.
	Effects []ledger.Effect
	// Part whose events are the acquisitions and releases: "role", "claim", …
	Part string
	// Events of the history in ascending order of id. Others than those of Part
	// are passed over.
	Events []history.Event
	// MaxGap is the longest that a subject may be without effects between its
	// first one and Until. 0 allows any.
	MaxGap time.Duration
	// Until when effects were to be expected, as a reading of lease.BootClock; 0
	// is the last effect.
	Until time.Duration
}

// Finding is what a judge saw of one subject.
type Finding struct {
	Effects  int
	Terms    int           // that had effects
	Holders  int           // instances that had effects
	Acquired int           // terms in the history
	Gap      time.Duration // the longest time without effects …
	GapAt    time.Duration // … and how long after the first effect it began
	// Handover is the longest time between the last effect of a term and the
	// first of the next.
	Handover time.Duration
}

// Verdict is what a judge says.
type Verdict struct {
	Violations []Violation
	Findings   map[string]Finding
}

// Judge looks for broken rules. At most one violation of each rule is told for
// each holding: what follows from it would only hide it.
func Judge(e Evidence) Verdict {
	v := Verdict{Findings: map[string]Finding{}}
	bySubject := map[string][]ledger.Effect{}
	for _, effect := range e.Effects {
		bySubject[effect.Subject] = append(bySubject[effect.Subject], effect)
	}
	acquired := v.judgeHistory(e)
	for _, subject := range sortedKeys(bySubject) {
		effects := bySubject[subject]
		holdings := v.judgeOrder(subject, effects)
		v.judgeOverlap(subject, holdings)
		f := Finding{Effects: len(effects), Terms: len(holdings), Acquired: len(acquired[subject]), Handover: handover(holdings)}
		f.Gap, f.GapAt = v.judgeGap(subject, effects, e)
		holders := map[string]bool{}
		for _, h := range holdings {
			holders[h.holder] = true
			if by, ok := acquired[subject][h.term]; e.Part != "" && (!ok || by != h.holder) {
				v.add(History, subject, "%s had effects under term %d, which the history gives to %q", h.holder, h.term, by)
			}
		}
		f.Holders = len(holders)
		v.Findings[subject] = f
	}
	return v
}

func (v *Verdict) add(rule Rule, subject, format string, args ...any) {
	v.Violations = append(v.Violations, Violation{rule, subject, fmt.Sprintf(format, args...)})
}

// holding is the time in which one instance had effects under one term.
type holding struct {
	holder      string
	term        int64
	first, last time.Duration
	late        bool
}

// judgeOrder walks the effects as they came about, and returns the holdings by
// term.
func (v *Verdict) judgeOrder(subject string, effects []ledger.Effect) []*holding {
	type key struct {
		holder string
		term   int64
	}
	known := map[key]*holding{}
	owner := map[int64]string{}
	var holdings []*holding
	var top ledger.Effect
	for _, e := range effects {
		h := known[key{e.Holder, e.Term}]
		if h == nil {
			h = &holding{holder: e.Holder, term: e.Term, first: e.At, last: e.At}
			known[key{e.Holder, e.Term}] = h
			holdings = append(holdings, h)
			if other, taken := owner[e.Term]; taken {
				v.add(Terms, subject, "%s and %s both had effects under term %d", other, e.Holder, e.Term)
			} else {
				owner[e.Term] = e.Holder
			}
		}
		h.first, h.last = min(h.first, e.At), max(h.last, e.At)
		if e.Term < top.Term && !h.late {
			h.late = true
			v.add(Late, subject, "%s (process %d) had an effect under term %d after %s had one under term %d, stamped %v later",
				e.Holder, e.PID, e.Term, top.Holder, top.Term, e.At-top.At)
		}
		if e.Term > top.Term {
			top = e
		}
	}
	slices.SortFunc(holdings, func(a, b *holding) int { return cmp.Compare(a.term, b.term) })
	return holdings
}

func (v *Verdict) judgeOverlap(subject string, holdings []*holding) {
	byStart := slices.Clone(holdings)
	slices.SortFunc(byStart, func(a, b *holding) int { return cmp.Compare(a.first, b.first) })
	var longest *holding
	for _, h := range byStart {
		if longest != nil && h.first <= longest.last {
			v.add(Overlap, subject, "%s under term %d began %v before %s under term %d had its last effect",
				h.holder, h.term, longest.last-h.first, longest.holder, longest.term)
		}
		if longest == nil || h.last > longest.last {
			longest = h
		}
	}
}

// judgeGap returns the longest time without effects, and how long after the first
// effect it began.
func (v *Verdict) judgeGap(subject string, effects []ledger.Effect, e Evidence) (gap, at time.Duration) {
	stamps := make([]time.Duration, 0, len(effects)+1)
	for _, effect := range effects {
		stamps = append(stamps, effect.At)
	}
	slices.Sort(stamps)
	if last := stamps[len(stamps)-1]; e.Until > last {
		stamps = append(stamps, e.Until)
	}
	for i := 1; i < len(stamps); i++ {
		if stamps[i]-stamps[i-1] > gap {
			gap, at = stamps[i]-stamps[i-1], stamps[i-1]-stamps[0]
		}
	}
	if e.MaxGap > 0 && gap > e.MaxGap {
		v.add(Gap, subject, "without effects for %v, from %v after the first; %v is allowed", gap, at, e.MaxGap)
	}
	return gap, at
}

// judgeHistory walks the events, and returns who acquired which term.
func (v *Verdict) judgeHistory(e Evidence) map[string]map[int64]string {
	acquired := map[string]map[int64]string{}
	top := map[string]int64{}
	for _, event := range e.Events {
		if event.Part != e.Part || event.Term == 0 {
			continue
		}
		switch {
		case event.Term < top[event.Subject]:
			v.add(Terms, event.Subject, "the history goes from term %d back to %d: %s", top[event.Subject], event.Term, event)
		case event.Term == top[event.Subject] && event.To != "" && event.To != acquired[event.Subject][event.Term]:
			v.add(Terms, event.Subject, "the history gives term %d to %s again: %s", event.Term, event.To, event)
		case event.Term > top[event.Subject] && event.To == "":
			v.add(History, event.Subject, "the history ends term %d, which it never began: %s", event.Term, event)
		}
		if event.To != "" && event.Term > top[event.Subject] {
			if acquired[event.Subject] == nil {
				acquired[event.Subject] = map[int64]string{}
			}
			acquired[event.Subject][event.Term] = event.To
		}
		top[event.Subject] = max(top[event.Subject], event.Term)
	}
	return acquired
}

func handover(holdings []*holding) time.Duration {
	var longest time.Duration
	for i := 1; i < len(holdings); i++ {
		longest = max(longest, holdings[i].first-holdings[i-1].last)
	}
	return longest
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
