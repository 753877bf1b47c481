package prometheus

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// Counter only grows.
type Counter struct{ n atomic.Uint64 }

// Inc adds 1.
func (c *Counter) Inc() { c.n.Add(1) }

// Counters is a counter for each combination of values of its labels.
type Counters struct{ vector[Counter] }

// NewCounters returns a counter without series.
func NewCounters(name, help string, labels ...string) *Counters {
	return &Counters{vector[Counter]{name: name, help: help, labels: labels, newSeries: func() *Counter { return &Counter{} }}}
}

// Collect is the [Collector] of all series.
func (v *Counters) Collect(s Scrape) {
	v.each(func(c *Counter, labels []string) { s.Counter(v.name, v.help, float64(c.n.Load()), labels...) })
}

// Histogram counts observations in buckets.
type Histogram struct {
	buckets []float64

	mu     sync.Mutex
	counts []uint64 // by bucket, not cumulative; the last one is of all above
	sum    float64
}

// Observe counts one observation.
func (h *Histogram) Observe(v float64) {
	i, _ := slices.BinarySearch(h.buckets, v)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.counts[i]++
	h.sum += v
}

func (h *Histogram) points() []point {
	h.mu.Lock()
	defer h.mu.Unlock()
	var out []point
	var total uint64
	for i, n := range h.counts {
		total += n
		bound := "+Inf"
		if i < len(h.buckets) {
			bound = number(h.buckets[i])
		}
		out = append(out, point{"_bucket", label{"le", bound}, float64(total)})
	}
	return append(out, point{suffix: "_sum", value: h.sum}, point{suffix: "_count", value: float64(total)})
}

// Histograms is a histogram for each combination of values of its labels.
type Histograms struct{ vector[Histogram] }

// NewHistograms returns a histogram without series. Buckets are upper bounds in ascending order.
func NewHistograms(name, help string, buckets []float64, labels ...string) *Histograms {
	return &Histograms{vector[Histogram]{name: name, help: help, labels: labels, newSeries: func() *Histogram {
		return &Histogram{buckets: buckets, counts: make([]uint64, len(buckets)+1)}
	}}}
}

// Collect is the [Collector] of all series.
func (v *Histograms) Collect(s Scrape) {
	v.each(func(h *Histogram, labels []string) { s.add("histogram", v.name, v.help, labels, h.points()...) })
}

// vector holds the series of one metric.
type vector[T any] struct {
	name, help string
	labels     []string
	newSeries  func() *T
	mu         sync.RWMutex
	series     map[string]*T // by the values of the labels
}

// separator of the values of labels.
const separator = "\x00"

// Of returns the series of these values of the labels, made when it is first asked for.
func (v *vector[T]) Of(values ...string) *T {
	key := strings.Join(values, separator)
	v.mu.RLock()
	s := v.series[key]
	v.mu.RUnlock()
	if s != nil {
		return s
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if s = v.series[key]; s == nil {
		if v.series == nil {
			v.series = map[string]*T{}
		}
		s = v.newSeries()
		v.series[key] = s
	}
	return s
}

// each calls f with every series and its labels.
func (v *vector[T]) each(f func(series *T, labels []string)) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	for key, s := range v.series {
		var labels []string
		for i, value := range strings.SplitN(key, separator, len(v.labels)) {
			labels = append(labels, v.labels[i], value)
		}
		f(s, labels)
	}
}
