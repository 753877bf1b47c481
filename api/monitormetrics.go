package api

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/monitor"
)

// maxEventLabels is how many event names have metrics, and maxPathLabels how many
// paths: the first by name.
const (
	maxEventLabels = 200
	maxPathLabels  = 100
)

// ownMonitorView is what this instance does for the monitor, since it started.
type ownMonitorView struct {
	Queued     int   `json:"queued"` // beats that wait to be stored
	Accepted   int64 `json:"accepted"`
	Unknown    int64 `json:"unknown"`
	Malformed  int64 `json:"malformed"`
	Replayed   int64 `json:"replayed"`
	Busy       int64 `json:"busy"`
	Partitions int   `json:"partitions"`
	Sweeper    bool  `json:"sweeper"`
	Raised     int64 `json:"raised"`
	Abated     int64 `json:"abated"`
	// Letters is how many messages could not be taken.
	Letters int64        `json:"letters"`
	Routers []routerView `json:"routers,omitempty"`
}

// routerView is how this instance reads a topic of a Message Router.
type routerView struct {
	Router   string `json:"router"`
	Polls    int64  `json:"polls"`
	Failures int64  `json:"failures"`
	Messages int64  `json:"messages"`
	// Behind: more messages were there than it asked for.
	Behind bool `json:"behind"`
	// Error of the last poll, and since when there is one; missing if it was good.
	Error string     `json:"error,omitempty"`
	Since *time.Time `json:"since,omitempty"`
}

// ownView is nil when this process does nothing for the monitor.
func (p *monitorPart) ownView() *ownMonitorView {
	if p.own.Inlet == nil && p.own.Watcher == nil {
		return nil
	}
	v := &ownMonitorView{}
	if p.own.Inlet != nil {
		s := p.own.Inlet.Stats()
		v.Queued, v.Accepted, v.Unknown, v.Malformed, v.Replayed, v.Busy = s.Queued, s.Accepted, s.Unknown, s.Malformed, s.Replayed, s.Busy
	}
	if p.own.Watcher != nil {
		s := p.own.Watcher.Stats()
		v.Partitions, v.Sweeper, v.Raised, v.Abated = s.Partitions, s.Sweeper, s.Turns[monitor.Onset], s.Turns[monitor.Abated]
	}
	if p.own.Letters != nil {
		for _, n := range p.own.Letters.Counts() {
			v.Letters += n
		}
	}
	for _, r := range p.own.Routers {
		s := r.Stats()
		one := routerView{Router: s.Name, Polls: s.Polls, Failures: s.Failures, Messages: s.Messages, Behind: s.Behind}
		if s.Error != "" {
			one.Error, one.Since = lease.CutReason(s.Error), orNone(s.Since)
		}
		v.Routers = append(v.Routers, one)
	}
	return v
}

// monitorCollector reads what the store knows about the monitor, and what this
// instance does for it, when they are asked for. Event names and paths are
// labels; they are configured, and bounded.
type monitorCollector struct {
	p     *monitorPart
	ready func() bool

	sources, standing, seeing, blind, refused          *prometheus.Desc
	queued, beats, busy, flushes, stamps, latency      *prometheus.Desc
	intakeFailures, letters                            *prometheus.Desc
	routerUp, polls, pollFailures, messages            *prometheus.Desc
	partitions, judged, undone, turns, delay, failures *prometheus.Desc
}

func newMonitorCollector(s *Server) *monitorCollector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("understudy_monitor_"+name, help, labels, nil)
	}
	return &monitorCollector{
		p:        s.monitor,
		ready:    func() bool { _, up := s.board.ready(); return up },
		sources:  desc("sources", "Sources, by event name and state.", "event", "state"),
		standing: desc("alarms_standing", "Alarms that stand."),
		seeing:   desc("path_seeing", "Whether a way that beats take is taken to work now.", "path"),
		blind:    desc("path_blind_seconds_total", "For how long a way that beats take was blind, ever.", "path"),

		refused: desc("config_refused", "Whether the last configuration that was offered was refused."),

		queued:         desc("intake_queued", "Beats that wait on this instance to be stored."),
		beats:          desc("beats_total", "Beats that this instance took in, by what became of them.", "outcome"),
		busy:           desc("intake_busy_total", "Calls that this instance refused because too many beats waited."),
		flushes:        desc("intake_flushes_total", "Times that this instance stored beats."),
		stamps:         desc("intake_stamps_total", "Sources that these times touched."),
		latency:        desc("intake_flush_seconds_total", "How long these times took together."),
		intakeFailures: desc("intake_failures_total", "Requests to the store that failed, and were tried again."),
		letters:        desc("letters_total", "Messages that this instance could not take, by cause.", "cause"),

		routerUp:     desc("router_up", "Whether the last poll of a Message Router's topic by this instance was good.", "router"),
		polls:        desc("router_polls_total", "Polls of a Message Router's topic by this instance.", "router"),
		pollFailures: desc("router_failures_total", "Of these, those that failed.", "router"),
		messages:     desc("router_messages_total", "Messages that these polls brought.", "router"),

		partitions: desc("partitions", "Parts of the sources that this instance looks after."),
		judged:     desc("judged_total", "Sources that this instance judged because their time had come."),
		undone:     desc("undone_total", "Judgements that were undone by what happened meanwhile."),
		turns:      desc("turns_total", "What became of sources by this instance's judgement.", "turn"),
		delay:      desc("onset_delay_seconds_total", "How long after they began this instance found outages, together."),
		failures:   desc("detection_failures_total", "Requests to the store that failed, and are tried again."),
	}
}

