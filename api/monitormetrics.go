package api

import (
	"context"

	"github.com/understudy-ha/understudy/api/apitype"
	"github.com/understudy-ha/understudy/internal/prometheus"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/monitor"
)

// maxEventLabels is how many event names have metrics, and maxPathLabels how many
// paths: the first by name.
const (
	maxEventLabels = 200
	maxPathLabels  = 100
)

// ownView is nil when this process does nothing for the monitor.
func (p *monitorPart) ownView() *apitype.MonitorInstance {
	if p.own.Inlet == nil && p.own.Watcher == nil {
		return nil
	}
	v := &apitype.MonitorInstance{}
	if p.own.Inlet != nil {
		s := p.own.Inlet.Stats()
		v.Queued, v.Accepted, v.Unknown, v.Malformed, v.Replayed, v.Busy = s.Queued, s.Accepted, s.Unknown, s.Malformed, s.Replayed, s.Busy
	}
	if p.own.Watcher != nil {
		s := p.own.Watcher.Stats()
		v.Partitions, v.Sweeper, v.Raised, v.Abated = s.Partitions, s.Sweeper, s.Transitions[monitor.Onset], s.Transitions[monitor.Abated]
	}
	if p.own.Letters != nil {
		for _, n := range p.own.Letters.Counts() {
			v.Letters += n
		}
	}
	for _, r := range p.own.Routers {
		s := r.Stats()
		one := apitype.MessageRouter{Router: s.Name, Polls: s.Polls, Failures: s.Failures, Messages: s.Messages, Behind: s.Behind}
		if s.Error != "" {
			one.Error, one.Since = lease.TruncateReason(s.Error), s.Since.UTC()
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
		ready:    func() bool { _, up := s.poller.readiness(); return up },
		sources:  desc("sources", "Sources, by check and state.", "event", "state"),
		standing: desc("alarms_standing", "Alarms that have not ended."),
		seeing:   desc("path_seeing", "1 while the intake path counts as working.", "path"),
		blind:    desc("path_blind_seconds_total", "Total length of the blind periods of an intake path.", "path"),

		refused: desc("config_refused", "1 while the last configuration offered was rejected."),

		queued:         desc("intake_queued", "Heartbeats on this instance that are not stored yet."),
		beats:          desc("beats_total", "Heartbeats that this instance received, by outcome.", "outcome"),
		busy:           desc("intake_busy_total", "Requests that this instance rejected because too many heartbeats were waiting."),
		flushes:        desc("intake_flushes_total", "Writes of heartbeats to the store by this instance."),
		stamps:         desc("intake_stamps_total", "Sources that these writes updated."),
		latency:        desc("intake_flush_seconds_total", "Total time of these writes."),
		intakeFailures: desc("intake_failures_total", "Requests to the store that failed, and were tried again."),
		letters:        desc("letters_total", "Messages that this instance could not read, by cause.", "cause"),

		routerUp:     desc("router_up", "1 if this instance's last poll of the Message Router topic succeeded.", "router"),
		polls:        desc("router_polls_total", "Polls of a Message Router's topic by this instance.", "router"),
		pollFailures: desc("router_failures_total", "Polls of a Message Router's topic that failed.", "router"),
		messages:     desc("router_messages_total", "Messages that these polls brought.", "router"),

		partitions: desc("partitions", "Partitions of the sources that this instance evaluates."),
		judged:     desc("judged_total", "Evaluations of sources by this instance at their deadline."),
		undone:     desc("undone_total", "Evaluations discarded because the source had changed meanwhile."),
		turns:      desc("turns_total", "Transitions of sources that this instance recorded.", "turn"),
		delay:      desc("onset_delay_seconds_total", "Total delay between the start of outages and their detection by this instance."),
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
		count(c.stamps, float64(s.Updates))
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
		count(c.judged, float64(s.Evaluated))
		count(c.undone, float64(s.Conflicts))
		for _, turn := range []monitor.Transition{monitor.Onset, monitor.Abated, monitor.Resume, monitor.Return, monitor.Retire, monitor.Forget} {
			count(c.turns, float64(s.Transitions[turn]), string(turn))
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
	seen, err := c.p.snapshot.fresh(ctx, monitorScraped)
	if err != nil {
		return // readyz and the page say so
	}
	for _, e := range seen.view.Checks[:min(len(seen.view.Checks), maxEventLabels)] {
		gauge(c.sources, float64(e.Up), e.Name, string(monitor.Up))
		gauge(c.sources, float64(e.Down), e.Name, string(monitor.Down))
		gauge(c.sources, float64(e.PausedSources), e.Name, string(monitor.Paused))
		gauge(c.sources, float64(e.Retired), e.Name, string(monitor.Retired))
	}
	gauge(c.standing, float64(seen.view.Standing))
	gauge(c.refused, oneIf(seen.view.ConfigError != ""))
	for _, p := range seen.view.Paths[:min(len(seen.view.Paths), maxPathLabels)] {
		gauge(c.seeing, oneIf(p.Seeing), p.Path)
		count(c.blind, float64(p.BlindMS)/1000, p.Path)
	}
}
