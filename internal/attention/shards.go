package attention

import (
	"cmp"
	"slices"
	"strings"

	"github.com/understudy-ha/understudy/api/apitype"
	"github.com/understudy-ha/understudy/shard"
)

// How soon a shard needs attention: the numbers of [apitype.Shard].Alarm, which the page knows, too.
const (
	calm   = iota
	minor  // a node is not as it should be, or the shard is paused
	moving // a change of primary is asked for or under way
	major  // it has a primary without a live agent
	severe // it has none, or nothing is done about one that has ended
)

// Shard judges a shard, as a whole first, and how soon it needs attention.
func Shard(s apitype.Shard) (alarm int, out []Need) {
	add := func(n Need) { out = append(out, n) }
	alarm, whole := judgePrimary(s)
	if whole.What != "" {
		add(whole)
	}
	if s.Paused != nil {
		alarm = max(alarm, minor)
		paused := need(Warn, "shard", s.Name, "Paused by %s: it does not fail over by itself", s.Paused.By)
		paused.Minor = len(out) > 0 // what is wrong already says so, or matters more
		add(paused.withAdvice("docs/runbook.md#understudyshardpaused", "run: understudy shard resume %s", s.Name))
	}
	for _, n := range s.Nodes {
		if found := judgeNode(s.Name, n); len(found) > 0 {
			alarm = max(alarm, minor)
			out = append(out, found...)
		}
	}
	return alarm, append(out, judgeSetup(s)...)
}

// judgePrimary judges the primary, and what is done about one that has ended.
func judgePrimary(s apitype.Shard) (alarm int, n Need) {
	health, changes := shard.Health(s.Health), s.Plan != nil || s.Request != nil
	soon := func(otherwise int) int {
		if changes {
			return moving
		}
		return otherwise
	}
	say := func(severity, format string, args ...any) Need {
		return need(severity, "shard", s.Name, format, args...)
	}
	none := strings.TrimPrefix(cmp.Or(s.Why, s.Reason), "shard: no primary: ")
	switch {
	case s.Blocked != "":
		alarm, n = severe, say(Bad, "It is not replaced: %s", s.Blocked).
			withAdvice("docs/shard-runbook.md#blocked", "run: understudy shard show %s; it names the command that helps", s.Name)
	case health == shard.Stuck:
		alarm, n = severe, say(Bad, "Its primary is silent and may still take writes: %s", s.Reason).
			withAdvice("docs/shard-runbook.md#stuck", "make sure that it is dead, then: understudy shard failover %s --force", s.Name)
	case s.Primary == nil && s.Plan == nil:
		alarm, n = severe, say(Bad, "No primary: %s", none).withAdvice("docs/shard-runbook.md#none", "see to its nodes, and start their agents")
	case health == shard.Unattended:
		alarm, n = major, say(Bad, "Its primary is unattended: %s", s.Reason).withAdvice("docs/shard-runbook.md#unattended", "start its agent")
	case health == shard.Doubtful:
		alarm, n = soon(major), say(Warn, "In doubt whether its primary has ended: %s", s.Reason).
			withAdvice("docs/shard-runbook.md#doubtful", "ask again in a few seconds")
	case health == shard.Replaceable:
		alarm, n = soon(major), say(Warn, "Its primary has ended, and is being replaced: %s", s.Reason).minor().
			withAdvice("docs/shard-runbook.md#doubtful", "ask again in a few seconds")
	case s.Primary == nil: // a plan is about to make one
		alarm, n = moving, say(Warn, "No primary: %s", none).minor().withAdvice("docs/shard-runbook.md#doubtful", "ask again in a few seconds")
	default:
		alarm = soon(calm)
	}
	if s.Primary == nil {
		n.Unheld = none
	}
	return alarm, n
}

// judgeNode finds out why a replica could not take over.
func judgeNode(name string, n apitype.ShardNode) (out []Need) {
	say := func(see, do, format string, args ...any) {
		out = append(out, need(Warn, "shard", name, format, args...).minor().withAdvice(see, "%s", do))
	}
	const trouble, sync = "docs/shard-runbook.md#trouble-with-a-node", "docs/shard-runbook.md#a-replica-that-never-syncs"
	switch {
	case !n.AgentLives:
		say("docs/runbook.md#understudyshardagentsilent", "start it", "the agent of %s is silent", n.Address)
	case n.Condition != string(shard.Up):
		say(trouble, "see to it", "the node %s is %s", n.Address, n.Condition)
	case n.Primary:
	case !n.Member:
		say(sync, "wait for its first copy", "%s is not a member yet, and cannot be promoted", n.Address)
	case !n.InStep:
		say(sync, "look at its log; agents copy it again by themselves where that loses nothing", "the data of %s is of another lineage: it cannot be promoted", n.Address)
	case n.LinkUp != nil && !*n.LinkUp:
		say(trouble, "look at the network between the nodes, and passwords", "%s does not follow the primary: its link is down", n.Address)
	}
	if n.Trouble != "" {
		say(trouble, "see there", "%s: %s", n.Address, n.Trouble)
	}
	return out
}

// judgeSetup finds what would keep a shard that is well from failing over by itself.
func judgeSetup(s apitype.Shard) (out []Need) {
	add := func(n Need) { out = append(out, n.minor()) }
	members, primary, versions := 0, apitype.ShardNode{}, []string{}
	for _, n := range s.Nodes {
		if n.Member {
			members++
		}
		if n.Primary {
			primary = n
		}
		if n.Version != "" {
			versions = append(versions, n.Version)
		}
	}
	if members == 1 {
		add(need(Warn, "shard", s.Name, "it has one member: nothing could take over").withAdvice("docs/shard.md#running-it", "add a node with an agent"))
	}
	if members > 1 && primary.AgentLives && !primary.Armed {
		add(need(Warn, "shard", s.Name, "the fence of its primary is not armed: if it fell silent, an operator would have to decide").
			withAdvice("docs/shard-runbook.md#stuck", "see that a replica follows: understudy shard topology %s", s.Name))
	}
	slices.Sort(versions)
	if versions = slices.Compact(versions); len(versions) > 1 {
		add(need(Warn, "shard", s.Name, "its nodes run different versions: %s", strings.Join(versions, ", ")).
			withAdvice("docs/shard.md#maintenance", "finish the upgrade: replicas first, then switch over"))
	}
	return out
}
