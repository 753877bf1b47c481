package api

import (
	"net/http"
	"runtime"

	"github.com/understudy-ha/understudy/internal/prometheus"
	"github.com/understudy-ha/understudy/shard"
)

// ShardAgent is an agent of package shard/agent, as far as it is measured.
type ShardAgent interface{ Status() shard.Status }

// ShardAgentMetrics serves what an agent knows of its node, and what it did, in the format of
// Prometheus. What the store knows of all shards is in the metrics of a [Server].
func ShardAgentMetrics(agent ShardAgent, version string) http.Handler {
	reg := prometheus.NewRegistry()
	reg.MustRegister(
		prometheus.NewGoCollector(), prometheus.NewProcessCollector(),
		newAgentCollector(agent, version),
	)
	return prometheus.Handler(reg, 4)
}

// agentCollector reads an agent's status when it is asked for. Labels are the agent's own
// shard, and words of package shard.
type agentCollector struct {
	agent   ShardAgent
	version string

	build, condition, role, fence, armed, holding, open       *prometheus.Desc
	epoch, txn, lag, linkUp, input, followers, keys           *prometheus.Desc
	blocked, trouble, storeDown, promised, registered, round  *prometheus.Desc
	plans, opened, fenced, deaths, kills, promises, commanded *prometheus.Desc
}

func newAgentCollector(agent ShardAgent, version string) *agentCollector {
	constant := prometheus.Labels{"shard": agent.Status().Shard}
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("understudy_agent_"+name, help, labels, constant)
	}
	return &agentCollector{
		agent: agent, version: version,
		build:      desc("build_info", "Always 1.", "version", "goversion"),
		condition:  desc("node_condition", "1 for the condition of the node.", "condition"),
		role:       desc("node_role", "1 for the role of the node.", "role"),
		fence:      desc("node_fence", "1 for the fence of the node.", "fence"),
		armed:      desc("node_armed", "1 if the node rejects writes by itself once no replica acknowledges them."),
		holding:    desc("holding", "1 while the agent may keep its node open for writes."),
		open:       desc("open", "1 while the node is open for writes."),
		epoch:      desc("epoch", "The highest epoch that the agent knows."),
		txn:        desc("node_txn", "Transaction id of the node; on Redis its replication offset in bytes."),
		lag:        desc("node_lag", "How far the primary was ahead at its last report, in the same unit; of a replica."),
		linkUp:     desc("node_link_up", "1 while the replica's link to its primary is up."),
		input:      desc("node_input_age_seconds", "Time since a replica last received data from its primary."),
		followers:  desc("node_followers", "Replicas of a primary that are online."),
		keys:       desc("node_keys", "Keys in the node."),
		blocked:    desc("blocked", "1 while a failed primary cannot be replaced; the log and GET /status say why."),
		trouble:    desc("trouble", "1 while the node needs attention; GET /status says why."),
		storeDown:  desc("store_down_seconds", "Time since the store stopped answering; 0 while it answers."),
		promised:   desc("promised_seconds", "Time that the agent's promise not to act still lasts."),
		registered: desc("registered", "1 once the store has accepted a record of this run of the agent."),
		round:      desc("loop_age_seconds", "Time since the agent's loop last ran."),
		plans:      desc("plans_total", "Plans that the agent started."),
		opened:     desc("opened_total", "Times that the agent opened its node for writes."),
		fenced:     desc("fenced_total", "Times that the agent closed an open node because its lease or promises had ended."),
		deaths:     desc("deaths_total", "Ends of the node's process that the agent observed."),
		kills:      desc("kills_total", "Hung nodes that the agent killed."),
		promises:   desc("promises_total", "Rounds in which all other agents promised to leave the primary as it is while the store was down."),
		commanded:  desc("commands_total", "Commands that the agent carried out."),
	}
}

// Describe implements [prometheus.Collector].
func (c *agentCollector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		c.build, c.condition, c.role, c.fence, c.armed, c.holding, c.open, c.epoch, c.txn, c.lag, c.linkUp, c.input, c.followers, c.keys,
		c.blocked, c.trouble, c.storeDown, c.promised, c.registered, c.round,
		c.plans, c.opened, c.fenced, c.deaths, c.kills, c.promises, c.commanded,
	} {
		out <- d
	}
}

// Collect implements [prometheus.Collector].
func (c *agentCollector) Collect(out chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	count := func(d *prometheus.Desc, n int64) {
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n))
	}
	s := c.agent.Status()
	gauge(c.build, 1, c.version, runtime.Version())
	for _, v := range []shard.Condition{shard.Up, shard.Loading, shard.Silent, shard.Down, shard.Quarantined} {
		gauge(c.condition, oneIf(s.Condition == v), string(v))
	}
	gauge(c.holding, oneIf(s.Holding))
	gauge(c.open, oneIf(s.Open))
	gauge(c.epoch, float64(s.Epoch))
	gauge(c.blocked, oneIf(s.Blocked != ""))
	gauge(c.trouble, oneIf(s.Trouble != ""))
	gauge(c.storeDown, s.StoreDown.Seconds())
	gauge(c.promised, s.PromisedFor.Seconds())
	gauge(c.registered, oneIf(s.Registered))
	gauge(c.round, s.LoopAge.Seconds())
	count(c.plans, s.Stats.Plans)
	count(c.opened, s.Stats.Opened)
	count(c.fenced, s.Stats.Fenced)
	count(c.deaths, s.Stats.Deaths)
	count(c.kills, s.Stats.Kills)
	count(c.promises, s.Stats.Promised)
	count(c.commanded, s.Stats.Commands)
	if s.State.Role != "" { // it has answered
		c.node(s, gauge)
	}
}

// node collects what the node said last.
func (c *agentCollector) node(s shard.Status, gauge func(*prometheus.Desc, float64, ...string)) {
	for _, v := range []shard.Role{shard.Primary, shard.Replica} {
		gauge(c.role, oneIf(s.State.Role == v), string(v))
	}
	for _, v := range []shard.Fence{shard.Open, shard.Armed, shard.Closed} {
		gauge(c.fence, oneIf(s.State.Fence == v), string(v))
	}
	own, _ := s.View.Node(s.NodeID)
	gauge(c.armed, oneIf(own.Armed))
	gauge(c.txn, float64(s.State.Txn))
	gauge(c.keys, float64(s.State.Keys))
	if s.State.Role == shard.Primary {
		online := 0
		for _, f := range s.State.Followers {
			if f.Online {
				online++
			}
		}
		gauge(c.followers, float64(online))
		return
	}
	if p, ok := s.View.Node(s.View.Row.Primary); ok && p.Lineage.ID == s.State.Lineage.ID {
		gauge(c.lag, float64(max(0, p.Txn-s.State.Txn)))
	}
	if l := s.State.Link; l != nil {
		gauge(c.linkUp, oneIf(l.Up))
		if l.Input >= 0 {
			gauge(c.input, l.Input.Seconds())
		}
	}
}
