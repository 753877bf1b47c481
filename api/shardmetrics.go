package api

import (
	"time"

	"github.com/understudy-ha/understudy/api/apitype"
	"github.com/understudy-ha/understudy/internal/prometheus"
	"github.com/understudy-ha/understudy/shard"
)

const (
	// maxShardLabels is how many shards have metrics of their own: the first by name. The
	// others are in the totals.
	maxShardLabels = 100
	// failoverWindow is the time over which failovers are counted.
	failoverWindow = time.Hour
	// shardsTrusted is the age from which shards that cannot be read have no metrics, as in UnderstudyShardsUnknown.
	shardsTrusted = 10 * time.Second
)

// collect adds what the catalog knows. Labels are the names of shards, and ids and addresses of their nodes; there are
// few, and they are bounded.
func (p *shardPart) collect(m prometheus.Scrape) {
	if p.catalog == nil {
		return
	}
	m = m.With("understudy_")
	age, err := p.catalog.Freshness()
	if age > 0 {
		m.Gauge("shards_age_seconds", "Age of this server's knowledge of the shards.", age.Seconds())
	}
	// Alerts take the maximum over all servers: one that is cut off from the store must not contradict the others with what was
	// so before. A single call that fails leaves no gap, which would restart the time for which an alert waits.
	if err != nil && (age == 0 || age > shardsTrusted) {
		return
	}
	totals := map[string]int{}
	for i, v := range p.catalog.Shards() {
		s := ViewShard(v)
		totals[s.Health]++
		if i < maxShardLabels {
			collectShard(m, s, v)
		}
	}
	for _, h := range []shard.Health{shard.Fine, shard.Unattended, shard.Doubtful, shard.Replaceable, shard.Stuck, shard.None} {
		m.Gauge("shards", "Shards, by the health of their primary.", float64(totals[string(h)]), "health", string(h))
	}
}

func collectShard(m prometheus.Scrape, s apitype.Shard, v shard.View) {
	m = m.With("shard_", "shard", s.Name)
	m.Flag("up", "1 while the shard has a primary that its agent looks after.", s.Primary != nil && s.Health == string(shard.Fine))
	m.Gauge("epoch", "Epoch under which the primary was opened.", float64(s.Epoch))
	m.Flag("blocked", "1 while a failed primary cannot be replaced; an operator has to decide.", s.Blocked != "")
	m.Flag("paused", "1 while the shard does not fail over by itself.", s.Paused != nil)
	m.Flag("plan_under_way", "1 while the primary is being changed.", s.Plan != nil)
	recent := 0
	for _, at := range v.Row.Failovers {
		if v.Now.Sub(at) < failoverWindow {
			recent++
		}
	}
	m.Gauge("failovers_last_hour", "Automatic failovers that reached a new primary within the last hour.", float64(recent))
	if l := v.Row.Last; l != nil && l.Failed == "" && (l.Kind == shard.Failover || l.Kind == shard.Switchover) {
		m.Gauge("last_change_seconds", "How long the latest failover or switchover that succeeded took until there was a new primary.", l.UntilPrimary().Seconds(), "kind", string(l.Kind))
	}
	for _, n := range s.Nodes[:min(len(s.Nodes), shard.MaxMembers)] {
		if n.Role != "" { // an agent reports it
			collectShardNode(m.With("node_", "node", n.ID, "address", n.Address), n)
		}
	}
}

func collectShardNode(m prometheus.Scrape, n apitype.ShardNode) {
	m.Gauge("agent_age_seconds", "How long ago the node's agent last reported.", float64(n.AgeMS)/1000)
	m.Flag("agent_up", "1 while the node's agent reports in time.", n.AgentLives)
	m.Flag("primary", "1 for the node that the shard names as its primary.", n.Primary)
	m.Flag("up", "1 while the node answers its agent and serves.", n.AgentLives && n.Condition == string(shard.Up))
	m.Gauge("txn", "Transaction id of the node; on Redis its replication offset in bytes.", float64(n.Txn))
	m.Gauge("priority", "Which of two equal replicas is promoted: the higher; 0 never by itself.", float64(n.Priority))
	if !n.Primary && n.InStep {
		m.Gauge("lag", "How far the primary was ahead, in the same unit; of a replica of its lineage.", float64(n.Lag))
	}
	if n.LinkUp != nil {
		m.Flag("link_up", "Whether the replica's link to its primary is up.", *n.LinkUp)
	}
	for _, f := range []shard.Fence{shard.Open, shard.Armed, shard.Closed} {
		m.Flag("fence", "1 for the fence of the node.", n.Fence == string(f), "fence", string(f))
	}
}
