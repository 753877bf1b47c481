package doctor

import (
	"context"
	"slices"
	"strings"

	"github.com/understudy-ha/understudy/api"
	"github.com/understudy-ha/understudy/api/apitype"
	"github.com/understudy-ha/understudy/shard"
)

const shardBook = "docs/shard-runbook.md"

// checkShards finds shards without a primary, and what would keep one from failing over.
func checkShards(ctx context.Context, registry shard.Registry) (out []Finding, err error) {
	const page = 200
	total, fine := 0, 0
	for after := ""; ; {
		views, err := registry.List(ctx, after, page)
		if err != nil {
			return out, err
		}
		for _, v := range views {
			after = v.Row.Name
			s := api.ViewShard(v)
			total++
			if s.Health == string(shard.Fine) {
				fine++
			}
			out = append(out, judgeShard(s)...)
		}
		if len(views) < page {
			break
		}
	}
	if total == 0 {
		return nil, nil
	}
	return append([]Finding{well("shards", "%d of %d have a primary that its agent looks after", fine, total)}, out...), nil
}

func judgeShard(s apitype.Shard) (out []Finding) {
	say := func(f Finding) {
		f.Says = s.Name + ": " + f.Says
		out = append(out, f)
	}
	switch {
	case s.Blocked != "":
		say(bad("shard", "its primary is over and is not replaced: %s", s.Blocked).withAdvice(shardBook+"#blocked", "run: understudy shard show %s; it names the command that helps", s.Name))
	case s.Health == string(shard.Fine):
	case s.Health == string(shard.None):
		say(bad("shard", "it has no primary: %s", s.Reason).withAdvice(shardBook+"#none", "see to its nodes, and start their agents"))
	case s.Health == string(shard.Stuck):
		say(bad("shard", "its primary is silent and may still take writes: %s", s.Reason).withAdvice(shardBook+"#stuck", "make sure that it is dead, then: understudy shard failover %s --force", s.Name))
	case s.Health == string(shard.Unattended):
		say(bad("shard", "its primary is unattended: %s", s.Reason).withAdvice(shardBook+"#unattended", "start its agent"))
	default: // doubtful, or over and being replaced
		say(warn("shard", "its primary is %s: %s", s.Health, s.Reason).withAdvice(shardBook+"#doubtful", "ask again in a few seconds"))
	}
	if s.Paused != nil {
		say(warn("shard", "it does not fail over by itself: paused by %s", s.Paused.By).withAdvice("docs/runbook.md#understudyshardpaused", "run: understudy shard resume %s", s.Name))
	}
	members, versions := 0, map[string]bool{}
	for _, n := range s.Nodes {
		if n.Member {
			members++
		}
		if n.Version != "" {
			versions[n.Version] = true
		}
		for _, f := range judgeNode(n) {
			say(f)
		}
	}
	if members == 1 {
		say(warn("shard", "it has one member: nothing could take over").withAdvice("docs/shard.md#running-it", "add a node with an agent"))
	}
	for _, n := range s.Nodes {
		if n.Primary && members > 1 && n.AgentLives && !n.Armed {
			say(warn("shard", "the fence of its primary is not armed: if it fell silent, an operator would have to decide").
				withAdvice(shardBook+"#stuck", "see that a replica follows: understudy shard topology %s", s.Name))
		}
	}
	if len(versions) > 1 {
		all := make([]string, 0, len(versions))
		for v := range versions {
			all = append(all, v)
		}
		slices.Sort(all)
		say(warn("shard", "its nodes run different versions: %s", strings.Join(all, ", ")).withAdvice("docs/shard.md#maintenance", "finish the upgrade: replicas first, then switch over"))
	}
	return out
}

// judgeNode finds replicas that could not take over.
func judgeNode(n apitype.ShardNode) (out []Finding) {
	say := func(f Finding) { out = append(out, f) }
	switch {
	case !n.AgentLives:
		say(warn("shard", "the agent of %s is silent", n.Address).withAdvice("docs/runbook.md#understudyshardagentsilent", "start it"))
	case n.Condition != string(shard.Up):
		say(warn("shard", "the node %s is %s", n.Address, n.Condition).withAdvice(shardBook+"#trouble-with-a-node", "see to it"))
	case n.Primary:
	case !n.Member:
		say(warn("shard", "%s is no member yet, and cannot be promoted", n.Address).withAdvice(shardBook+"#a-replica-that-never-syncs", "wait for its first copy"))
	case !n.InStep:
		say(warn("shard", "the data of %s is of another lineage: it cannot be promoted", n.Address).withAdvice(shardBook+"#a-replica-that-never-syncs", "look at its log; agents copy it anew by themselves where that loses nothing"))
	case n.LinkUp != nil && !*n.LinkUp:
		say(warn("shard", "%s does not follow the primary: its link is down", n.Address).withAdvice(shardBook+"#trouble-with-a-node", "look at the network between the nodes, and passwords"))
	case n.Priority == 0:
		say(well("shard", "%s is never promoted by itself: its priority is 0", n.Address))
	}
	if n.Trouble != "" {
		say(warn("shard", "%s: %s", n.Address, n.Trouble).withAdvice(shardBook+"#trouble-with-a-node", "see there"))
	}
	return out
}
