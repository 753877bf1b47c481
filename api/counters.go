package api

import "github.com/understudy-ha/understudy/internal/prometheus"

// Counter is one count of a part of this process that the API knows nothing else of.
type Counter struct {
	// Name of the metric, such as understudy_dns_limited_total, and what it counts. The same name
	// has the same help and label in every counter.
	Name, Help string
	// Label and Value tell counters of one name apart; "" is none. Values are few.
	Label, Value string
	Count        uint64
}

// countersCollector reads them when they are asked for.
type countersCollector struct{ read func() []Counter }

// Describe says nothing ahead: parts that do not run have no counters.
func (countersCollector) Describe(chan<- *prometheus.Desc) {}

func (c countersCollector) Collect(out chan<- prometheus.Metric) {
	if c.read == nil {
		return
	}
	for _, n := range c.read() {
		var labels, values []string
		if n.Label != "" {
			labels, values = []string{n.Label}, []string{n.Value}
		}
		out <- prometheus.MustNewConstMetric(prometheus.NewDesc(n.Name, n.Help, labels, nil), prometheus.CounterValue, float64(n.Count), values...)
	}
}
