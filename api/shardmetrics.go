package api

import (
	"strings"
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
)

// shardCollector reads what the directory knows when it is asked for. Labels are the names of
// shards, and ids and addresses of their nodes; there are few, and they are bounded.
type shardCollector struct {
	p *shardPart

	total, fresh                                                *prometheus.Desc
	up, epoch, blocked, paused, underWay, failovers, took       *prometheus.Desc
	age, live, primary, nodeUp, txn, lag, link, fence, priority *prometheus.Desc
}

func newShardCollector(p *shardPart) *shardCollector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("understudy_"+name, help, labels, nil)
	}
	one := func(name, help string, labels ...string) *prometheus.Desc {
		return desc("shard_"+name, help, append([]string{"shard"}, labels...)...)
	}
	node := func(name, help string, labels ...string) *prometheus.Desc {
		return one("node_"+name, help, append([]string{"node", "address"}, labels...)...)
	}
	return &shardCollector{
		p:     p,
		total: desc("shards", "Shards, by the health of their primary.", "health"),
		fresh: desc("shards_age_seconds", "Age of this server's knowledge of the shards."),

		up:        one("up", "1 while the shard has a primary that its agent looks after."),
		epoch:     one("epoch", "Epoch under which the primary was opened."),
		blocked:   one("blocked", "1 while a failed primary cannot be replaced; an operator has to decide."),
		paused:    one("paused", "1 while the shard does not fail over by itself."),
		underWay:  one("plan_under_way", "1 while the primary is being changed."),
		failovers: one("failovers_last_hour", "Automatic failovers that reached a new primary within the last hour."),
		took:      one("last_change_seconds", "How long the latest failover or switchover that succeeded took until there was a new primary.", "kind"),

		age:      node("agent_age_seconds", "How long ago the node's agent last reported."),
		live:     node("agent_up", "1 while the node's agent reports in time."),
		primary:  node("primary", "1 for the node that the shard names as its primary."),
		nodeUp:   node("up", "1 while the node answers its agent and serves."),
		txn:      node("txn", "Transaction id of the node; on Redis its replication offset in bytes."),
		lag:      node("lag", "How far the primary was ahead, in the same unit; of a replica of its lineage."),
		link:     node("link_up", "Whether the replica's link to its primary is up."),
		fence:    node("fence", "1 for the fence of the node.", "fence"),
		priority: node("priority", "Which of two equal replicas is promoted: the higher; 0 never."),
	}
}

// Describe implements [prometheus.Collector].
func (c *shardCollector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		c.total, c.fresh, c.up, c.epoch, c.blocked, c.paused, c.underWay, c.failovers, c.took,
		c.age, c.live, c.primary, c.nodeUp, c.txn, c.lag, c.link, c.fence, c.priority,
	} {
		out <- d
	}
}

// Collect implements [prometheus.Collector].
func (c *shardCollector) Collect(out chan<- prometheus.Metric) {
	if c.p.dir == nil {
		return
	}
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		for i := range labels {
			labels[i] = strings.ToValidUTF8(labels[i], "?")
		}
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	totals := map[string]int{}
	for i, v := range c.p.dir.Shards() {
		s := ViewShard(v, 0)
		totals[s.Health]++
		if i < maxShardLabels {
			c.shard(s, v, gauge)
		}
	}
	for _, h := range []shard.Health{shard.Fine, shard.Unattended, shard.Doubtful, shard.Replaceable, shard.Stuck, shard.None} {
		gauge(c.total, float64(totals[string(h)]), string(h))
	}
	if age, _ := c.p.freshness(); age > 0 {
		gauge(c.fresh, age.Seconds())
	}
}

func (c *shardCollector) shard(s apitype.Shard, v shard.View, gauge func(*prometheus.Desc, float64, ...string)) {
	gauge(c.up, oneIf(s.Primary != nil && s.Health == string(shard.Fine)), s.Name)
	gauge(c.epoch, float64(s.Epoch), s.Name)
	gauge(c.blocked, oneIf(s.Blocked != ""), s.Name)
	gauge(c.paused, oneIf(s.Paused != nil), s.Name)
	gauge(c.underWay, oneIf(s.Plan != nil), s.Name)
	recent := 0
	for _, at := range v.Row.Failovers {
		if v.Now.Sub(at) < failoverWindow {
			recent++
		}
	}
	gauge(c.failovers, float64(recent), s.Name)
	if l := v.Row.Last; l != nil && l.Failed == "" && (l.Kind == shard.Failover || l.Kind == shard.Switchover) {
		took := time.Duration(0)
		for _, step := range l.Steps {
			if step.Phase != shard.Following {
				took += step.Took
			}
		}
		gauge(c.took, took.Seconds(), s.Name, string(l.Kind))
	}
	for _, n := range s.Nodes[:min(len(s.Nodes), shard.MaxMembers)] {
		if n.Role == "" {
			continue // no agent reports it
		}
		gauge(c.age, float64(n.AgeMS)/1000, s.Name, n.ID, n.Address)
		gauge(c.live, oneIf(n.AgentLives), s.Name, n.ID, n.Address)
		gauge(c.primary, oneIf(n.Primary), s.Name, n.ID, n.Address)
		gauge(c.nodeUp, oneIf(n.AgentLives && n.Condition == string(shard.Up)), s.Name, n.ID, n.Address)
		gauge(c.txn, float64(n.Txn), s.Name, n.ID, n.Address)
		gauge(c.priority, float64(n.Priority), s.Name, n.ID, n.Address)
		if !n.Primary && n.InStep {
			gauge(c.lag, float64(n.Lag), s.Name, n.ID, n.Address)
		}
		if n.LinkUp != nil {
			gauge(c.link, oneIf(*n.LinkUp), s.Name, n.ID, n.Address)
		}
		for _, f := range []shard.Fence{shard.Open, shard.Armed, shard.Closed} {
			gauge(c.fence, oneIf(n.Fence == string(f)), s.Name, n.ID, n.Address, string(f))
		}
	}
}
