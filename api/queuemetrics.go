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

// collectQueues adds what the store knows about the queues, and what the dispatchers of this process have done.
func (s *Server) collectQueues(m prometheus.Scrape) {
	own := map[string]bool{}
	for _, stats := range s.cfg.Dispatchers {
		st := stats()
		if st.Queue == "" {
			continue // it does not run now
		}
		own[st.Queue] = true
		collectDispatcher(m, st)
	}
	if _, up := s.poller.readiness(); !up {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), scrapeWithin)
	defer cancel()
	queues, _, err := s.queues.views(ctx, queueScraped)
	if err != nil {
		s.log.Debug("queues cannot be read for metrics", "err", err)
		return
	}
	rank := func(q apitype.Queue) int {
		if own[q.Queue] {
			return 0
		}
		return 1
	}
	queues = slices.SortedStableFunc(slices.Values(queues), func(a, b apitype.Queue) int { return cmp.Compare(rank(a), rank(b)) })
	for _, q := range queues[:min(len(queues), maxQueueLabels)] {
		collectQueue(m, q)
	}
}

func collectQueue(m prometheus.Scrape, q apitype.Queue) {
	m = m.With("understudy_queue_", "queue", q.Queue)
	m.Gauge("depth", "Messages that have not ended.", float64(q.Depth))
	m.Gauge("scheduled", "Messages that wait for their time.", float64(q.Scheduled))
	m.Counter("done_total", "Messages that were committed or cancelled, ever.", float64(q.Done))
	m.Gauge("oldest_seconds", "Age of the oldest waiting message, those of blocked keys too.", float64(q.OldestMS)/1000)
	m.Gauge("dead_letters", "Messages that ended as invalid or failed and are not pruned yet.", float64(q.DeadLetters))
	m.Gauge("keys_waiting", "Keys with waiting messages.", float64(q.Keys))
	m.Gauge("keys_in_flight", "Keys whose message is on its way to the target.", float64(q.InFlight))
	m.Gauge("keys_pending", "Keys whose message the target has received and not decided.", float64(q.Pending))
	m.Gauge("keys_delayed", "Keys that wait for another attempt.", float64(q.Delayed))
	m.Gauge("keys_refused", "Keys whose message the target refuses and that try again; among the first 100 of the queue.", float64(q.Refused))
	m.Gauge("keys_blocked", "Keys that wait for an operator.", float64(q.Blocked))
}

func collectDispatcher(m prometheus.Scrape, st dispatch.Stats) {
	m = m.With("understudy_dispatch_", "queue", st.Queue)
	m.Gauge("claimed_keys", "Keys that this instance holds.", float64(st.Claimed))
	m.Gauge("sending", "Submissions of this instance that are under way.", float64(st.Sending))
	m.Gauge("pending", "Messages of this instance's keys that the target has received and not decided.", float64(st.Pending))
	for _, state := range dispatch.States() {
		if state != dispatch.Scheduled && state != dispatch.Queued && state != dispatch.Submitting && state != dispatch.Cancelled {
			m.Counter("recorded_total", "States of messages that this instance recorded.", float64(st.Recorded[state]), "state", string(state))
		}
	}
	m.Counter("ignored_total", "Results that came too late: another instance had the key.", float64(st.Ignored))
	m.Counter("submissions_total", "Submissions that this instance sent.", float64(st.Submissions))
	m.Counter("submission_seconds_total", "Total time of these submissions.", st.Latency.Seconds())
	m.Counter("status_queries_total", "Status queries about messages that this instance sent to the target.", float64(st.StatusQueries))
	m.Counter("exchanges_total", "Exchanges with the store.", float64(st.Exchanges))
	m.Counter("exchange_keys_total", "Keys that these exchanges named.", float64(st.Keys))
	m.Counter("exchange_failures_total", "Exchanges with the store that failed.", float64(st.Failures))
	m.Counter("taken_over_total", "Keys taken over with an interrupted submission.", float64(st.TakenOver))
	m.Counter("given_back_total", "Keys given to other instances for their fair share.", float64(st.Released))
}
