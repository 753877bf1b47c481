package main

import (
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

// forcedLossOf is about the node that an operator named, or else the one with the most that is not the primary. It is
// false when there is none.
func forcedLossOf(s apitype.Shard, to string) (f forcedLoss, ok bool) {
	for _, n := range s.Nodes {
		named := n.ID == to || n.Address == to || n.Private == to && to != "" || len(to) >= 4 && len(n.ID) >= len(to) && n.ID[:len(to)] == to
		best := to == "" && !n.Primary && n.Member && n.AgentLives && (!ok || n.Txn > f.chosen.Txn)
		if named || best {
			f.chosen, ok = n, true
		}
		if f.most.ID == "" || n.Txn > f.most.Txn {
			f.most = n
		}
	}
	f.lost = max(0, f.most.Txn-f.chosen.Txn)
	return f, ok
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
