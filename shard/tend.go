package shard

import (
	"slices"
	"time"
)

// Foundation is the row of a new shard, whose first primary is the node of the record.
func Foundation(r Record, secret string, now time.Time) Row {
	return Row{
		Name: r.Shard, Epoch: 1, Primary: r.ID, PrimaryEpoch: 1,
		Lineages: []Lineage{{ID: r.Lineage.ID}},
		Members:  []Member{{ID: r.ID, Address: r.Address, Agent: r.Agent, Since: now}},
		Secret:   secret,
	}
}

// Reopen is the row under which its primary goes on after a restart that cut its
// history: under a new epoch, and with a lineage that nobody else has.
func (r Row) Reopen(lineage Lineage) Row {
	r = r.Copy()
	r.Epoch++
	r.PrimaryEpoch = r.Epoch
	r.Lineages = []Lineage{{ID: lineage.ID}}
	return r
}

// Admit is for the primary's agent: the row with the nodes as members that have their
// first full copy and are seen online by the primary, with addresses as they are now, and
// without members of which nothing was heard for forgetAfter (0: never). It tells whether that
// changes anything. The primary keeps its agents' promises by this: an agent that it has not
// admitted may neither orchestrate nor be promoted.
func (v View) Admit(forgetAfter time.Duration) (Row, bool) {
	row, changed := v.Row.Copy(), false
	primary, _ := v.Node(row.Primary)
	for _, n := range v.Nodes {
		i := slices.IndexFunc(row.Members, func(m Member) bool { return m.ID == n.ID })
		switch {
		case i >= 0 && (row.Members[i].Address != n.Address || row.Members[i].Agent != n.Agent) && n.Live():
			row.Members[i].Address, row.Members[i].Agent, changed = n.Address, n.Agent, true
		case i >= 0 && forgetAfter > 0 && n.Age > forgetAfter && n.ID != row.Primary:
			row.Members, changed = slices.Delete(row.Members, i, i+1), true
		case i < 0 && len(row.Members) < MaxMembers && n.joined(primary):
			row.Members = append(row.Members, Member{ID: n.ID, Address: n.Address, Agent: n.Agent, Since: v.Now})
			changed = true
		}
	}
	return row, changed
}

// joined tells that a replica has the whole of its primary's data.
func (r Record) joined(primary Record) bool {
	return r.Live() && r.Role == Replica && r.Synced && r.PrimaryID == primary.ID && primary.ID != "" &&
		r.Lineage.ID == primary.Lineage.ID && r.Link != nil && r.Link.Up
}
