package api

import (
	"context"
	"runtime"

	"github.com/understudy-ha/understudy/cache"
	"github.com/understudy-ha/understudy/internal/prometheus"
)

// cacheCollector reads the counts of the peer when they are asked for. Keys and
// addresses are in no label.
type cacheCollector struct {
	c *cachePart

	requests, links, up                           *prometheus.Desc
	member, partitioned, abstaining, lists, peers *prometheus.Desc
	values                                        []cacheValue
}

// cacheValue is a metric that is one of the peer's own numbers.
type cacheValue struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
	of   func(cache.Stats) float64
}

func newCacheCollector(c *cachePart) *cacheCollector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("understudy_cache_"+name, help, labels, nil)
	}
	out := &cacheCollector{
		c:           c,
		requests:    desc("requests_total", "Requests for values: hit, stale, miss (fetched first), referred to another peer, refused.", "result"),
		up:          desc("up", "1 if the peer runs and reports the state of its cluster."),
		member:      desc("member", "1 if this peer is a member of the cluster."),
		partitioned: desc("partitioned", "1 while this peer reaches no majority of the members and may not fetch."),
		abstaining:  desc("abstaining", "1 while this peer does not vote because it started recently."),
		lists:       desc("other_lists", "Peers whose list of members differs from this peer's."),
		peers:       desc("peers", "Members of the cluster, this one included."),
		links:       desc("links", "Links to the other members, by state.", "state"),
	}
	count := func(name, help string, of func(cache.Stats) float64) {
		out.values = append(out.values, cacheValue{desc(name, help), prometheus.CounterValue, of})
	}
	level := func(name, help string, of func(cache.Stats) float64) {
		out.values = append(out.values, cacheValue{desc(name, help), prometheus.GaugeValue, of})
	}
	level("waiting", "Requests that wait for a value.", func(s cache.Stats) float64 { return float64(s.Waiting) })
	level("keys", "Copies held.", func(s cache.Stats) float64 { return float64(s.Keys) })
	level("bytes", "Memory of keys and values held.", func(s cache.Stats) float64 { return float64(s.Bytes) })
	count("evicted_total", "Copies forgotten to make room.", func(s cache.Stats) float64 { return float64(s.Evicted) })
	count("elections_total", "Elections that this peer stood in.", func(s cache.Stats) float64 { return float64(s.Elections) })
	count("elections_won_total", "Elections that it won.", func(s cache.Stats) float64 { return float64(s.Won) })
	count("elections_yielded_total", "Elections in which it gave way to another candidate.", func(s cache.Stats) float64 { return float64(s.Yielded) })
	count("election_seconds_total", "Time that the elections it won took together.", func(s cache.Stats) float64 { return s.ElectionTime.Seconds() })
	count("fetches_total", "Calls of the source.", func(s cache.Stats) float64 { return float64(s.Fetches) })
	count("fetch_failures_total", "Calls of the source that failed.", func(s cache.Stats) float64 { return float64(s.FetchFailures) })
	count("fetches_aborted_total", "Calls of the source that were given up.", func(s cache.Stats) float64 { return float64(s.FetchAborted) })
	level("fetching", "Calls of the source that are under way.", func(s cache.Stats) float64 { return float64(s.Fetching) })
	count("fetch_seconds_total", "Time that the source took together.", func(s cache.Stats) float64 { return s.FetchTime.Seconds() })
	count("messages_sent_total", "Messages sent to other peers.", func(s cache.Stats) float64 { return float64(s.Sent) })
	count("messages_received_total", "Messages received from other peers.", func(s cache.Stats) float64 { return float64(s.Received) })
	count("messages_dropped_total", "Messages to other peers that found their queue full.", func(s cache.Stats) float64 { return float64(s.Dropped) })
	count("messages_malformed_total", "Messages of other peers that could not be read.", func(s cache.Stats) float64 { return float64(s.Malformed) })
	level("clients", "Connections of clients.", func(s cache.Stats) float64 { return float64(s.Clients) })
	count("client_requests_total", "Requests of clients on the api socket.", func(s cache.Stats) float64 { return float64(s.Requests) })
	count("client_bad_requests_total", "Requests of clients that could not be read.", func(s cache.Stats) float64 { return float64(s.BadRequests) })
	count("partitions_total", "Times that the majority was lost.", func(s cache.Stats) float64 { return float64(s.Partitions) })
	count("saves_total", "Copies written to the storage.", func(s cache.Stats) float64 { return float64(s.Saves) })
	count("save_failures_total", "Copies that could not be written to the storage.", func(s cache.Stats) float64 { return float64(s.SaveFailures) })
	count("removals_total", "Removals carried out.", func(s cache.Stats) float64 { return float64(s.Removals) })
	return out
}

// Describe implements [prometheus.Collector].
func (c *cacheCollector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.requests, c.up, c.member, c.partitioned, c.abstaining, c.lists, c.peers, c.links} {
		out <- d
	}
	for _, v := range c.values {
		out <- v.desc
	}
}

// Collect implements [prometheus.Collector].
func (c *cacheCollector) Collect(out chan<- prometheus.Metric) {
	if c.c.peer == nil {
		return
	}
	s := c.c.peer.Stats()
	for _, v := range c.values {
		out <- prometheus.MustNewConstMetric(v.desc, v.kind, v.of(s))
	}
	for _, r := range []struct {
		result string
		n      int64
	}{{"hit", s.Hits}, {"stale", s.Stales}, {"miss", s.Misses}, {"referred", s.Referred}, {"refused", s.Refused}} {
		out <- prometheus.MustNewConstMetric(c.requests, prometheus.CounterValue, float64(r.n), r.result)
	}
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	ctx, cancel := context.WithTimeout(c.c.running, scrapeWithin)
	defer cancel()
	view, err := c.c.peer.Cluster(ctx)
	gauge(c.up, oneIf(err == nil))
	if err != nil {
		return
	}
	gauge(c.member, oneIf(view.Member))
	gauge(c.partitioned, oneIf(view.Partitioned))
	gauge(c.abstaining, oneIf(view.Abstaining))
	gauge(c.peers, float64(len(view.Peers)))
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
	for state, n := range links {
		gauge(c.links, float64(n), state)
	}
}

// buildInfo is what a server without a store says of itself.
func buildInfo(version string) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "understudy_build_info", Help: "Always 1.",
		ConstLabels: prometheus.Labels{"version": version, "goversion": runtime.Version()},
	}, func() float64 { return 1 })
}
