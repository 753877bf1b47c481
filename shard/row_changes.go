package shard

import (
	"fmt"
	"slices"
	"time"
)

// BootstrapRow is the row of a new shard, whose first primary is the node of the record.
func (v View) BootstrapRow(r Record, secret string) Row {
	epoch, now := v.nextEpoch(), v.Now
	row := Row{
		Name: r.Shard, Epoch: epoch, Primary: r.ID, PrimaryEpoch: epoch,
		Lineages: append(originOf(r.Before), Lineage{ID: r.Lineage.ID}),
		Members:  []Member{{ID: r.ID, Address: r.Address, Agent: r.Agent, Since: now}},
		Secret:   secret,
	}
	// Replicas that have all of it already may take its place from the first moment on.
	for _, n := range v.Nodes {
		if n.isSyncedReplicaOf(r) && len(row.Members) < MaxMembers {
			row.Members = append(row.Members, Member{ID: n.ID, Address: n.Address, Agent: n.Agent, Since: now})
		}
	}
	return row
}

// originOf is what a history begins with whose first primary came out of another lineage: whoever has not gone on since that one
// ended has nothing that the shard lacks, and whoever has less of it lacks the rest.
func originOf(before Lineage) []Lineage {
	if before.ID == "" || before.End == 0 {
		return nil
	}
	return []Lineage{before}
}

// nextEpoch is for a new plan. As terms do, epochs follow the store's clock in milliseconds, so
// that a store which lost its latest writes gives none out twice: an agent's answer to
// the lost one would count for the other.
func (v View) nextEpoch() int64 {
	epoch := max(v.Row.Epoch+1, v.Now.UnixMilli())
	for _, r := range v.Nodes {
		epoch = max(epoch, r.Epoch+1)
	}
	return epoch
}

// ResumeRow is the row under which its primary, which shows s, continues after a restart that cut its
// history: under a new epoch, and with a lineage that nobody else has. The others may still take its place with the one before
// it, if it says where it left that.
func (v View) ResumeRow(s State) Row {
	r := v.Row.Copy()
	r.Epoch = v.nextEpoch()
	r.PrimaryEpoch = r.Epoch
	if known := slices.ContainsFunc(r.Lineages, func(l Lineage) bool { return l.ID == s.Before.ID }); !known || s.Before.End == 0 {
		r.Lineages = nil
	}
	r.Lineages = extend(r.Lineages, s.Lineage.ID, r.promotedAt(s))
	// What a plan in Following was sent under is of an older epoch now; its replicas continue by themselves.
	r.Plan = nil
	return r
}

// RenameLineage is for a primary that continues under a new lineage ([SavedState.IsUninterrupted]): the row that knows
// it, and whether that changes anything. Nothing does while a plan is under way.
func (r Row) RenameLineage(lineage Lineage, txn int64) (Row, bool) {
	if r.Plan != nil || lineage.ID == "" || r.lineage() == lineage.ID {
		return r, false
	}
	r = r.Copy()
	r.Lineages = extend(r.Lineages, lineage.ID, txn)
	return r, true
}

// AdmitMembers is for the primary's agent: the row with the nodes as members that have their
// first full copy and follow the primary, with addresses as they are now, and without members of
// which nothing was heard for forgetAfter (0: never). It reports whether that changes
// anything; nothing does while a plan is under way. The primary can count on promises by
// this: an agent that it has not admitted may neither orchestrate nor be promoted.
func (v View) AdmitMembers(forgetAfter time.Duration) (Row, bool) {
	row, changed := v.Row.Copy(), false
	if row.Plan != nil {
		return row, false
	}
	primary, _ := v.Node(row.Primary)
	row.Members = slices.DeleteFunc(row.Members, func(m Member) bool {
		n, reports := v.Node(m.ID)
		silent := n.Age
		if !reports {
			silent = v.Now.Sub(m.Since)
		}
		gone := forgetAfter > 0 && silent > forgetAfter && m.ID != row.Primary
		changed = changed || gone
		return gone
	})
	for _, n := range v.Nodes {
		i := slices.IndexFunc(row.Members, func(m Member) bool { return m.ID == n.ID })
		switch {
		case i >= 0 && (row.Members[i].Address != n.Address || row.Members[i].Agent != n.Agent) && n.Live():
			row.Members[i].Address, row.Members[i].Agent, changed = n.Address, n.Agent, true
		case i < 0 && len(row.Members) < MaxMembers && n.isSyncedReplicaOf(primary) && !v.isReportedTwice(n):
			row.Members = append(row.Members, Member{ID: n.ID, Address: n.Address, Agent: n.Agent, Since: v.Now})
			changed = true
		}
	}
	return row, changed
}

// WithNewPrimary returns the row in which the node that a plan names is the primary, and the plan is in
// phase [Following]. That node's agent writes it with [Registry.UpdateRow] as the last step of the promotion, not
// the orchestrator. s is the node's state after its promotion, and took is the promotion's duration. The
// error wraps ErrChanged if the row no longer has that plan.
func (r Row) WithNewPrimary(node string, epoch int64, s State, took time.Duration) (Row, error) {
	p := r.Plan
	if p == nil || p.Epoch != epoch || p.To != node || p.Phase != Promoting {
		return Row{}, fmt.Errorf("%w: the plan of epoch %d does not name node %.8s any more", ErrChanged, epoch, node)
	}
	// It had caught up before. Its old primary may have been restarted since, with other data, which it then copied.
	if at := r.promotedAt(s); p.Kind == Switchover && at < p.Txn {
		return Row{}, fmt.Errorf("it had reached %d, and was promoted at %d: it has copied other data meanwhile", p.Txn, at)
	}
	r = r.Copy()
	r.Primary, r.PrimaryEpoch = node, epoch
	r.Plan.Steps = append(r.Plan.Steps, Step{Phase: Promoting, Took: took})
	r.Plan.Phase = Following
	if p.NewHistory {
		r.Lineages = originOf(s.Before)
	}
	r.Lineages = extend(r.Lineages, s.Lineage.ID, r.promotedAt(s))
	if _, member := r.Member(node); !member {
		r.Members = append(r.Members, Member{ID: node, Since: p.Began})
	}
	if p.Kind == Failover && p.Request == "" {
		r.Failovers = append(r.Failovers, p.Began)
		r.Failovers = r.Failovers[max(0, len(r.Failovers)-MaxFailovers):]
	}
	return r, nil
}
