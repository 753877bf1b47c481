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
	return prometheus.Handler(func(m prometheus.Scrape) { collectAgent(m, agent.Status(), version) })
}

// collectAgent adds an agent's status. Labels are the agent's own shard, and words of package shard.
func collectAgent(m prometheus.Scrape, s shard.Status, version string) {
	m = m.With("understudy_agent_", "shard", s.Shard)
	m.Gauge("build_info", "Always 1.", 1, "version", version, "goversion", runtime.Version())
	for _, v := range []shard.Condition{shard.Up, shard.Loading, shard.Silent, shard.Down, shard.Quarantined} {
		m.Flag("node_condition", "1 for the condition of the node.", s.Condition == v, "condition", string(v))
	}
	m.Flag("holding", "1 while the agent may keep its node open for writes.", s.Holding)
	m.Flag("open", "1 while the node is open for writes.", s.Open)
	m.Gauge("epoch", "The highest epoch that the agent knows.", float64(s.Epoch))
	m.Flag("blocked", "1 while a failed primary cannot be replaced; the log and GET /status say why.", s.Blocked != "")
	m.Flag("trouble", "1 while the node needs attention; GET /status says why.", s.Trouble != "")
	m.Gauge("store_down_seconds", "Time since the store stopped answering; 0 while it answers.", s.StoreDown.Seconds())
	m.Gauge("promised_seconds", "Time that the agent's promise not to act still lasts.", s.PromisedFor.Seconds())
	m.Flag("registered", "1 once the store has accepted a record of this run of the agent.", s.Registered)
	m.Gauge("loop_age_seconds", "Time since the agent's loop last ran.", s.LoopAge.Seconds())
	m.Counter("plans_total", "Plans that the agent started.", float64(s.Stats.Plans))
	m.Counter("opened_total", "Times that the agent opened its node for writes.", float64(s.Stats.Opened))
	m.Counter("fenced_total", "Times that the agent closed an open node because its lease or promises had ended.", float64(s.Stats.Fenced))
	m.Counter("deaths_total", "Ends of the node's process that the agent observed.", float64(s.Stats.Deaths))
	m.Counter("kills_total", "Hung nodes that the agent killed.", float64(s.Stats.Kills))
	m.Counter("promises_total", "Rounds in which all other agents promised to leave the primary as it is while the store was down.", float64(s.Stats.Promised))
	m.Counter("commands_total", "Commands that the agent carried out.", float64(s.Stats.Commands))
	if s.State.Role != "" { // it has answered
		collectOwnNode(m.With("node_"), s)
	}
}

// collectOwnNode adds what the agent's node said last.
func collectOwnNode(m prometheus.Scrape, s shard.Status) {
	for _, v := range []shard.Role{shard.Primary, shard.Replica} {
		m.Flag("role", "1 for the role of the node.", s.State.Role == v, "role", string(v))
	}
	for _, v := range []shard.Fence{shard.Open, shard.Armed, shard.Closed} {
		m.Flag("fence", "1 for the fence of the node.", s.State.Fence == v, "fence", string(v))
	}
	own, _ := s.View.Node(s.NodeID)
	m.Flag("armed", "1 if the node rejects writes by itself once no replica acknowledges them.", own.Armed)
	m.Gauge("txn", "Transaction id of the node; on Redis its replication offset in bytes.", float64(s.State.Txn))
	m.Gauge("keys", "Keys in the node.", float64(s.State.Keys))
	if s.State.Role == shard.Primary {
		online := 0
		for _, f := range s.State.Followers {
			if f.Online {
				online++
			}
		}
		m.Gauge("followers", "Replicas of a primary that are online.", float64(online))
		return
	}
	if p, ok := s.View.Node(s.View.Row.Primary); ok && p.Lineage.ID == s.State.Lineage.ID {
		m.Gauge("lag", "How far the primary was ahead at its last report, in the same unit; of a replica.", float64(max(0, p.Txn-s.State.Txn)))
	}
	if l := s.State.Link; l != nil {
		m.Flag("link_up", "1 while the replica's link to its primary is up.", l.Up)
		if l.Input >= 0 {
			m.Gauge("input_age_seconds", "Time since a replica last received data from its primary.", l.Input.Seconds())
		}
	}
}
