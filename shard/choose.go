package shard

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Unfit is a node that cannot become the primary, and why.
type Unfit struct {
	Node string `json:"node"`
	Why  string `json:"why"`
}

// choice is what a plan asks of its new primary.
type choice struct {
	from   string // the old one, never chosen
	wanted string // the only one to be considered, unless ""
	force  bool   // nothing but being alive is asked of the wanted one
	tried  []string
	maxLag int64 // 0: any
	// standing: the old one accepts nothing more, so that a replica which copies comes within maxLag.
	standing bool
	least    int64 // the position that it must have reached
	// frozen: only nodes that have acknowledged their detachment under this epoch, with what they
	// reported then. Otherwise what their last report says.
	frozen int64
}

// choosePrimary returns the node to promote: live, a member, synchronised, of the shard's own
// lineage; one that failed fewer than two times, then with the highest transaction id, then the fewest tries, the highest
// priority, the lowest id. One that an operator names and forces need only be live. unfit says of each node that does not qualify why. While
// the store lacks the latest decision (lostDecisions), only a node that an operator names and forces is chosen.
func choosePrimary(v View, c choice) (best string, unfit []Unfit) {
	type fit struct {
		Record
		tried int
	}
	// Whom the store has forgotten may have acknowledged what the others lack.
	if lost := v.lostDecisions(); len(lost) > 0 && !(c.force && c.wanted != "") {
		return "", lost
	}
	var fits []fit
	last := lastTxn(v, c.from)
	if _, reports := v.Node(c.wanted); c.wanted != "" && !reports {
		return "", []Unfit{{fmt.Sprintf("%.40s", c.wanted), "no node with this id reports"}}
	}
	for _, r := range v.Nodes {
		if r.ID == c.from || c.wanted != "" && r.ID != c.wanted {
			continue
		}
		if c.frozen != 0 {
			done, ok := r.ResultOf(c.frozen, OrderDetach)
			if !ok || done.Error != "" {
				unfit = append(unfit, Unfit{r.Label(), "it has not left the old primary: " + cmp.Or(done.Error, "no answer")})
				continue
			}
			r.Txn, r.Lineage, r.Before = done.Txn, done.Lineage, done.Before
		}
		if why := unfitReason(v, r, c, last); why != "" {
			unfit = append(unfit, Unfit{r.Label(), why})
			continue
		}
		fits = append(fits, fit{r, timesIn(c.tried, r.ID)})
	}
	if len(fits) == 0 {
		return "", unfit
	}
	// A try may fail because the store was slow: only a node that failed twice gives way to one with less.
	return slices.MinFunc(fits, func(a, b fit) int {
		return cmp.Or(cmp.Compare(a.tried/2, b.tried/2), cmp.Compare(b.Txn, a.Txn), cmp.Compare(a.tried, b.tried),
			cmp.Compare(b.Priority, a.Priority), cmp.Compare(a.ID, b.ID))
	}).ID, unfit
}

// timesIn counts an id.
func timesIn(all []string, id string) (n int) {
	for _, x := range all {
		if x == id {
			n++
		}
	}
	return n
}

// lostDecisions are the nodes that know what the store has forgotten: a later epoch, as epochs only grow, or that they led after the primary of the row,
// which a later plan's epoch does not hide. Until an operator names a node, nobody can tell who has the newest data. Only nodes that have, or had, the
// shard's data count: one that came from elsewhere knows nothing of this shard.
func (v View) lostDecisions() (all []Unfit) {
	row := v.Row
	named := row.Plan != nil && row.Plan.Force
	for _, r := range v.Nodes {
		_, member := row.Member(r.ID)
		known, _ := row.knowsLineage(r)
		switch {
		case !member && !known:
		case r.Epoch > row.Epoch:
			all = append(all, Unfit{r.Label(), fmt.Sprintf("it knows epoch %d, and the store only %d: the store has lost what was decided last", r.Epoch, row.Epoch)})
		case r.Led > row.PrimaryEpoch && !named:
			all = append(all, Unfit{r.Label(), fmt.Sprintf("it led under epoch %d, and the store knows only the primary of %d: the store has lost what was decided then", r.Led, row.PrimaryEpoch)})
		}
	}
	return all
}

// Successor returns the replica that would take the place of the primary, or why there is none, and what to do. Whether a planner would do so now
// is not asked: a pause, its policy (MaxLag, FlapLimit), a failover that failed a moment ago.
func (v View) Successor(primary string) (best, none string) {
	if primary == "" {
		return "", fmt.Sprintf("shard %q has no primary yet", v.Row.Name)
	}
	best, unfit := choosePrimary(v, choice{from: primary})
	if best == "" {
		none = explainNoCandidate(v.Row.Name, unfit)
	}
	return best, none
}

