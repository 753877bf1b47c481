package main

import (
	"cmp"
	"context"
	"fmt"

	"github.com/understudy-ha/understudy/api/apitype"
	"github.com/understudy-ha/understudy/api/client"
	"github.com/understudy-ha/understudy/internal/shardagent"
	"github.com/understudy-ha/understudy/shard"
)

// checkLoss returns nil if a forced failover loses at most what the operator has allowed, and otherwise an error that
// names what would be lost, and the command that allows it.
func (a *app) checkLoss(ctx context.Context, name, to string, allowed int64) error {
	return a.withRunningAPI(ctx, withTimeout(callTimeout, func(ctx context.Context, c *client.Client) error {
		s, err := readShard(ctx, c, name)
		if err != nil {
			return unknownShard(name, err)
		}
		f, ok := forcedLossOf(s.Shard, to)
		if !ok || allowed >= f.lost {
			return nil // who is named, and whether there is one, the agents decide
		}
		return fmt.Errorf("%w: %s", shard.ErrFailed, f.text(s.Shard, to))
	}))
}

// forcedLoss is what a forced failover would destroy, as far as the nodes' reports tell.
type forcedLoss struct {
	chosen, most apitype.ShardNode // who would continue, and who has the most
	lost         int64
}

// forcedLossOf is about the node that an operator named, or else the one that the agents would choose. It is false when
// there is none.
func forcedLossOf(s apitype.Shard, to string) (f forcedLoss, ok bool) {
	for _, n := range s.Nodes {
		named := n.ID == to || n.Address == to || n.Private == to && to != "" || len(to) >= 4 && len(n.ID) >= len(to) && n.ID[:len(to)] == to
		best := to == "" && !n.Primary && n.Member && n.AgentLives && (!ok || comparePromotable(n, f.chosen) > 0)
		if named && !ok || best { // of two with one address the agents take the first, too
			f.chosen, ok = n, true
		}
	}
	f.most = f.chosen
	for _, n := range s.Nodes {
		if lost := lossOf(n, f.chosen, to); lost > f.lost {
			f.most, f.lost = n, lost
		}
	}
	return f, ok
}

// comparePromotable is positive when the agents would rather promote a than b. What they would not promote unless it is
// named comes last.
func comparePromotable(a, b apitype.ShardNode) int {
	rank := func(n apitype.ShardNode) int {
		switch {
		case n.Condition != string(shard.Up) || n.Priority == 0 || n.Syncing:
			return 0
		case !n.InStep: // all of them, after the primary came back with other data
			return 1
		}
		return 2
	}
	return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.Txn, b.Txn), cmp.Compare(a.Priority, b.Priority))
}

// lossOf is how many transactions of a node would be lost if chosen became the primary. A node that an operator names may
// have data of another lineage, whose numbers mean nothing in this one.
func lossOf(n, chosen apitype.ShardNode, to string) int64 {
	switch {
	case !n.Member: // what it has was never the shard's, or came from a member
		return 0
	case to != "" && !chosen.InStep && n.Lineage != chosen.Lineage:
		return n.Txn
	}
	return max(0, n.Txn-chosen.Txn)
}

func (f forcedLoss) text(s apitype.Shard, to string) string {
	have := func(n apitype.ShardNode) string {
		return fmt.Sprintf("%s with %d keys at transaction %d", shardagent.Label(s, n.ID), n.Keys, n.Txn)
	}
	text := fmt.Sprintf("the primary of %s is %s: %s. --force would go on with %s, and destroy ", s.Name, s.Health, s.Reason, have(f.chosen))
	if f.lost > 0 {
		text += fmt.Sprintf("the last %d of %s, and ", f.lost, have(f.most))
	}
	if to != "" {
		to = " --to " + to
	}
	return text + fmt.Sprintf("what is written to any other node until that follows. To go on: understudy shard failover %s%s --force --lose %d", s.Name, to, f.lost)
}
