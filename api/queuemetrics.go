package api

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/understudy-ha/understudy/api/apitype"
	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/internal/prometheus"
)

const (
	// maxQueueLabels is how many queues have metrics: those that this process
	// delivers, and then the first by name.
	maxQueueLabels = 100
	// scrapeWithin is how long a scrape may wait for the store.
	scrapeWithin = 2 * time.Second
)

// queueCollector reads what the store knows about the queues, and what the
// dispatchers of this process have done, when they are asked for. The names of
// queues are the only label; there are few, and they are bounded.
type queueCollector struct {
	s *Server

	depth, done, oldest                            *prometheus.Desc
	keys, inFlight, pending, delayed, blocked      *prometheus.Desc
	claimed, sending, awaited                      *prometheus.Desc
	recorded, ignored                              *prometheus.Desc
	submissions, latency, inquiries                *prometheus.Desc
	turns, turnKeys, failures, takenOver, givenFor *prometheus.Desc
}

func newQueueCollector(s *Server) *queueCollector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("understudy_"+name, help, append([]string{"queue"}, labels...), nil)
	}
	return &queueCollector{
		s:        s,
		depth:    desc("queue_depth", "Messages that have not ended."),
		done:     desc("queue_done_total", "Messages that have ended, ever."),
		oldest:   desc("queue_oldest_seconds", "Age of the oldest waiting message; blocked keys do not count."),
		keys:     desc("queue_keys_waiting", "Keys with waiting messages."),
		inFlight: desc("queue_keys_in_flight", "Keys whose message is on its way to the target."),
		pending:  desc("queue_keys_pending", "Keys whose message the target has received and not decided."),
		delayed:  desc("queue_keys_delayed", "Keys that wait for another attempt."),
		blocked:  desc("queue_keys_blocked", "Keys that wait for an operator."),

		claimed:     desc("dispatch_claimed_keys", "Keys that this instance holds."),
		sending:     desc("dispatch_sending", "Submissions of this instance that are under way."),
		awaited:     desc("dispatch_pending", "Messages of this instance's keys that the target has received and not decided."),
		recorded:    desc("dispatch_recorded_total", "States of messages that this instance recorded.", "state"),
		ignored:     desc("dispatch_ignored_total", "Results that came too late: another instance had the key."),
		submissions: desc("dispatch_submissions_total", "Submissions that this instance sent."),
		latency:     desc("dispatch_submission_seconds_total", "Total time of these submissions."),
		inquiries:   desc("dispatch_inquiries_total", "Status requests about messages that this instance sent to the target."),
		turns:       desc("dispatch_turns_total", "Exchanges with the store."),
		turnKeys:    desc("dispatch_turn_keys_total", "Keys that these exchanges named."),
		failures:    desc("dispatch_turn_failures_total", "Exchanges with the store that failed."),
		takenOver:   desc("dispatch_taken_over_total", "Keys taken over with an interrupted submission."),
		givenFor:    desc("dispatch_given_back_total", "Keys given to other instances for their fair share."),
	}
}

// Describe implements [prometheus.Collector].
func (c *queueCollector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		c.depth, c.done, c.oldest, c.keys, c.inFlight, c.pending, c.delayed, c.blocked, c.claimed, c.sending, c.awaited, c.recorded,
		c.ignored, c.submissions, c.latency, c.inquiries, c.turns, c.turnKeys, c.failures, c.takenOver, c.givenFor,
	} {
		out <- d
	}
}

// Collect implements [prometheus.Collector].
func (c *queueCollector) Collect(out chan<- prometheus.Metric) {
	own := map[string]bool{}
	for _, stats := range c.s.cfg.Dispatchers {
		st := stats()
		own[st.Queue] = true
		c.dispatcher(out, st)
	}
	if _, up := c.s.poller.readiness(); !up {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), scrapeWithin)
	defer cancel()
	queues, err := c.s.queues.views(ctx, queueScraped)
	if err != nil {
		c.s.log.Debug("queues cannot be read for metrics", "err", err)
		return
	}
	gauge := func(d *prometheus.Desc, v float64, queue string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, queue)
	}
	for _, q := range labelled(queues, own) {
		out <- prometheus.MustNewConstMetric(c.done, prometheus.CounterValue, float64(q.Done), q.Queue)
		gauge(c.depth, float64(q.Depth), q.Queue)
		gauge(c.oldest, float64(q.OldestMS)/1000, q.Queue)
		gauge(c.keys, float64(q.Keys), q.Queue)
		gauge(c.inFlight, float64(q.InFlight), q.Queue)
		gauge(c.pending, float64(q.Pending), q.Queue)
		gauge(c.delayed, float64(q.Delayed), q.Queue)
		gauge(c.blocked, float64(q.Blocked), q.Queue)
	}
}

func (c *queueCollector) dispatcher(out chan<- prometheus.Metric, st dispatch.Stats) {
	gauge := func(d *prometheus.Desc, v int) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(v), st.Queue)
	}
	count := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, v, append([]string{st.Queue}, labels...)...)
	}
	gauge(c.claimed, st.Claimed)
	gauge(c.sending, st.Sending)
	gauge(c.awaited, st.Pending)
	for _, state := range dispatch.States() {
		if state != dispatch.Queued && state != dispatch.Submitting && state != dispatch.Cancelled {
			count(c.recorded, float64(st.Recorded[state]), string(state))
		}
	}
	count(c.ignored, float64(st.Ignored))
	count(c.submissions, float64(st.Submissions))
	count(c.latency, st.Latency.Seconds())
	count(c.inquiries, float64(st.Inquiries))
	count(c.turns, float64(st.Exchanges))
	count(c.turnKeys, float64(st.Keys))
	count(c.failures, float64(st.Failures))
	count(c.takenOver, float64(st.TakenOver))
	count(c.givenFor, float64(st.GivenBack))
}

// labelled are the queues that have metrics.
func labelled(queues []apitype.Queue, own map[string]bool) []apitype.Queue {
	if len(queues) <= maxQueueLabels {
		return queues
	}
	rank := func(q apitype.Queue) int { return int(oneIf(!own[q.Queue])) }
	sorted := slices.SortedStableFunc(slices.Values(queues), func(a, b apitype.Queue) int { return cmp.Compare(rank(a), rank(b)) })
	return sorted[:maxQueueLabels]
}
