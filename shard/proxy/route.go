package proxy

import (
	"cmp"
	"slices"

	"github.com/understudy-ha/understudy/shard"
)

// target is a node to which a client is led. Another epoch is another target: whoever was
// connected before it may have seen what was lost.
type target struct {
	node, address string
	epoch         int64 // 0 of a replica
}

// targets are the nodes that new connections may lead to, or why there are none.
func targets(v shard.View, r Route) ([]target, error) {
	if r == Replicas {
		if all := replicas(v); len(all) > 0 {
			return all, nil
		}
	}
	e, err := v.PrimaryEndpoint()
	if err != nil {
		return nil, err
	}
	return []target{{e.NodeID, e.Address, e.Epoch}}, nil
}

// replicas that have a whole copy and follow the primary.
func replicas(v shard.View) []target {
	var out []target
	for _, r := range v.Nodes {
		if readable(v, r) && r.Link != nil && r.Link.Up && r.PrimaryID == v.Row.Primary {
			out = append(out, target{r.ID, r.Client(), 0})
		}
	}
	return out
}

// readable tells that a node answers reads of the shard.
func readable(v shard.View, r shard.Record) bool {
	return r.ID != v.Row.Primary && r.Role == shard.Replica && r.Live() && r.Condition == shard.Up && r.Synced
}

// stays reports whether a connection to the target may continue. Readers may stay at a replica
// that was promoted, or lost its link for a moment; at a primary only while it is one.
func (t target) stays(v shard.View) bool {
	e, err := v.PrimaryEndpoint()
	if err == nil && e.NodeID == t.node && e.Address == t.address && (t.epoch == 0 || e.Epoch == t.epoch) {
		return true
	}
	if t.epoch != 0 {
		return false
	}
	r, ok := v.Node(t.node)
	return ok && readable(v, r) && r.Client() == t.address
}

// least is the target with the fewest connections; those that have been tried come last.
func least(all []target, used map[target]int, tried map[target]int) target {
	return slices.MinFunc(all, func(a, b target) int {
		return cmp.Or(cmp.Compare(tried[a], tried[b]), cmp.Compare(used[a], used[b]), cmp.Compare(a.node, b.node))
	})
}
