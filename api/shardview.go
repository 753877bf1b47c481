package api

import (
	"time"

	"github.com/understudy-ha/understudy/shard"
)

// ShardView is a shard, as every surface shows it in JSON.
type ShardView struct {
	Shard string `json:"shard"`
	// Primary is where clients find it; missing while there is none, and then Why tells.
	Primary *shard.Endpoint `json:"primary,omitempty"`
	Why     string          `json:"why,omitempty"`
	Health  shard.Health    `json:"health"`
	// Reason for the health, for people.
	Reason string `json:"reason"`
	// Blocked is why a primary that is over is not replaced, and what a person can do. Agents
	// that were told of a greatest lag may have reasons of their own; their logs say which.
	Blocked string         `json:"blocked,omitempty"`
	Epoch   int64          `json:"epoch"`
	Paused  *shard.Pause   `json:"paused,omitempty"`
	Request *shard.Request `json:"request,omitempty"`
	Plan    *shard.Plan    `json:"plan,omitempty"`
	Last    *shard.Plan    `json:"last,omitempty"`
	// Holder is the agent that holds the shard's lease, under Term, for another LeftMS.
	Holder string     `json:"holder,omitempty"`
	Term   int64      `json:"term,omitempty"`
	LeftMS int64      `json:"left_ms,omitempty"`
	Nodes  []NodeView `json:"nodes"`
}

// NodeView is a node of a shard.
type NodeView struct {
	ID        string          `json:"node_id"`
	Address   string          `json:"address"`
	Private   string          `json:"private_address"`
	Agent     string          `json:"agent_address,omitempty"`
	Role      shard.Role      `json:"role,omitempty"`
	Primary   bool            `json:"is_primary"` // the one that the shard names
	Condition shard.Condition `json:"condition,omitempty"`
	Trouble   string          `json:"trouble,omitempty"`
	Member    bool            `json:"member"`
	// AgentLives tells that the agent has reported within its timeout; AgeMS is how long ago.
	AgentLives bool  `json:"agent_lives"`
	AgeMS      int64 `json:"age_ms"`
	Txn        int64 `json:"txn_id"`
	// Lag is how many transactions (bytes, on Redis) the primary was ahead at its last report.
	Lag int64 `json:"lag"`
	// InStep: it has the lineage of the primary, so that Lag means something.
	InStep   bool        `json:"same_lineage"`
	Lineage  string      `json:"lineage,omitempty"`
	LinkUp   *bool       `json:"link_up,omitempty"`
	Syncing  bool        `json:"syncing,omitempty"`
	Follows  string      `json:"primary_node_id,omitempty"`
	Fence    shard.Fence `json:"fence,omitempty"`
	Armed    bool        `json:"armed"`
	Priority int         `json:"priority"`
	Epoch    int64       `json:"epoch"`
	Keys     int64       `json:"keys"`
	Engine   string      `json:"engine,omitempty"`
	Version  string      `json:"version,omitempty"`
}

// ViewShard shows a shard. Whether its primary can be replaced is judged as an agent
// would that has watched its session lapse.
func ViewShard(v shard.View, fenceDelay time.Duration) ShardView {
	next := shard.Next(v, sightOf(v), shard.Policy{FenceDelay: fenceDelay})
	out := ShardView{
		Shard: v.Row.Name, Health: next.Finding.Health, Reason: next.Finding.Why, Epoch: v.Row.PrimaryEpoch,
		Paused: v.Row.Paused, Request: v.Row.Request, Plan: v.Row.Plan, Last: v.Row.Last, Nodes: []NodeView{},
	}
	if v.Row.Plan == nil && v.Row.Request == nil {
		out.Blocked = next.Blocked
	}
	if at, err := v.Whereabouts(); err != nil {
		out.Why = err.Error()
	} else {
		out.Primary = &at
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
			out.Nodes = append(out.Nodes, NodeView{ID: m.ID, Address: m.Address, Private: m.Address, Agent: m.Agent, Member: true,
				Primary: m.ID == v.Row.Primary, Trouble: "its agent has not reported since it was retired"})
		}
	}
	return out
}

// sightOf is what an agent of the shard would know that has watched the lease for long, and
// has no plan under way.
func sightOf(v shard.View) shard.Sight {
	var s shard.Sight
	for _, m := range v.Row.Members {
		if r, ok := v.Node(m.ID); s.Node == "" || ok && r.Live() && m.ID != v.Row.Primary {
			s.Node = m.ID
		}
	}
	switch l := v.Lease; {
	case l.Session == "":
		s.Over, s.OverFor = true, max(l.Age, 0)
	case l.Ended || l.Remaining <= 0 && !l.Foreign:
		s.Over, s.OverFor = true, max(-l.Remaining, 0)
	}
	return s
}

func viewNode(row shard.Row, r, primary shard.Record) NodeView {
	_, member := row.Member(r.ID)
	out := NodeView{
		ID: r.ID, Address: r.Client(), Private: r.Address, Agent: r.Agent, Role: r.Role, Primary: r.ID == row.Primary,
		Condition: r.Condition, Trouble: r.Trouble, Member: member, AgentLives: r.Live(), AgeMS: r.Age.Milliseconds(),
		Txn: r.Txn, Lineage: r.Lineage.ID, Follows: r.PrimaryID, Fence: r.Fence, Armed: r.Armed,
		Priority: r.Priority, Epoch: r.Epoch, Keys: r.Keys, Engine: r.Engine, Version: r.Version,
	}
	if r.Link != nil {
		out.LinkUp, out.Syncing = new(r.Link.Up), r.Link.Syncing
	}
	if primary.ID != "" && r.Lineage.ID == primary.Lineage.ID {
		out.InStep, out.Lag = true, max(0, primary.Txn-r.Txn)
	}
	return out
}
