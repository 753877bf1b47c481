package api

import (
	"fmt"
	"net/http"
	"runtime"
	"strconv"
	"time"

	"github.com/understudy-ha/understudy/internal/prometheus"
	"github.com/understudy-ha/understudy/lease"
)

// Metrics are read when they are asked for. Every label has few values that the configuration or the code gives: nothing
// that a request or the store says becomes one, but the names of queues, checks and shards, and of those only so many.

// traffic counts what was answered, and how fast.
type traffic struct {
	requests *prometheus.Counters
	duration *prometheus.Histograms
}

func newTraffic() *traffic {
	return &traffic{
		requests: prometheus.NewCounters("understudy_http_requests_total", "Requests answered, by route and status.", "route", "code"),
		duration: prometheus.NewHistograms("understudy_http_request_duration_seconds", "Time to answer requests that do not wait, by route.",
			[]float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5}, "route"),
	}
}

func (t *traffic) collect(m prometheus.Scrape) {
	t.requests.Collect(m)
	t.duration.Collect(m)
}

// observe records an answer to the route.
func (t *traffic) observe(to route, status int, took time.Duration) {
	if status == 0 {
		status = http.StatusOK
	}
	t.requests.Of(to.pattern, strconv.Itoa(status)).Inc()
	if !to.long {
		t.duration.Of(to.pattern).Observe(took.Seconds())
	}
}

// serveMetrics is the handler of /metrics.
func serveMetrics(collectors ...prometheus.Collector) handler {
	metrics := prometheus.Handler(collectors...)
	return func(w http.ResponseWriter, r *http.Request) error {
		held := &withoutRefusal{ResponseWriter: w}
		metrics.ServeHTTP(held, r)
		if held.refused {
			return fmt.Errorf("%w: metrics are being written for others", errBusy)
		}
		return nil
	}
}

// collectBuild says what program this is.
func collectBuild(version string) prometheus.Collector {
	return func(m prometheus.Scrape) {
		m.Gauge("understudy_build_info", "Always 1.", 1, "version", version, "goversion", runtime.Version())
	}
}

// collectors are those of all parts of the server.
func (s *Server) collectors() []prometheus.Collector {
	return []prometheus.Collector{
		s.router.traffic.collect, s.router.limit.limited.Collect, collectBuild(s.cfg.Version),
		s.collectKernel, s.collectQuotas, s.collectQueues, s.collectJobs, s.cache.collect, s.collectMonitor, s.shards.collect, s.collectCounters,
	}
}

// collectKernel adds what this process knows of its roles, sessions and store.
func (s *Server) collectKernel(m prometheus.Scrape) {
	m = m.With("understudy_")
	expires := 0.0
	if s.cfg.CertificateExpires != nil {
		expires = float64(s.cfg.CertificateExpires().Unix())
	}
	m.Gauge("tls_certificate_not_after_timestamp_seconds", "When the certificate of this server ends, in seconds since 1970; 0: it has none.", expires)
	for _, role := range *s.roles.Load() {
		term, held := s.selfTerm(role)
		m.Flag("role_held", "1 while this instance is primary of the role.", held, "role", role)
		m.Gauge("role_term", "Term under which this instance is primary of the role, 0 while it is not.", float64(term), "role", role)
	}
	var sum lease.KeeperStats
	for _, k := range s.cfg.Keepers {
		st := k.Stats()
		sum.Sessions += st.Sessions
		sum.Renewals += st.Renewals
		sum.Failures += st.Failures
		sum.Lost += st.Lost
		sum.Latency = max(sum.Latency, st.Latency)
	}
	m.Counter("sessions_started_total", "Sessions that this process started.", float64(sum.Sessions))
	m.Counter("session_renewals_total", "Renewals that the store accepted.", float64(sum.Renewals))
	m.Counter("session_renewal_failures_total", "Renewals without an answer.", float64(sum.Failures))
	m.Counter("sessions_lost_total", "Sessions that lapsed.", float64(sum.Lost))
	m.Gauge("session_renewal_latency_seconds", "Time that the last accepted renewal took; the longest of all sessions.", sum.Latency.Seconds())
	latency, _ := s.poller.readiness()
	m.Flag("store_up", "1 if the store answered reads and accepted writes in the last seconds.", s.poller.notReady() == nil)
	m.Gauge("store_latency_seconds", "Duration of the store's last answer.", latency.Seconds())
	m.Gauge("http_streams", "Open event streams.", float64(s.stream.len()))
	m.Gauge("http_lease_waits", "Requests that are waiting for a lease.", float64(s.waits.len()))
}

// Counter is one count of a part of this process that the API knows nothing else of.
type Counter struct {
	// Name of the metric, such as understudy_dns_limited_total, and what it counts. The same name
	// has the same help and label in every counter.
	Name, Help string
	// Label and Value tell counters of one name apart; "" is none. Values are few.
	Label, Value string
	Count        uint64
}

func (s *Server) collectCounters(m prometheus.Scrape) {
	if s.cfg.Counters == nil {
		return
	}
	for _, n := range s.cfg.Counters() {
		var label []string
		if n.Label != "" {
			label = []string{n.Label, n.Value}
		}
		m.Counter(n.Name, n.Help, float64(n.Count), label...)
	}
}
