package api

import (
	"net/http"
	"runtime"
	"strconv"
	"time"

	"github.com/understudy-ha/understudy/internal/prometheus"
	"github.com/understudy-ha/understudy/lease"
)

// metrics of this process. Every label has few values that the configuration or
// the code gives: nothing that a request or the store says becomes one, but the
// names of queues, and of those only so many.
type metrics struct{ handler http.Handler }

func newMetrics(t *traffic, more ...prometheus.Collector) *metrics {
	reg := prometheus.NewRegistry()
	reg.MustRegister(
		prometheus.NewGoCollector(), prometheus.NewProcessCollector(),
		t.requests, t.duration,
	)
	reg.MustRegister(more...)
	return &metrics{handler: prometheus.Handler(reg, 4)}
}

// traffic counts what was answered, and how fast.
type traffic struct {
	requests *prometheus.CounterVec
	duration *prometheus.HistogramVec
}

func newTraffic() *traffic {
	return &traffic{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "understudy_http_requests_total", Help: "Requests answered, by route and status.",
		}, []string{"route", "code"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "understudy_http_request_duration_seconds", Help: "Time to answer requests that do not wait, by route.",
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5},
		}, []string{"route"}),
	}
}

// route returns what to call with each answer of a route.
func (m *traffic) route(pattern string, long bool) func(status int, took time.Duration) {
	return func(status int, took time.Duration) {
		if status == 0 {
			status = http.StatusOK
		}
		m.requests.WithLabelValues(pattern, strconv.Itoa(status)).Inc()
		if !long {
			m.duration.WithLabelValues(pattern).Observe(took.Seconds())
		}
	}
}

// certificateCollector tells when a certificate ends; nil: there is none.
func certificateCollector(expires func() time.Time) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "understudy_tls_not_after_seconds", Help: "When the certificate of this server ends, in seconds since 1970; 0: it has none.",
	}, func() float64 {
		if expires == nil {
			return 0
		}
		return float64(expires().Unix())
	})
}

func (m *metrics) serve(w http.ResponseWriter, r *http.Request) error {
	m.handler.ServeHTTP(w, r)
	return nil
}

// kernelCollector reads the counts of the kernel when they are asked for.
type kernelCollector struct {
	s *Server

	build, held, term                            *prometheus.Desc
	sessions, renewals, failures, lost, renewing *prometheus.Desc
	up, latency, streams, waits                  *prometheus.Desc
}

func newKernelCollector(s *Server) *kernelCollector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("understudy_"+name, help, labels, nil)
	}
	return &kernelCollector{
		s:        s,
		build:    desc("build_info", "Always 1.", "version", "goversion"),
		held:     desc("role_held", "1 while this instance is primary of the role.", "role"),
		term:     desc("role_term", "Term under which this instance is primary of the role, 0 while it is not.", "role"),
		sessions: desc("sessions_started_total", "Sessions that this process started."),
		renewals: desc("session_renewals_total", "Renewals that the store accepted."),
		failures: desc("session_renewal_failures_total", "Renewals without an answer."),
		lost:     desc("sessions_lost_total", "Sessions that lapsed."),
		renewing: desc("session_renewal_latency_seconds", "Time that the last accepted renewal took; the longest of all sessions."),
		up:       desc("store_up", "1 if the store answered in the last seconds."),
		latency:  desc("store_latency_seconds", "Duration of the store's last answer."),
		streams:  desc("http_streams", "Open event streams."),
		waits:    desc("http_lease_waits", "Requests that are waiting for a lease."),
	}
}

// Describe implements [prometheus.Collector].
func (c *kernelCollector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		c.build, c.held, c.term, c.sessions, c.renewals, c.failures, c.lost, c.renewing, c.up, c.latency, c.streams, c.waits,
	} {
		out <- d
	}
}

// Collect implements [prometheus.Collector].
func (c *kernelCollector) Collect(out chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	count := func(d *prometheus.Desc, v int64) {
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v))
	}
	gauge(c.build, 1, c.s.cfg.Version, runtime.Version())
	for _, role := range c.s.cfg.Roles {
		term, held := c.s.selfTerm(role)
		gauge(c.held, oneIf(held), role)
		gauge(c.term, float64(term), role)
	}
	var sum lease.KeeperStats
	for _, k := range c.s.cfg.Keepers {
		st := k.Stats()
		sum.Sessions += st.Sessions
		sum.Renewals += st.Renewals
		sum.Failures += st.Failures
		sum.Lost += st.Lost
		sum.Latency = max(sum.Latency, st.Latency)
	}
	count(c.sessions, sum.Sessions)
	count(c.renewals, sum.Renewals)
	count(c.failures, sum.Failures)
	count(c.lost, sum.Lost)
	gauge(c.renewing, sum.Latency.Seconds())
	latency, up := c.s.poller.readiness()
	gauge(c.up, oneIf(up))
	gauge(c.latency, latency.Seconds())
	gauge(c.streams, float64(c.s.stream.len()))
	gauge(c.waits, float64(len(c.s.waits)))
}

func oneIf(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
