package prometheus

import (
	"cmp"
	"compress/gzip"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
)

// ValueType is what a metric's number means.
type ValueType string

// Value types. A gauge goes up and down; the others only grow.
const (
	CounterValue   ValueType = "counter"
	GaugeValue     ValueType = "gauge"
	histogramValue ValueType = "histogram"
	summaryValue   ValueType = "summary"
)

// Labels are names of labels with their values.
type Labels map[string]string

// Desc describes the metrics of one name.
type Desc struct {
	name, help string
	labels     []string
	constant   []label // in all metrics of this description, sorted
}

// NewDesc describes metrics with these labels, and with constant ones.
func NewDesc(name, help string, labels []string, constant Labels) *Desc {
	d := &Desc{name: name, help: help, labels: labels}
	for _, k := range slices.Sorted(maps.Keys(constant)) {
		d.constant = append(d.constant, label{k, constant[k]})
	}
	return d
}

// String is the description for a reader: its name, help and labels.
func (d *Desc) String() string {
	var constant []string
	for _, l := range d.constant {
		constant = append(constant, fmt.Sprintf("%s=%q", l.name, l.value))
	}
	return fmt.Sprintf("Desc{fqName: %q, help: %q, constLabels: {%s}, variableLabels: {%s}}",
		d.name, d.help, strings.Join(constant, ","), strings.Join(d.labels, ","))
}

type label struct{ name, value string }

// Metric is one series with its value now.
type Metric struct {
	desc   *Desc
	kind   ValueType
	labels []label
	points []point
}

// point is one line of a metric. A histogram and a summary have several.
type point struct {
	suffix string // of the name, such as "_bucket"
	extra  label  // a label of this line alone, if it has a name
	value  float64
}

// MustNewConstMetric is a metric with a value that was read just now. It panics when there are not as many values as
// labels, which is a fault of the caller's code.
func MustNewConstMetric(d *Desc, kind ValueType, value float64, labels ...string) Metric {
	return newMetric(d, kind, labels, point{value: value})
}

func newMetric(d *Desc, kind ValueType, values []string, points ...point) Metric {
	if len(values) != len(d.labels) {
		panic("prometheus: " + d.name + ": as many values as labels are needed")
	}
	m := Metric{desc: d, kind: kind, labels: slices.Clone(d.constant), points: points}
	for i, v := range values {
		m.labels = append(m.labels, label{d.labels[i], v})
	}
	slices.SortFunc(m.labels, func(a, b label) int { return cmp.Compare(a.name, b.name) })
	return m
}

// Collector is asked for its metrics at each scrape.
type Collector interface {
	// Describe sends what its metrics are described by; nothing, if that is not known ahead.
	Describe(chan<- *Desc)
	// Collect sends the metrics with their values now.
	Collect(chan<- Metric)
}

// Registry is a list of collectors.
type Registry struct{ collectors []Collector }

// NewRegistry returns an empty registry.
func NewRegistry() *Registry { return &Registry{} }

// MustRegister adds collectors. It is not called beside scrapes.
func (r *Registry) MustRegister(c ...Collector) { r.collectors = append(r.collectors, c...) }

// gather collects all metrics, by name and then by labels.
func (r *Registry) gather() []Metric {
	collected := make(chan Metric)
	go func() {
		defer close(collected)
		for _, c := range r.collectors {
			c.Collect(collected)
		}
	}()
	var all []Metric
	for m := range collected {
		all = append(all, m)
	}
	slices.SortStableFunc(all, func(a, b Metric) int {
		return cmp.Or(cmp.Compare(a.desc.name, b.desc.name), slices.CompareFunc(a.labels, b.labels, func(x, y label) int {
			return cmp.Or(cmp.Compare(x.name, y.name), cmp.Compare(x.value, y.value))
		}))
	})
	return all
}

// Handler serves the metrics of a registry. More requests at once than it allows get 503: a scrape that hangs must not
// be joined by all that follow it.
func Handler(r *Registry, atOnce int) http.Handler {
	places := make(chan struct{}, atOnce)
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		select {
		case places <- struct{}{}:
			defer func() { <-places }()
		default:
			http.Error(w, "too many requests for metrics at once", http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8; escaping=underscores")
		var out io.Writer = w
		if strings.Contains(req.Header.Get("Accept-Encoding"), "gzip") {
			w.Header().Set("Content-Encoding", "gzip")
			packed := gzip.NewWriter(w)
			defer func() { _ = packed.Close() }()
			out = packed
		}
		_, _ = out.Write(encode(r.gather()))
	})
}
