package api

import (
	"github.com/understudy-ha/understudy/api/apitype"
	"github.com/understudy-ha/understudy/internal/attention"
	"github.com/understudy-ha/understudy/shard"
)

// ViewShard shows a shard. Whether its primary can be replaced is judged as an agent
// would that has watched its session lapse, and has no [shard.Policy.MaxLag].
func ViewShard(v shard.View) apitype.Shard {
	next := shard.NextAction(v, observationOf(v), shard.Policy{FenceDelay: shard.ArmedFenceDelay})
	out := apitype.Shard{
		Name: v.Row.Name, Health: string(next.Finding.Health), Reason: next.Finding.Why, Epoch: v.Row.PrimaryEpoch,
		Paused: viewPause(v.Row.Paused), Request: viewShardRequest(v.Row.Request), Plan: viewPlan(v.Row.Plan), Last: viewPlan(v.Row.Last), Nodes: []apitype.ShardNode{},
	}
	out.Successor, out.NoSuccessor = v.Successor(v.Row.Primary)
	if v.Row.Plan == nil && v.Row.Request == nil {
		out.Blocked = next.Blocked
	}
	if at, err := v.PrimaryEndpoint(); err != nil {
		out.Why = err.Error()
	} else {
		out.Primary = new(apitype.ShardPrimary(at))
	}
	if !v.Lease.Free() {
		out.Holder, out.Term, out.LeftMS = v.Lease.Holder.Label(), v.Lease.Term, v.Lease.Remaining.Milliseconds()
	}
	primary, _ := v.Node(v.Row.Primary)
	for _, r := range v.Nodes {
		out.Nodes = append(out.Nodes, viewNode(v.Row, r, primary))
	}
	for _, m := range v.Row.Members {
		if _, reports := v.Node(m.ID); !reports {
			out.Nodes = append(out.Nodes, apitype.ShardNode{ID: m.ID, Address: m.Address, Private: m.Address, Agent: m.Agent, Member: true,
				Primary: m.ID == v.Row.Primary, Trouble: "its agent has not reported since it was retired"})
		}
	}
	out.Alarm, _ = attention.Shard(out)
	return out
}

// observationOf is what an agent of the shard would know that has watched the lease for long, and
// has no plan under way.
func observationOf(v shard.View) shard.Observation {
	var s shard.Observation
	for _, m := range v.Row.Members {
		if r, ok := v.Node(m.ID); s.Node == "" || ok && r.Live() && m.ID != v.Row.Primary {
			s.Node = m.ID
		}
	}
	switch l := v.Lease; {
	case l.Session == "":
		s.LeaseTakeable, s.TakeableFor = true, max(l.Age, 0)
	case l.Ended || l.Remaining <= 0 && !l.Foreign:
		s.LeaseTakeable, s.TakeableFor = true, max(-l.Remaining, 0)
	}
	return s
}

func viewNode(row shard.Row, r, primary shard.Record) apitype.ShardNode {
	_, member := row.Member(r.ID)
	out := apitype.ShardNode{
		ID: r.ID, Address: r.Client(), Private: r.Address, Agent: r.Agent, Role: string(r.Role), Primary: r.ID == row.Primary,
		Condition: string(r.Condition), Trouble: r.Trouble, Member: member, AgentLives: r.Live(), AgeMS: r.Age.Milliseconds(),
		Txn: r.Txn, Lineage: r.Lineage.ID, Follows: r.PrimaryID, Fence: string(r.Fence), Armed: r.Armed,
		Priority: r.Priority, Epoch: r.Epoch, Keys: r.Keys, Engine: r.Engine, Version: r.Version,
	}
	if r.Link != nil {
		out.LinkUp, out.Syncing = new(r.Link.Up), r.Link.Syncing
		out.CopyMS, out.CopyBytes = r.Link.CopyTook.Milliseconds(), r.Link.CopyBytes
	}
	if primary.ID != "" && r.Lineage.ID == primary.Lineage.ID {
		out.InStep, out.Lag = true, max(0, primary.Txn-r.Txn)
	}
	return out
}

func viewPause(p *shard.Pause) *apitype.ShardPause { return (*apitype.ShardPause)(p) }

func viewShardRequest(q *shard.Request) *apitype.ShardRequestAsked {
	if q == nil {
		return nil
	}
	return &apitype.ShardRequestAsked{
		ID: q.ID, Kind: string(q.Kind), To: q.To, Force: q.Force, By: q.By, TimeoutMS: q.Timeout.Milliseconds(), At: q.At,
	}
}

// viewPlan shows a plan.
func viewPlan(p *shard.Plan) *apitype.ShardPlan {
	if p == nil {
		return nil
	}
	out := &apitype.ShardPlan{
		Epoch: p.Epoch, Kind: string(p.Kind), From: p.From, To: p.To, Wanted: p.Wanted, Phase: string(p.Phase),
		By: p.By, ByNode: p.ByNode, Reason: p.Reason, Force: p.Force, Anew: p.NewHistory, Request: p.Request, Run: p.Run, Txn: p.Txn,
		Tried: p.Tried, TimeoutMS: p.Timeout.Milliseconds(), Began: p.Began,
		Ended: p.Ended, TookMS: roundedUp(p.Took), Failed: p.Failed,
	}
	for _, s := range p.Steps {
		out.Steps = append(out.Steps, apitype.ShardPlanStep{Phase: string(s.Phase), TookMS: roundedUp(s.Took), Note: s.Note})
	}
	return out
}
