package dispatch

import (
	"maps"
	"time"
)

// Stats is what a [Dispatcher] has done since it was made, and what it is doing.
type Stats struct {
	Queue  string
	Target string
	// Claimed keys, submissions under way, and batches that the target has and
	// has not decided, now.
	Claimed, Sending, Pending int
	// Batches whose state was recorded, by state; a batch that was delayed
	// twice counts twice.
	Recorded map[State]int64
	// Ignored are results that came too late: somebody else had the key.
	Ignored int64
	// Submissions that were sent, how long they took together, and the inquiries.
	Submissions int64
	Latency     time.Duration
	Inquiries   int64
	// Turns with the store, the keys that they named, and those that failed.
	Turns, Keys, Failures int64
	// TakenOver are keys that were taken while a step on them was interrupted,
	// GivenBack those that were given to other instances for their fair share.
	TakenOver, GivenBack int64
}

// snapshot copies what can be shown.
func (m *machine) snapshot() Stats {
	s := m.observed
	s.Recorded = maps.Clone(s.Recorded)
	s.Claimed = len(m.slots)
	s.Sending = m.counts[sending]
	s.Pending = m.counts[held]
	return s
}
