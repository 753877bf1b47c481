package prometheus

import (
	"cmp"
	"compress/gzip"
	"io"
	"net/http"
	"slices"
	"strings"
)

// Scrape is a request for metrics that is being answered.
type Scrape struct {
	prefix string  // of all names
	labels []label // of all metrics
	all    *[]metric
}

// metric is one series with its value now.
type metric struct {
	name, help, kind string
	labels           []label
	points           []point
}

type label struct{ name, value string }

// point is one line of a metric. A histogram and a summary have several.
type point struct {
	suffix string // of the name, such as "_bucket"
	extra  label  // a label of this line alone, if it has a name
	value  float64
}

// Collector adds its metrics, with their values now, to a scrape. The same name has the same help and labels each time.
type Collector func(Scrape)

// With returns the scrape with a prefix for all names that are added through it, and with labels for all metrics: their
// names and values in turn.
func (s Scrape) With(prefix string, labels ...string) Scrape {
	s.prefix += prefix
	s.labels = s.withLabels(labels)
	return s
}

// Gauge adds a number that goes up and down. Labels are names and values in turn.
func (s Scrape) Gauge(name, help string, value float64, labels ...string) {
	s.add("gauge", name, help, labels, point{value: value})
}

// Flag adds a gauge that is 1 while something is so, and 0 otherwise.
func (s Scrape) Flag(name, help string, isSo bool, labels ...string) {
	value := 0.0
	if isSo {
		value = 1
	}
	s.Gauge(name, help, value, labels...)
}

// Counter adds a number that only grows.
func (s Scrape) Counter(name, help string, value float64, labels ...string) {
	s.add("counter", name, help, labels, point{value: value})
}

func (s Scrape) add(kind, name, help string, labels []string, points ...point) {
	*s.all = append(*s.all, metric{s.prefix + name, help, kind, s.withLabels(labels), points})
}

func (s Scrape) withLabels(pairs []string) []label {
	out := slices.Clone(s.labels)
	for pair := range slices.Chunk(pairs, 2) {
		out = append(out, label{pair[0], pair[1]})
	}
	slices.SortFunc(out, func(a, b label) int { return cmp.Compare(a.name, b.name) })
	return out
}

// gather collects all metrics, by name and then by labels.
func gather(collectors []Collector) []metric {
	var all []metric
	for _, collect := range collectors {
		collect(Scrape{all: &all})
	}
	slices.SortStableFunc(all, func(a, b metric) int {
		return cmp.Or(cmp.Compare(a.name, b.name), slices.CompareFunc(a.labels, b.labels, func(x, y label) int {
			return cmp.Or(cmp.Compare(x.name, y.name), cmp.Compare(x.value, y.value))
		}))
	})
	return all
}

// maxAtOnce is how many requests for metrics are answered at once.
const maxAtOnce = 4

// Handler serves the metrics of the Go runtime, of the process and of collectors. More requests at once than maxAtOnce get
// 503: a scrape that hangs must not be joined by all that follow it.
func Handler(collectors ...Collector) http.Handler {
	collectors = append(collectors, collectRuntime, collectProcess)
	places := make(chan struct{}, maxAtOnce)
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
		_, _ = out.Write(encode(gather(collectors)))
	})
}
