package fault

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/shard"
)

// The rules of shards, beside [Late].
const (
	Stranger Rule = "stranger" // a write was accepted under a lineage that the row never named
	Dropped  Rule = "dropped"  // a write is lost that the next primary had
	Copied   Rule = "copied"   // a write is lost that every replica had
)

// ShardWrite is a write that a node acknowledged.
type ShardWrite struct {
	Key, Node   string
	Sent, Acked time.Duration // readings of lease.BootClock
	// Lineage under which it was accepted: the node told it in the same transaction.
	Lineage string
	// Txn is where that lineage stood afterwards, so that the write is not beyond it; 0
	// where the node did not tell any more.
	Txn int64
	// Copies is how many replicas acknowledged it before a moment had passed.
	Copies int
}

// Hang is a time in which a node was stopped: what was sent in it was accepted after its end.
type Hang struct {
	Node     string
	From, To time.Duration
}

// ShardEvidence is what [JudgeShard] looks at.
type ShardEvidence struct {
	Writes []ShardWrite
	// Lineages of the row, oldest first.
	Lineages []shard.Lineage
	// Hangs are when nodes were stopped.
	Hangs []Hang
	// Others is how many replicas there are.
	Others int
	// Final are the keys that the primary has in the end.
	Final map[string]bool
	// Excused tells of a write which was accepted so much after the first of a later lineage that nobody could
	// have kept the node from it: such writes are counted apart.
	Excused func(w ShardWrite, late time.Duration) bool
}

// ShardVerdict is what it found.
type ShardVerdict struct {
	Violations []Violation
	Writes     int
	Lineages   int
	// Lost writes were acknowledged by a primary alone, and gone with it.
	Lost int
	// Slipped writes are late ones that are excused.
	Slipped int
	// Gap is the longest time without an acknowledgement.
	Gap time.Duration
}

// JudgeShard reads what nodes acknowledged beside the row's lineages.
//
// A write stands under the lineage that its node told in the same transaction, and
// lineages are in the row's order, which is that of the epochs. No clock but the
// writer's own is used: a write was accepted after it was sent, and before it was
// acknowledged.
func JudgeShard(e ShardEvidence) ShardVerdict {
	v := ShardVerdict{Writes: len(e.Writes), Lineages: len(e.Lineages)}
	order := map[string]int{}
	for i, l := range e.Lineages {
		order[l.ID] = i
	}
	// first[i] is when a write under lineage i or a later one was known to be accepted.
	const never = time.Duration(1<<63 - 1)
	first := slices.Repeat([]time.Duration{never}, len(e.Lineages)+1)
	for _, w := range e.Writes {
		i, ok := order[w.Lineage]
		if !ok {
			at := time.Now().Add(w.Acked - lease.BootClock().Now()) // which logs show
			v.add(Stranger, w, "acknowledged at %s under %.8s, which stood at %d and was never the shard's", at.UTC().Format("15:04:05.000"), w.Lineage, w.Txn)
			continue
		}
		first[i] = min(first[i], w.Acked)
	}
	for i := len(first) - 2; i >= 0; i-- {
		first[i] = min(first[i], first[i+1])
	}
	for _, w := range e.Writes {
		i, ok := order[w.Lineage]
		if !ok {
			continue
		}
		if since := e.earliest(w); since > first[i+1] {
			if e.Excused != nil && e.Excused(w, since-first[i+1]) {
				v.Slipped++
			} else {
				v.add(Late, w, "accepted under %.8s, at least %v after the first write of a later lineage", w.Lineage, since-first[i+1])
			}
		}
		if e.Final[w.Key] {
			continue
		}
		l := e.Lineages[i]
		switch {
		case w.Txn > 0 && (w.Txn <= l.End || l.End == 0 && i == len(e.Lineages)-1): // one that is over and reached 0 was nobody else's
			v.add(Dropped, w, "it was within %.8s, which reached %d: %d", w.Lineage, l.End, w.Txn)
		case e.Others > 0 && w.Copies >= e.Others:
			v.add(Copied, w, "%d replicas had it", w.Copies)
		default:
			v.Lost++
		}
	}
	v.Gap = longest(e.Writes)
	return v
}

// earliest is when a write can have been accepted at the earliest.
func (e ShardEvidence) earliest(w ShardWrite) time.Duration {
	since := w.Sent
	for _, h := range e.Hangs {
		if h.Node == w.Node && w.Sent > h.From && w.Sent < h.To && w.Acked >= h.To {
			since = max(since, h.To)
		}
	}
	return since
}

func longest(writes []ShardWrite) (gap time.Duration) {
	sorted := slices.SortedFunc(slices.Values(writes), func(a, b ShardWrite) int { return cmp.Compare(a.Acked, b.Acked) })
	for i := 1; i < len(sorted); i++ {
		gap = max(gap, sorted[i].Acked-sorted[i-1].Acked)
	}
	return gap
}

func (v *ShardVerdict) add(rule Rule, w ShardWrite, format string, args ...any) {
	v.Violations = append(v.Violations, Violation{Rule: rule, Subject: w.Key + " at " + w.Node, Detail: fmt.Sprintf(format, args...)})
}
