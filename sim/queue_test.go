package sim

import "testing"

var queues = histories[QueueResult]{
	few: 24, many: 10000,
	run: func(t *testing.T, seed uint64, trace func(string, ...any)) (QueueResult, []string) {
		s := DrawQueue(seed)
		s.Trace = trace
		r := RunQueue(t, s)
		return r, r.Broken
	},
	sum: func(all *QueueResult, r QueueResult) {
		all.Messages += r.Messages
		all.Scheduled += r.Scheduled
		all.Submitted += r.Submitted
		all.Asked += r.Asked
		all.TakenOver += r.TakenOver
		all.Blocked += r.Blocked
		all.Apart += r.Apart
		all.Settle = max(all.Settle, r.Settle)
	},
	idle: func(all QueueResult, runs int) bool {
		return all.Messages < 5*runs || all.Submitted < all.Messages/2 || all.Scheduled < runs || runs > 100 && all.TakenOver*all.Asked*all.Blocked == 0
	},
}

// TestQueueSimulation is TestSimulation for queues.
func TestQueueSimulation(t *testing.T) { queues.explore(t) }

// TestQueueSeeds replays the seeds that once failed, with why.
func TestQueueSeeds(t *testing.T) { queues.again(t, "testdata/queue_seeds.txt") }

// TestQueueSimulationCatches proves the checks: each broken queue is caught, and
// for what it is.
func TestQueueSimulationCatches(t *testing.T) {
	for _, twin := range QueueTwins() {
		catches(t, twin.Name, twin.Caught, 30, 300, func(t *testing.T, seed uint64) []string {
			s := DrawQueue(seed)
			if s.Twin = twin; twin.Need != nil {
				twin.Need(&s)
			}
			return RunQueue(t, s).Broken
		})
	}
}
