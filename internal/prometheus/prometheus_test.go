package prometheus_test

import (
	"compress/gzip"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/understudy-ha/understudy/internal/prometheus"
)

type metrics []prometheus.Metric

func (metrics) Describe(chan<- *prometheus.Desc) {}

func (c metrics) Collect(out chan<- prometheus.Metric) {
	for _, m := range c {
		out <- m
	}
}

func scrape(t *testing.T, r *prometheus.Registry) string {
	t.Helper()
	w := httptest.NewRecorder()
	prometheus.Handler(r, 1).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	return w.Body.String()
}

func TestText(t *testing.T) {
	depth := prometheus.NewDesc("depth", "Back\\slash\nand line.", []string{"queue", "a"}, prometheus.Labels{"b": "const"})
	requests := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "requests_total", Help: "Requests."}, []string{"code"})
	took := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "took_seconds", Help: "Time.", Buckets: []float64{.5, 1}}, []string{"route"})
	requests.WithLabelValues("500").Inc()
	requests.WithLabelValues("200").Inc()
	requests.WithLabelValues("200").Inc()
	for _, v := range []float64{.1, .5, .7, 3} {
		took.WithLabelValues("/").Observe(v)
	}
	r := prometheus.NewRegistry()
	r.MustRegister(
		requests, took,
		metrics{
			prometheus.MustNewConstMetric(depth, prometheus.GaugeValue, 1.5, `say "hi"`, "x"),
			prometheus.MustNewConstMetric(depth, prometheus.GaugeValue, math.Inf(1), "q\n", "w"),
		},
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "up", Help: "Up.", ConstLabels: prometheus.Labels{"v": "1"}}, func() float64 { return 1e9 }),
	)
	const want = `# HELP depth Back\\slash\nand line.
# TYPE depth gauge
depth{a="w",b="const",queue="q\n"} +Inf
depth{a="x",b="const",queue="say \"hi\""} 1.5
# HELP requests_total Requests.
# TYPE requests_total counter
requests_total{code="200"} 2
requests_total{code="500"} 1
# HELP took_seconds Time.
# TYPE took_seconds histogram
took_seconds_bucket{route="/",le="0.5"} 2
took_seconds_bucket{route="/",le="1"} 3
took_seconds_bucket{route="/",le="+Inf"} 4
took_seconds_sum{route="/"} 4.3
took_seconds_count{route="/"} 4
# HELP up Up.
# TYPE up gauge
up{v="1"} 1e+09
`
	if got := scrape(t, r); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// TestOwnFigures: those of the runtime and the process that dashboards and alerts use.
func TestOwnFigures(t *testing.T) {
	r := prometheus.NewRegistry()
	r.MustRegister(prometheus.NewGoCollector(), prometheus.NewProcessCollector())
	text := scrape(t, r)
	for _, name := range []string{
		"go_info", "go_goroutines", "go_threads", "go_gc_duration_seconds", "go_memstats_heap_inuse_bytes", "process_cpu_seconds_total",
		"process_resident_memory_bytes", "process_start_time_seconds", "process_open_fds", "process_max_fds",
	} {
		if !strings.Contains(text, "\n# TYPE "+name+" ") && !strings.HasPrefix(text, "# TYPE "+name+" ") {
			t.Errorf("%s is missing", name)
		}
	}
}

func TestPacked(t *testing.T) {
	r := prometheus.NewRegistry()
	r.MustRegister(prometheus.NewGoCollector())
	w, req := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/metrics", nil)
	req.Header.Set("Accept-Encoding", "gzip")
	prometheus.Handler(r, 1).ServeHTTP(w, req)
	body, err := gzip.NewReader(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(body); err != nil || !strings.Contains(string(text), "go_goroutines") {
		t.Errorf("%v\n%s", err, text)
	}
}
