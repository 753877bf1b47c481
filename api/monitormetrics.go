package api

import (
	"context"

	"github.com/understudy-ha/understudy/api/apitype"
	"github.com/understudy-ha/understudy/internal/prometheus"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/monitor"
	"github.com/understudy-ha/understudy/monitor/intake"
)

// maxCheckLabels is how many checks have metrics, and maxPathLabels how many
// paths: the first by name.
const (
	maxCheckLabels = 200
	maxPathLabels  = 100
)

// ownView is nil when this process does nothing for the monitor.
func (p *monitorPart) ownView() *apitype.MonitorInstance {
	if p.own.Intake == nil && p.own.Watcher == nil {
		return nil
	}
	v := &apitype.MonitorInstance{}
	if p.own.Intake != nil {
		s := p.own.Intake.Stats()
		v.Queued, v.Accepted, v.Unknown, v.Malformed, v.Replayed, v.Busy = s.Queued, s.Accepted, s.Unknown, s.Malformed, s.Replayed, s.Busy
	}
	if p.own.Watcher != nil {
		s := p.own.Watcher.Stats()
		v.Partitions, v.Sweeper, v.Raised, v.Abated = s.Partitions, s.Sweeper, s.Transitions[monitor.Onset], s.Transitions[monitor.Abated]
	}
	if p.own.Rejected != nil {
		for _, n := range p.own.Rejected.Counts() {
			v.Rejected += n
		}
	}
	for _, r := range p.own.routers() {
		s := r.Stats()
		one := apitype.MessageRouter{Router: s.Name, Polls: s.Polls, Failures: s.Failures, Messages: s.Messages, Behind: s.Behind}
		if s.Error != "" {
			one.Error, one.Since = lease.TruncateReason(s.Error), s.Since.UTC()
		}
		v.Routers = append(v.Routers, one)
	}
	return v
}

// collectMonitor adds what the store knows about the monitor, and what this instance does for it. Names of checks and
// paths are labels; they are configured, and bounded.
func (s *Server) collectMonitor(m prometheus.Scrape) {
	m = m.With("understudy_monitor_")
	own := s.monitor.own
	if own.Intake != nil {
		collectIntake(m, own.Intake.Stats())
	}
	if own.HTTP != nil {
		collectIgnored(m, "http", own.HTTP.Ignored())
	}
	if own.Rejected != nil {
		collectRejected(m, own.Rejected.Counts())
	}
	told := map[string]bool{}
	for _, r := range own.routers() {
		// Two series of one name would spoil all others.
		if st := r.Stats(); !told[st.Name] {
			told[st.Name] = true
			collectRouter(m, st)
			collectIgnored(m, "router."+st.Name, intake.IgnoredStats{OtherDomain: st.OtherDomain, Unknown: st.Unknown})
		}
	}
	if own.Watcher != nil {
		collectWatcher(m, own.Watcher.Stats())
	}
	if _, up := s.poller.readiness(); s.monitor.table == nil || !up {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), scrapeWithin)
	defer cancel()
	// An error is shown by readyz and the page.
	if seen, err := s.monitor.snapshot.fresh(ctx, monitorScraped); err == nil {
		collectMonitorView(m, seen.view)
	}
}

func collectIntake(m prometheus.Scrape, s monitor.IntakeStats) {
	m.Gauge("intake_queued", "Heartbeats on this instance that are not stored yet.", float64(s.Queued))
	for outcome, n := range map[string]int64{"accepted": s.Accepted, "unknown": s.Unknown, "malformed": s.Malformed, "replayed": s.Replayed} {
		m.Counter("beats_total", "Heartbeats that this instance received, by outcome.", float64(n), "outcome", outcome)
	}
	m.Counter("intake_busy_total", "Requests that this instance rejected because too many heartbeats were waiting.", float64(s.Busy))
	m.Counter("intake_flushes_total", "Writes of heartbeats to the store by this instance.", float64(s.Flushes))
	m.Counter("intake_updates_total", "Sources that these writes updated.", float64(s.Updates))
	m.Counter("intake_flush_seconds_total", "Total time of these writes.", s.Latency.Seconds())
	m.Counter("intake_failures_total", "Requests to the store that failed, and were tried again.", float64(s.Failures))
}

func collectRejected(m prometheus.Scrape, counts map[string]int64) {
	for cause, n := range counts {
		m.Counter("rejected_total", "Messages that this instance could not read, by cause.", float64(n), "cause", cause)
	}
}

func collectIgnored(m prometheus.Scrape, path string, s intake.IgnoredStats) {
	for why, n := range map[string]int64{"other_domain": s.OtherDomain, "unknown_check": s.Unknown} {
		m.Counter("ves_ignored_total", "Valid VES events that no check counts.", float64(n), "path", path, "reason", why)
	}
}

func collectRouter(m prometheus.Scrape, s intake.RouterStats) {
	m = m.With("router_", "router", s.Name)
	m.Flag("up", "1 if this instance's last poll of the Message Router topic succeeded.", s.Polls > 0 && s.Error == "")
	m.Counter("polls_total", "Polls of a Message Router's topic by this instance.", float64(s.Polls))
	m.Counter("failures_total", "Polls of a Message Router's topic that failed.", float64(s.Failures))
	m.Counter("messages_total", "Messages that these polls brought.", float64(s.Messages))
}

func collectWatcher(m prometheus.Scrape, s monitor.WatchStats) {
	m.Gauge("partitions", "Partitions of the sources that this instance evaluates.", float64(s.Partitions))
	m.Counter("evaluations_total", "Evaluations of sources by this instance at their deadline.", float64(s.Evaluated))
	m.Counter("evaluation_conflicts_total", "Evaluations discarded because the source had changed meanwhile.", float64(s.Conflicts))
	for _, transition := range []monitor.Transition{monitor.Onset, monitor.Abated, monitor.Resume, monitor.Return, monitor.Retire, monitor.Forget} {
		m.Counter("transitions_total", "Transitions of sources that this instance recorded.", float64(s.Transitions[transition]), "transition", string(transition))
	}
	m.Counter("onset_delay_seconds_total", "Total delay between the start of outages and their detection by this instance.", s.Delay.Seconds())
	m.Counter("detection_failures_total", "Requests to the store that failed, and are tried again.", float64(s.Failures))
}

// collectMonitorView adds what the store knows.
func collectMonitorView(m prometheus.Scrape, v apitype.Monitor) {
	for _, c := range v.Checks[:min(len(v.Checks), maxCheckLabels)] {
		for state, n := range map[monitor.State]int64{monitor.Up: c.Up, monitor.Down: c.Down, monitor.Paused: c.PausedSources, monitor.Retired: c.Retired} {
			m.Gauge("sources", "Sources, by check and state.", float64(n), "check", c.Name, "state", string(state))
		}
	}
	m.Gauge("alarms_open", "Alarms that have not ended.", float64(v.Standing))
	m.Flag("config_refused", "1 while the last configuration offered was rejected.", v.ConfigError != "")
	for _, p := range v.Paths[:min(len(v.Paths), maxPathLabels)] {
		m.Flag("path_up", "1 while the intake path counts as working.", p.Working, "path", p.Path)
		m.Counter("path_blind_seconds_total", "Total length of the blind periods of an intake path.", float64(p.BlindMS)/1000, "path", p.Path)
	}
}
