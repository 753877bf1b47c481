package shard

import "fmt"

// Endpoint is where a shard's primary is.
type Endpoint struct {
	Shard   string `json:"shard"`
	NodeID  string `json:"node_id"`
	Address string `json:"address"` // for clients
	Epoch   int64  `json:"epoch"`
}

// PrimaryEndpoint is where clients find the primary: the node that was last opened for
// writes, unless it is known to be dead or closed, a plan has started to replace it, or the view is stale. ErrNoPrimary
// wraps why there is none.
func (v View) PrimaryEndpoint() (Endpoint, error) {
	row := v.Row
	r, known := v.Node(row.Primary)
	switch {
	// Another may have been promoted since: rather no answer than the wrong one. Clients ask another agent then.
	case v.Stale != "":
		return Endpoint{}, fmt.Errorf("%w that is known here: %s", ErrNoPrimary, v.Stale)
	case row.Primary == "":
		return Endpoint{}, fmt.Errorf("%w: shard %q has had none yet", ErrNoPrimary, row.Name)
	case row.Plan != nil && (row.Plan.Phase == Detaching || row.Plan.Phase == Promoting || row.Plan.Phase == Fencing):
		return Endpoint{}, fmt.Errorf("%w: shard %q is failing over (epoch %d, %s)", ErrNoPrimary, row.Name, row.Plan.Epoch, row.Plan.Phase)
	case known && (r.Condition == Down || r.Condition == Quarantined):
		return Endpoint{}, fmt.Errorf("%w: the primary of shard %q, %s, is %s", ErrNoPrimary, row.Name, r.Label(), r.Condition)
	case known && !r.Live() && r.Fence == Closed:
		return Endpoint{}, fmt.Errorf("%w: the primary of shard %q, %s, is closed for writes, and its agent is gone", ErrNoPrimary, row.Name, r.Label())
	// No plan says so while failover is paused.
	case known && !r.Live() && v.isUnreachable(r):
		return Endpoint{}, fmt.Errorf("%w: the primary of shard %q, %s, and its agent are silent: no other agent reaches it", ErrNoPrimary, row.Name, r.Label())
	case known:
		return Endpoint{row.Name, r.ID, r.Client(), row.PrimaryEpoch}, nil
	}
	if m, ok := row.Member(row.Primary); ok {
		return Endpoint{row.Name, m.ID, m.Address, row.PrimaryEpoch}, nil
	}
	return Endpoint{}, fmt.Errorf("%w: nothing is known of the primary of shard %q", ErrNoPrimary, row.Name)
}

// isUnreachable reports whether the live agents of other nodes have lately tried to reach the node, and none had an
// answer: it refuses connections, or was silent for its own timeout.
func (v View) isUnreachable(n Record) bool {
	tried := false
	for _, r := range v.Nodes {
		op, fresh := r.freshOpinion(n.ID, r.Timeout)
		if r.ID == n.ID || !r.Live() || !fresh {
			continue
		}
		if op.Reachability == Reachable || op.Reachability == TimedOut && op.Silence < n.Timeout {
			return false
		}
		tried = true
	}
	return tried
}
