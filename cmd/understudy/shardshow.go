package main

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/understudy-ha/understudy/api/apitype"
	"github.com/understudy-ha/understudy/internal/shardagent"
	"github.com/understudy-ha/understudy/internal/termtext"
	"github.com/understudy-ha/understudy/shard"
)

func (a *app) shardShowCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "show SHARD",
		Short: "Show all that is known of a shard: its nodes, its plan, the latest failover",
		Long: `Show all that is known of a shard. A node's fence is open (it accepts writes while it is the primary),
armed (it refuses them by itself once no replica acknowledges) or closed. TXN is its transaction id, in bytes of
replication on Redis; LAG is how far the primary was ahead of it when both reported last.`,
		Example: `  understudy shard show orders
  understudy shard show orders -o json | jq .last`,
		Args: startingWith(shard.ValidateName, "SHARD"),
		RunE: func(c *cobra.Command, args []string) error {
			return a.showShard(c.Context(), args[0], func(s shardSeen) error {
				if a.json() {
					return a.printJSON(s.Shard)
				}
				return a.printShard(s)
			})
		},
	}
}

func (a *app) printShard(s shardSeen) error {
	if err := a.printShardHead(s.Shard); err != nil {
		return err
	}
	fmt.Fprintln(a.stdout)
	var rows []string
	for _, n := range s.Nodes {
		rows = append(rows, row(n.Address, shardagent.ShortID(n.ID), nodeRole(s.Shard, n), nodeCondition(n), n.Txn, nodeLag(n), shortLineage(n.Lineage), n.Fence, n.Priority, n.Keys, n.Version, agentText(n)))
	}
	err := a.table("NODE\tID\tROLE\tCONDITION\tTXN\tLAG\tLINEAGE\tFENCE\tPRIORITY\tKEYS\tVERSION\tAGENT", rows)
	return errors.Join(err, a.printTroubles(s.Shard), a.printPlan("under way", s, s.Plan), a.printPlan("latest", s, s.Last))
}

// printShardHead prints what is known of a shard as a whole, each fact on its line, uncut.
func (a *app) printShardHead(s apitype.Shard) error {
	primary, holder := "none: "+s.Why, ""
	if s.Primary != nil {
		primary = fmt.Sprintf("%s (%s), since epoch %d", s.Primary.Address, shardagent.ShortID(s.Primary.NodeID), s.Primary.Epoch)
	}
	if s.Holder != "" {
		holder = fmt.Sprintf("%s, term %d, %s left", s.Holder, s.Term, termtext.Brief(time.Duration(s.LeftMS)*time.Millisecond))
	}
	health := s.Health
	if s.Health != string(shard.Fine) {
		health += ": " + s.Reason
	}
	switch {
	case s.Blocked != "" && s.Health == string(shard.Stuck) && s.Paused == nil: // then it repeats the reason, and says what to do
		health = s.Health + ": " + s.Blocked
	case s.Blocked != "":
		health += ". " + s.Blocked
	}
	facts := [][2]string{{"shard", s.Name}, {"primary", primary}, {"health", health}, {"lease", holder}}
	if p := s.Paused; p != nil {
		facts = append(facts, [2]string{"paused", fmt.Sprintf("by %s since %s%s; go on with: understudy shard resume %s", p.By, when(p.Since), after(": ", p.Reason), s.Name)})
	}
	if q := s.Request; q != nil {
		facts = append(facts, [2]string{"asked for", fmt.Sprintf("%s, by %s at %s", q.Kind, q.By, when(q.At))})
	}
	return a.printFacts(facts)
}

func (a *app) printTroubles(s apitype.Shard) error {
	for _, n := range s.Nodes {
		if n.Trouble == "" {
			continue
		}
		if _, err := fmt.Fprintf(a.stdout, "\n%s: %s\n", termtext.Text(n.Address), termtext.Text(n.Trouble)); err != nil {
			return err
		}
	}
	return nil
}

// printPlan prints a plan with its steps, if there is one.
func (a *app) printPlan(which string, s shardSeen, p *apitype.ShardPlan) error {
	if p == nil {
		return nil
	}
	var b strings.Builder
	fmt.Fprintf(&b, "\n%s: %s, epoch %d", which, p.Kind, p.Epoch)
	if p.Force {
		b.WriteString(", forced")
	}
	if p.From != "" || p.To != "" {
		fmt.Fprintf(&b, ", %s → %s", shardagent.Label(s.Shard, p.From), shardagent.Label(s.Shard, cmp.Or(p.To, p.Wanted)))
	}
	fmt.Fprintf(&b, "\n  began %s: %s\n", when(p.Began), p.Reason)
	for _, step := range p.Steps {
		fmt.Fprintf(&b, "  %-10s %8s  %s\n", step.Phase, termtext.Brief(millis(step.TookMS)), step.Note)
	}
	switch {
	case p.Ended.IsZero():
		fmt.Fprintf(&b, "  %-10s for %s, by the agent of %s\n", p.Phase, termtext.Brief(max(0, s.at.Sub(p.Began))), shardagent.Label(s.Shard, p.ByNode))
	case p.Failed != "":
		fmt.Fprintf(&b, "  failed: %s\n", p.Failed)
	default:
		fmt.Fprintf(&b, "  done in %s\n", termtext.Brief(millis(p.TookMS)))
	}
	_, err := fmt.Fprint(a.stdout, termtext.Text(b.String()))
	return err
}

