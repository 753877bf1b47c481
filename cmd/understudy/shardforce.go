package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"

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
		f, ok, err := forcedLossOf(s.Shard, to)
		if err != nil || !ok || allowed >= f.lost {
			return err // a node that is not there, the server refuses
		}
		return fmt.Errorf("%w: %s", shard.ErrFailed, f.text(s.Shard, to))
	}))
}

// forcedLoss is what a forced failover would destroy, as far as the nodes' reports tell.
type forcedLoss struct {
	chosen, most apitype.ShardNode // who would continue, and who has the most
	lost         int64
}

// forcedLossOf is about the node that an operator named, or else the one that the agents would choose: which that is, the
// server says. ok is false when there is no node of the name.
func forcedLossOf(s apitype.Shard, to string) (f forcedLoss, ok bool, err error) {
	chosen := cmp.Or(to, s.Successor)
	if chosen == "" {
		return f, false, fmt.Errorf("%w: %s", shard.ErrFailed,
			cmp.Or(s.NoSuccessor, "the server is of an earlier version, and does not say which replica would be promoted; upgrade it, or name one: --to NODE"))
	}
	for _, n := range s.Nodes {
		named := n.ID == chosen || n.Address == chosen || n.Private == chosen || len(chosen) >= 4 && strings.HasPrefix(n.ID, chosen)
		if named && !ok { // of two with one address the agents take the first, too
			f.chosen, ok = n, true
		}
	}
	f.most = f.chosen
	for _, n := range s.Nodes {
		if lost := lossOf(n, f.chosen, to); lost > f.lost {
			f.most, f.lost = n, lost
		}
	}
	return f, ok, nil
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
	return text + fmt.Sprintf("what is written to any other node until that follows. To go on: understudy shard failover %s%s --force --max-loss %d", s.Name, to, f.lost)
}