// HasSuccessor reports whether a replica would take the place of the primary once that is closed. MaxLag of the policy
// does not count for one that is linked to the primary: it comes near, as the closed primary moves no further.
func (v View) HasSuccessor(primary string, p Policy) bool {
	best, _ := choosePrimary(v, choice{from: primary, maxLag: p.MaxLag, standing: true})
	return best != ""
}

// LaterBetterCandidate returns why the choice no longer holds, "" if it does: another node left the old primary after
// the choice was made, and has more than the chosen one, which shows s after its promotion. Only a plan's first try gives way to
// such a node: one that is always late must not keep the shard without a primary.
func (p Plan) LaterBetterCandidate(v View, s State) string {
	if p.Kind != Failover || p.Wanted != "" || len(p.Tried) > 0 {
		return ""
	}
	best, _ := choosePrimary(v, choice{from: p.From, tried: []string{p.To}, frozen: p.Epoch})
	r, _ := v.Node(best)
	txn := v.Row.promotedAt(s)
	if done, _ := r.ResultOf(p.Epoch, OrderDetach); best != p.To && done.Txn > txn {
		return fmt.Sprintf("%s answered after the choice was made, and stands at %d, not at %d", r.Label(), done.Txn, txn)
	}
	return ""
}

func unfitReason(v View, r Record, c choice, last int64) string {
	switch {
	case !r.Live():
		return fmt.Sprintf("its agent is silent for %v", r.Age.Round(1e6))
	case c.force && c.wanted != "" && r.Condition == Quarantined:
		return "" // its agent takes an operator's word for it
	case r.Condition != Up:
		return strings.TrimSuffix("it is "+string(r.Condition)+": "+r.Trouble, ": ")
	case c.force && c.wanted != "":
		return ""
	}
	if _, member := v.Row.Member(r.ID); !member {
		return "it was never synchronised with this shard"
	}
	switch known, diverged := v.Row.knowsLineage(r); {
	case r.Priority == 0 && c.wanted == "":
		return "its priority is 0"
	case !r.Synced || r.Link != nil && r.Link.Syncing:
		return "its copy is not complete"
	case !known:
		return fmt.Sprintf("its data is of another lineage (%.8s)", r.Lineage.ID)
	case diverged:
		return fmt.Sprintf("it has diverged: its last transactions, up to %d, were never the shard's", r.Txn)
	case r.Txn < c.least:
		return fmt.Sprintf("it stands at %d, and the primary at %d or more", r.Txn, c.least)
	case c.maxLag > 0 && last-r.Txn > c.maxLag && !(c.standing && r.Link != nil && r.Link.Up):
		return fmt.Sprintf("it lacks %d of the last known %d, more than max_lag %d", last-r.Txn, last, c.maxLag)
	}
	return v.holderOfMore(r)
}

// holderOfMore is why a node must not be promoted which lacks what the shard had acknowledged before its lineage began,
// as long as a member has more of that, or may come back with it; "" if none does. What a node lacks of the lineage that
// goes on is what replication may lose.
func (v View) holderOfMore(n Record) string {
	short := v.Row.shortOf(n)
	if short == 0 {
		return ""
	}
	for _, m := range v.Row.Members {
		r, reports := v.Node(m.ID)
		_, known := v.Row.position(r)
		empty := r.Keys == 0 && (r.Condition == Up || r.Condition == Quarantined)
		switch {
		case m.ID == n.ID:
			continue
		case reports && known && v.Row.shortOf(r) < short:
		// It had everything. A restart hides where it stands, and leaves it all of it or nothing.
		case m.ID == v.Row.Primary && !(reports && (known || empty)):
		default:
			continue
		}
		return fmt.Sprintf("it lacks %d of what was acknowledged before the last change of primary; node %.8s at %s had more, and may come back with that", short, m.ID, m.Address)
	}
	return ""
}

// explainNoCandidate lists why nobody is suitable, and how to promote one anyway.
func explainNoCandidate(shard string, unfit []Unfit) string {
	return fmt.Sprintf("%s. To promote one anyway: understudy shard failover %s --to NODE --force", listUnfit(shard, unfit), shard)
}

// listUnfit lists why nobody is suitable.
func listUnfit(shard string, unfit []Unfit) string {
	var b strings.Builder
	fmt.Fprintf(&b, "no replica of shard %q can become the primary", shard)
	if len(unfit) == 0 {
		b.WriteString(": it has none that reports")
	}
	for i, u := range unfit {
		sep := "; "
		if i == 0 {
			sep = ": "
		}
		fmt.Fprintf(&b, "%s%s: %s", sep, u.Node, u.Why)
	}
	return b.String()
}