func shortLineage(id string) string { return id[:min(8, len(id))] }

// nodeRole is what the node is, seen from its shard.
func nodeRole(s apitype.Shard, n apitype.ShardNode) string {
	switch {
	case n.Role == "":
		return "unknown"
	case n.Primary, s.Health == string(shard.None):
		return n.Role
	case n.Role == string(shard.Primary):
		return "primary (deposed)"
	case !n.Member:
		return "replica (joining)"
	}
	return n.Role
}

// nodeCondition is as its agent last reported it.
func nodeCondition(n apitype.ShardNode) string {
	if !n.AgentLives && n.Condition != "" {
		return "was " + n.Condition
	}
	return n.Condition
}

func nodeLag(n apitype.ShardNode) string {
	if n.Primary || n.Role != string(shard.Replica) {
		return ""
	}
	return fmt.Sprint(n.Lag)
}

func agentText(n apitype.ShardNode) string {
	if n.AgentLives {
		return "up"
	}
	if n.Condition == "" { // it has no record whose age could be told
		return "silent"
	}
	return "silent for " + termtext.Brief(time.Duration(n.AgeMS)*time.Millisecond)
}

func (a *app) shardTopologyCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "topology SHARD",
		Short: "Show who follows whom",
		Long: `Show the primary, the replicas that follow it, and the nodes that are outside: those that follow
no node of the shard, are silent, or are not allowed in.`,
		Example: "  understudy shard topology orders",
		Args:    startingWith(shard.ValidateName, "SHARD"),
		RunE: func(c *cobra.Command, args []string) error {
			return a.showShard(c.Context(), args[0], func(s shardSeen) error {
				return printAs(a, s.Shard, a.printTopology)
			})
		},
	}
}

// printTopology prints the tree below the primary, and then the others.
func (a *app) printTopology(s apitype.Shard) error {
	head := fmt.Sprintf("%s: %s", s.Name, s.Health)
	if s.Health != string(shard.Fine) {
		head += ", " + s.Reason
	}
	if note := shardNote(s); s.Plan != nil || s.Request != nil || s.Paused != nil {
		head += "; " + note
	}
	if _, err := fmt.Fprintln(a.stdout, termtext.Text(head)); err != nil {
		return err
	}
	t := topology{of: s, seen: map[string]bool{}}
	for _, n := range s.Nodes {
		if n.Primary {
			t.add("", "", n)
		}
	}
	for _, n := range s.Nodes {
		if t.seen[n.ID] {
			continue
		}
		if !t.outside && len(t.rows) > 0 {
			t.rows = append(t.rows, strings.Repeat("\t", strings.Count(t.rows[0], "\t")))
		}
		t.outside = true
		t.add("○ ", "  ", n)
	}
	return a.table("NODE\tROLE\tCONDITION\tTXN\tLAG\tLINK\tLINEAGE\tFENCE\tAGENT\tNOTE", t.rows)
}

// topology is a tree that is being laid out.
type topology struct {
	of   apitype.Shard
	seen map[string]bool
	rows []string
	// outside: nodes below this row follow nobody of the shard.
	outside bool
}

// add lays out a node behind its branch, and those that follow it below.
func (t *topology) add(branch, below string, n apitype.ShardNode) {
	t.seen[n.ID] = true
	t.rows = append(t.rows, row(branch+n.Address+" ("+shardagent.ShortID(n.ID)+")", nodeRole(t.of, n), nodeCondition(n), n.Txn, nodeLag(n), linkText(n),
		shortLineage(n.Lineage), n.Fence, agentText(n), termtext.Line(n.Trouble)))
	var followers []apitype.ShardNode
	for _, f := range t.of.Nodes {
		if f.Follows == n.ID && !t.seen[f.ID] && f.LinkUp != nil && *f.LinkUp && f.AgentLives {
			followers = append(followers, f)
		}
	}
	for i, f := range followers {
		if i == len(followers)-1 {
			t.add(below+"└─ ", below+"   ", f)
		} else {
			t.add(below+"├─ ", below+"│  ", f)
		}
	}
}

func linkText(n apitype.ShardNode) string {
	switch {
	case n.LinkUp == nil:
		return ""
	case n.Syncing:
		return "copying"
	case *n.LinkUp && n.CopyMS > 0:
		return fmt.Sprintf("up (a copy of %.1f MiB took %v)", float64(n.CopyBytes)/(1<<20), time.Duration(n.CopyMS)*time.Millisecond)
	case *n.LinkUp:
		return "up"
	}
	return "down"
}