// Describe implements [prometheus.Collector].
func (c *monitorCollector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		c.sources, c.standing, c.seeing, c.blind, c.refused, c.queued, c.beats, c.busy, c.flushes, c.stamps, c.latency, c.intakeFailures, c.letters,
		c.routerUp, c.polls, c.pollFailures, c.messages,
		c.partitions, c.judged, c.undone, c.turns, c.delay, c.failures,
	} {
		out <- d
	}
}

// Collect implements [prometheus.Collector].
func (c *monitorCollector) Collect(out chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	count := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, v, labels...)
	}
	if in := c.p.own.Inlet; in != nil {
		s := in.Stats()
		gauge(c.queued, float64(s.Queued))
		for outcome, n := range map[string]int64{"accepted": s.Accepted, "unknown": s.Unknown, "malformed": s.Malformed, "replayed": s.Replayed} {
			count(c.beats, float64(n), outcome)
		}
		count(c.busy, float64(s.Busy))
		count(c.flushes, float64(s.Flushes))
		count(c.stamps, float64(s.Stamps))
		count(c.latency, s.Latency.Seconds())
		count(c.intakeFailures, float64(s.Failures))
	}
	if l := c.p.own.Letters; l != nil {
		for cause, n := range l.Counts() {
			count(c.letters, float64(n), cause)
		}
	}
	told := map[string]bool{}
	for _, r := range c.p.own.Routers {
		s := r.Stats()
		if told[s.Name] {
			continue // two series of one name would spoil all others
		}
		told[s.Name] = true
		gauge(c.routerUp, oneIf(s.Polls > 0 && s.Error == ""), s.Name)
		count(c.polls, float64(s.Polls), s.Name)
		count(c.pollFailures, float64(s.Failures), s.Name)
		count(c.messages, float64(s.Messages), s.Name)
	}
	if watcher := c.p.own.Watcher; watcher != nil {
		s := watcher.Stats()
		gauge(c.partitions, float64(s.Partitions))
		count(c.judged, float64(s.Judged))
		count(c.undone, float64(s.Undone))
		for _, turn := range []monitor.Turn{monitor.Onset, monitor.Abated, monitor.Resume, monitor.Return, monitor.Retire, monitor.Forget} {
			count(c.turns, float64(s.Turns[turn]), string(turn))
		}
		count(c.delay, s.Delay.Seconds())
		count(c.failures, float64(s.Failures))
	}
	c.store(gauge, count)
}

// store collects what the store knows.
func (c *monitorCollector) store(gauge, count func(*prometheus.Desc, float64, ...string)) {
	if c.p.table == nil || !c.ready() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), scrapeWithin)
	defer cancel()
	seen, err := c.p.seen.view(ctx, monitorScraped)
	if err != nil {
		return // readyz and the page say so
	}
	for _, e := range seen.view.Events[:min(len(seen.view.Events), maxEventLabels)] {
		gauge(c.sources, float64(e.Up), e.Event, string(monitor.Up))
		gauge(c.sources, float64(e.Down), e.Event, string(monitor.Down))
		gauge(c.sources, float64(e.PausedSources), e.Event, string(monitor.Paused))
		gauge(c.sources, float64(e.Retired), e.Event, string(monitor.Retired))
	}
	gauge(c.standing, float64(seen.view.Standing))
	gauge(c.refused, oneIf(seen.view.ConfigError != ""))
	for _, p := range seen.view.Paths[:min(len(seen.view.Paths), maxPathLabels)] {
		gauge(c.seeing, oneIf(p.Seeing), p.Path)
		count(c.blind, float64(p.BlindMS)/1000, p.Path)
	}
}
