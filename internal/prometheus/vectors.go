package prometheus

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// CounterOpts names a counter.
type CounterOpts struct{ Name, Help string }

// Counter only grows.
type Counter struct {
	n      atomic.Uint64
	values []string
}

// Inc adds 1.
func (c *Counter) Inc() { c.n.Add(1) }

// CounterVec is a counter for each combination of values of its labels.
type CounterVec struct {
	vector[Counter]
}

// NewCounterVec returns a counter without series.
func NewCounterVec(o CounterOpts, labels []string) *CounterVec {
	return &CounterVec{vector[Counter]{
		desc:      NewDesc(o.Name, o.Help, labels, nil),
		newSeries: func(values []string) *Counter { return &Counter{values: values} },
	}}
}

// WithLabelValues is the counter of these values, made when it is first asked for.
func (v *CounterVec) WithLabelValues(values ...string) *Counter { return v.of(values) }

// Collect implements [Collector].
func (v *CounterVec) Collect(out chan<- Metric) {
	for _, c := range v.all() {
		out <- MustNewConstMetric(v.desc, CounterValue, float64(c.n.Load()), c.values...)
	}
}

// HistogramOpts names a histogram. Buckets are upper bounds in ascending order.
type HistogramOpts struct {
	Name, Help string
	Buckets    []float64
}

// Histogram counts observations in buckets.
type Histogram struct {
	values  []string
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

// HistogramVec is a histogram for each combination of values of its labels.
type HistogramVec struct {
	vector[Histogram]
}

// NewHistogramVec returns a histogram without series.
func NewHistogramVec(o HistogramOpts, labels []string) *HistogramVec {
	return &HistogramVec{vector[Histogram]{
		desc: NewDesc(o.Name, o.Help, labels, nil),
		newSeries: func(values []string) *Histogram {
			return &Histogram{values: values, buckets: o.Buckets, counts: make([]uint64, len(o.Buckets)+1)}
		},
	}}
}

// WithLabelValues is the histogram of these values, made when it is first asked for.
func (v *HistogramVec) WithLabelValues(values ...string) *Histogram { return v.of(values) }

// Collect implements [Collector].
func (v *HistogramVec) Collect(out chan<- Metric) {
	for _, h := range v.all() {
		out <- newMetric(v.desc, histogramValue, h.values, h.points()...)
	}
}

// vector holds the series of one metric.
type vector[T any] struct {
	desc      *Desc
	newSeries func(values []string) *T
	mu        sync.RWMutex
	series    map[string]*T
}

func (v *vector[T]) of(values []string) *T {
	key := strings.Join(values, "\x00")
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
		s = v.newSeries(slices.Clone(values))
		v.series[key] = s
	}
	return s
}

func (v *vector[T]) all() (out []*T) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	for _, s := range v.series {
		out = append(out, s)
	}
	return out
}

// Describe implements [Collector].
func (v *vector[T]) Describe(out chan<- *Desc) { out <- v.desc }

// GaugeOpts names a gauge.
type GaugeOpts struct {
	Name, Help  string
	ConstLabels Labels
}

// NewGaugeFunc is a gauge that a function reads at each scrape.
func NewGaugeFunc(o GaugeOpts, read func() float64) Collector {
	return gaugeFunc{NewDesc(o.Name, o.Help, nil, o.ConstLabels), read}
}

type gaugeFunc struct {
	desc *Desc
	read func() float64
}

func (g gaugeFunc) Describe(out chan<- *Desc) { out <- g.desc }

func (g gaugeFunc) Collect(out chan<- Metric) {
	out <- MustNewConstMetric(g.desc, GaugeValue, g.read())
}
