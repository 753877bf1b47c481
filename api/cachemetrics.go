package api

import (
	"context"

	"github.com/understudy-ha/understudy/cache"
	"github.com/understudy-ha/understudy/internal/prometheus"
)

// collect adds the counts of the peer. Keys and addresses are in no label.
func (c *cachePart) collect(m prometheus.Scrape) {
	if c.peer == nil {
		return
	}
	m = m.With("understudy_cache_")
	collectCacheStats(m, c.peer.Stats())
	ctx, cancel := context.WithTimeout(c.running, scrapeWithin)
	defer cancel()
	view, err := c.peer.Cluster(ctx)
	m.Flag("up", "1 if the peer runs and reports the state of its cluster.", err == nil)
	if err == nil {
		collectCluster(m, view)
	}
}

func collectCluster(m prometheus.Scrape, view cache.ClusterView) {
	m.Flag("ready", "1 if this peer may fetch; /readyz says why not.", view.Unready == "")
	m.Flag("trouble", "1 while cache peers names something that is wrong.", view.Trouble != "")
	m.Flag("member", "1 if this peer is a member of the cluster.", view.Member)
	m.Flag("partitioned", "1 while this peer reaches no majority of the members and may not fetch.", view.Partitioned)
	m.Flag("abstaining", "1 while this peer does not vote because it started recently.", view.Abstaining)
	m.Gauge("peers", "Members of the cluster, this one included.", float64(len(view.Peers)))
	links := map[string]int{"up": 0, "down": 0, "dead": 0}
	lists := 0
	for _, p := range view.Peers {
		if p.List != "" && p.List != "same" {
			lists++
		}
		if !p.Self {
			links[p.Link]++
		}
	}
	m.Gauge("other_lists", "Peers whose list of members differs from this peer's.", float64(lists))
	for state, n := range links {
		m.Gauge("links", "Links to the other members, by state.", float64(n), "state", state)
	}
}

func collectCacheStats(m prometheus.Scrape, s cache.Stats) {
	for result, n := range map[string]int64{"hit": s.Hits, "stale": s.Stales, "miss": s.Misses, "referred": s.Referred, "refused": s.Refused} {
		m.Counter("requests_total", "Requests for values: hit, stale, miss (fetched first), referred to another peer, refused.", float64(n), "result", result)
	}
	m.Gauge("waiting", "Requests that wait for a value.", float64(s.Waiting))
	m.Gauge("keys", "Copies held.", float64(s.Keys))
	m.Gauge("bytes", "Memory of keys and values held.", float64(s.Bytes))
	m.Counter("evicted_total", "Copies forgotten to make room.", float64(s.Evicted))
	m.Counter("elections_total", "Elections that this peer stood in.", float64(s.Elections))
	m.Counter("elections_won_total", "Elections that it won.", float64(s.Won))
	m.Counter("elections_yielded_total", "Elections in which it gave way to another candidate.", float64(s.Yielded))
	m.Counter("election_seconds_total", "Time that the elections it won took together.", s.ElectionTime.Seconds())
	m.Counter("fetches_total", "Calls of the origin.", float64(s.Fetches))
	m.Counter("fetch_failures_total", "Calls of the origin that failed.", float64(s.FetchFailures))
	m.Counter("fetches_aborted_total", "Calls of the origin that were given up.", float64(s.FetchAborted))
	m.Gauge("fetching", "Calls of the origin that are under way.", float64(s.Fetching))
	m.Counter("fetch_seconds_total", "Time that the origin took together.", s.FetchTime.Seconds())
	m.Counter("messages_sent_total", "Messages sent to other peers.", float64(s.Sent))
	m.Counter("messages_received_total", "Messages received from other peers.", float64(s.Received))
	m.Counter("messages_dropped_total", "Messages to other peers that found their queue full.", float64(s.Dropped))
	m.Counter("messages_malformed_total", "Messages of other peers that could not be read.", float64(s.Malformed))
	m.Gauge("clients", "Connections of clients.", float64(s.Clients))
	m.Counter("clients_slow_total", "Clients that were disconnected because they did not read their replies.", float64(s.Slow))
	m.Counter("connections_refused_total", "Connections of clients and peers that were closed because there were too many.", float64(s.ConnsRefused))
	m.Counter("connections_failed_total", "Connections of clients and peers that failed in the handshake (another key or protocol, none in time) or broke the protocol.", float64(s.ConnsFailed))
	m.Counter("client_requests_total", "Requests of clients on the api socket.", float64(s.Requests))
	m.Counter("client_bad_requests_total", "Requests of clients that could not be read.", float64(s.BadRequests))
	m.Counter("partitions_total", "Times that the majority was lost.", float64(s.Partitions))
	m.Counter("saves_total", "Copies written to the storage.", float64(s.Saves))
	m.Counter("save_failures_total", "Copies that could not be written to the storage.", float64(s.SaveFailures))
	m.Counter("removals_total", "Removals carried out.", float64(s.Removals))
}
