package lease

import (
	"context"
	"errors"
	"sync"
	"time"
)

// healthFor is for how long a failure counts that is not repeated: what failed is no longer tried here. A request takes 10 s
// at most, and is tried again within seconds.
const healthFor = 30 * time.Second

// StoreHealth remembers which requests of one part of a process the store refuses, so that the process can say that it is
// not ready. A part asks for different things, and one that works must not hide another that does not.
type StoreHealth struct {
	clock Clock

	mu      sync.Mutex
	failing map[string]storeFailure // by what the part was doing
}

type storeFailure struct {
	since, last time.Duration
	err         error
}

// NewStoreHealth is that of a part that has asked for nothing yet.
func NewStoreHealth(clock Clock) *StoreHealth {
	return &StoreHealth{clock: clock, failing: map[string]storeFailure{}}
}

// Record notes how a request ended. A lapsed session, an invalid request and a caller that gave up say nothing of the store.
func (h *StoreHealth) Record(doing string, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case err == nil:
		delete(h.failing, doing)
	case errors.Is(err, ErrLapsed), errors.Is(err, ErrInvalid), errors.Is(err, context.Canceled):
	default:
		now := h.clock.Now()
		f, known := h.failing[doing]
		if !known || now-f.last > healthFor {
			f.since = now
		}
		f.last, f.err = now, err
		h.failing[doing] = f
	}
}

// Failing is for how long what has failed the longest fails, what it is, and why; a nil error: nothing fails.
func (h *StoreHealth) Failing() (since time.Duration, doing string, failure error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.clock.Now()
	for what, f := range h.failing {
		if now-f.last <= healthFor && (failure == nil || now-f.since > since) {
			since, doing, failure = now-f.since, what, f.err
		}
	}
	return since, doing, failure
}
