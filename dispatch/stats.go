package dispatch

import (
	"maps"
	"time"
)

// Stats is what a [Dispatcher] has done since it was made, and what it is doing.
type Stats struct {
	Queue  string
	Target string
	// Claimed keys, submissions under way, and messages that the target has and
	// has not decided, at present.
	Claimed, Sending, Pending int
	// Messages whose state was recorded, by state; a message that was delayed
	// twice counts twice.
	Recorded map[State]int64
	// Ignored are results that the store did not take: another instance had the key, or an exchange whose answer was lost
	// had recorded them.
	Ignored int64
	// Submissions that have ended, how long they took together, and the status queries.
	Submissions   int64
	Latency       time.Duration
	StatusQueries int64
	// Exchanges with the store, the keys that they named, and requests to the store of any kind that failed.
	Exchanges, Keys, Failures int64
	// FailingFor is for how long the store has refused what the dispatcher is doing at FailingAt, and Failure why; nil:
	// it refuses nothing.
	FailingFor time.Duration
	FailingAt  string
	Failure    error
	// TakenOver are keys that were claimed while a step of another instance on them was unfinished, Released those that
	// were released for other instances' fair share.
	TakenOver, Released int64
}

// snapshot copies what can be shown.
func (m *machine) snapshot() Stats {
	s := m.observed
	s.Recorded = maps.Clone(s.Recorded)
	s.Claimed = len(m.slots)
	s.Sending = m.counts[sending]
	s.Pending = m.counts[atTarget]
	return s
}
