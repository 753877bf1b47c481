package shard

import "slices"

// Lineage is one history of a data set: a primary starts a new one when it is promoted, and its
// replicas share it. Transaction ids continue from one to the next.
type Lineage struct {
	ID string `json:"id"`
	// End is the last transaction id that belongs to it, 0 as long as it continues. What a
	// node has beyond it was never part of the shard.
	End int64 `json:"end,omitempty"`
}

// lineage is the one that goes on, "" if none is known.
func (r Row) lineage() string {
	if n := len(r.Lineages); n > 0 {
		return r.Lineages[n-1].ID
	}
	return ""
}

// Ended is where a lineage of the shard ended, 0 if it continues or is none of the shard's.
func (r Row) Ended(lineage string) int64 {
	for _, l := range r.Lineages {
		if l.ID == lineage && lineage != "" {
			return l.End
		}
	}
	return 0
}

// promotedAt is where a new primary stood when it was promoted, as [State.PromotedAt]. But one that led under its lineage before,
// until that ended, and has followed nobody since came to it long ago: it has all of it.
func (r Row) promotedAt(s State) int64 {
	if end := r.Ended(s.Lineage.ID); end > 0 && !r.hasFollowed(s.Lineage, s.Before) {
		return min(s.Txn, end)
	}
	return s.PromotedAt()
}

// hasFollowed reports whether a node came out of a lineage of the shard that is later than its own: it led, followed a later primary,
// and was promoted again, in an engine whose lineages are the names of the nodes.
func (r Row) hasFollowed(lineage, before Lineage) bool {
	at := func(id string) int {
		return slices.IndexFunc(r.Lineages, func(l Lineage) bool { return l.ID == id && id != "" })
	}
	return at(lineage.ID) >= 0 && at(before.ID) > at(lineage.ID)
}

// position is where a node stands in the shard's history: without what it has beyond the end of its lineage.
// It is known if its data is of a lineage of the shard.
func (r Row) position(n Record) (at int64, known bool) {
	end := func(l Lineage) int64 {
		if l.End == 0 {
			return n.Txn
		}
		return min(n.Txn, l.End)
	}
	for _, l := range r.Lineages {
		if l.ID == n.Lineage.ID && !r.hasFollowed(n.Lineage, n.Before) {
			return end(l), true
		}
	}
	// One that was promoted and never opened still has what it had then.
	for _, l := range r.Lineages {
		if n.Before.ID != "" && l.ID == n.Before.ID {
			return min(n.Before.End, end(l)), true
		}
	}
	return 0, false
}

// began is where the lineage that goes on began, in an engine whose numbers go on with it: its primary had everything up
// to there when it was opened.
func (r Row) began() (at int64) {
	for _, l := range r.Lineages {
		at = max(at, l.End)
	}
	return at
}

// shortOf is how much a node lacks of what the shard had acknowledged before its lineage began. It can lack that if it
// still shows a lineage that has ended, or says which one it came from. One that took a full copy since says neither,
// and its numbers may have nothing to do with earlier ones (SableDB).
func (r Row) shortOf(n Record) int64 {
	if at, known := r.position(n); known && (r.Ended(n.Lineage.ID) > 0 || r.Ended(n.Before.ID) > 0) {
		return max(0, r.began()-at)
	}
	return 0
}

// knowsLineage reports whether the node's data is of a lineage of the shard, and whether it has
// more than belongs to it.
func (r Row) knowsLineage(n Record) (known, diverged bool) {
	at, known := r.position(n)
	return known, known && n.Txn > at
}

// isForeignData reports whether the node's data is not what the shard continues with.
func (r Row) isForeignData(n Record) bool {
	known, diverged := r.knowsLineage(n)
	return !known || diverged
}

// extend ends the lineages at txn, where the new primary stood, and starts another, unless
// it continues with the present one. What anybody has of them beyond that was never its.
func extend(all []Lineage, id string, txn int64) []Lineage {
	if n := len(all); n > 0 && all[n-1].ID == id {
		return all
	}
	if txn <= 0 {
		return []Lineage{{ID: id}}
	}
	all = slices.DeleteFunc(all, func(l Lineage) bool { return l.ID == id })
	for i := range all {
		if all[i].End == 0 || all[i].End > txn {
			all[i].End = txn
		}
	}
	all = append(all, Lineage{ID: id})
	return all[max(0, len(all)-MaxLineages):]
}
