package prometheus

import (
	"compress/gzip"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestText(t *testing.T) {
	requests := NewCounters("requests_total", "Requests.", "code")
	took := NewHistograms("took_seconds", "Time.", []float64{.5, 1}, "route")
	requests.Of("500").Inc()
	requests.Of("200").Inc()
	requests.Of("200").Inc()
	for _, v := range []float64{.1, .5, .7, 3} {
		took.Of("/").Observe(v)
	}
	own := func(s Scrape) {
		s.Flag("up", "Up.", true, "v", "1")
		s = s.With("de", "b", "const")
		s.Gauge("pth", "Back\\slash\nand line.", 1.5, "queue", `say "hi"`, "a", "x")
		s.Gauge("pth", "Back\\slash\nand line.", math.Inf(1), "queue", "q\n\xff", "a", "w")
	}
	const want = `# HELP depth Back\\slash\nand line.
# TYPE depth gauge
depth{a="w",b="const",queue="q\n?"} +Inf
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
up{v="1"} 1
`
	if got := string(encode(gather([]Collector{requests.Collect, took.Collect, own}))); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// TestOwnFigures: those of the runtime and the process that dashboards and alerts use.
func TestOwnFigures(t *testing.T) {
	text := string(encode(gather([]Collector{collectRuntime, collectProcess})))
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
	w, req := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/metrics", nil)
	req.Header.Set("Accept-Encoding", "gzip")
	Handler().ServeHTTP(w, req)
	body, err := gzip.NewReader(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(body); err != nil || !strings.Contains(string(text), "go_goroutines") {
		t.Errorf("%v\n%s", err, text)
	}
}
