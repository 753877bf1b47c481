package claim

import (
	"cmp"
	"fmt"
	"time"

	"github.com/understudy-ha/understudy/lease"
)

// Windows are how long the keys of a silent instance are kept from the others.
type Windows struct {
	// First is how long a session lives after each renewal. Default 30 s. Its
	// interval is a sixth of it, and at most 5 s.
	First time.Duration
	// Second is how long a step keeps others from its key, counted from its start. Default 3 min. It must be longer than any step may take.
	Second time.Duration
}

// Defaults of [Windows].
const (
	DefaultFirst  = 30 * time.Second
	DefaultSecond = 3 * time.Minute
)

// WithDefaults fills what is zero.
func (w Windows) WithDefaults() Windows {
	w.First = cmp.Or(w.First, DefaultFirst)
	w.Second = cmp.Or(w.Second, max(DefaultSecond, w.First))
	return w
}

// Timing is that of the sessions that hold claims under these windows.
func (w Windows) Timing() lease.Timing {
	return lease.Timing{Interval: min(w.First/6, 5*time.Second), Timeout: w.First}
}

// Validate refuses unsafe windows, with an error that wraps
// [lease.ErrUnsafeTiming]; step is the longest that one step of work takes.
func (w Windows) Validate(step time.Duration) error {
	if err := w.Timing().Validate(0); err != nil {
		return fmt.Errorf("first window: %w", err)
	}
	// A step protects its key at least as long as the session does: otherwise an
	// idle key would be protected longer than a busy one.
	if w.Second < w.First {
		return fmt.Errorf("%w: a second window of %v is shorter than the first of %v", lease.ErrUnsafeTiming, w.Second, w.First)
	}
	// By the end of the second window the step must have ended: its deadline counts
	// from the same start.
	if w.Second <= step {
		return fmt.Errorf("%w: a second window of %v must be longer than the deadline of a step (%v): otherwise the key is given to another while this instance still works on it; with %v a key in a step would be taken over after %v at worst",
			lease.ErrUnsafeTiming, w.Second, step, step+time.Second, max(w.First, step+time.Second)+PollInterval)
	}
	return nil
}

// WorstTakeover is the longest that the keys of a crashed instance wait for the next one,
// while another works: idle keys, and keys in a step.
func (w Windows) WorstTakeover() (idle, inStep time.Duration) {
	return w.First + PollInterval, max(w.First, w.Second) + PollInterval
}

// Pauses of members; WorstTakeover counts on the first.
const (
	// PollInterval is how often an instance claims keys without being woken.
	PollInterval = time.Second
	// Linger is how long keys that became free are left to members with fewer keys.
	Linger = 200 * time.Millisecond
)
