package lease

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"
)

// steppedClock shows what a test sets.
type steppedClock struct {
	Clock
	now time.Duration
}

func (c *steppedClock) Now() time.Duration { return c.now }

func TestStoreHealth(t *testing.T) {
	clock := &steppedClock{now: time.Hour}
	h := NewStoreHealth(clock)
	full := fmt.Errorf("%w: disk is full", ErrUnavailable)
	want := func(since time.Duration, doing string, failure error) {
		t.Helper()
		if s, d, err := h.Failing(); s != since || d != doing || !errors.Is(err, failure) || (err == nil) != (failure == nil) {
			t.Errorf("failing for %v, %q, %v; want %v, %q, %v", s, d, err, since, doing, failure)
		}
	}
	want(0, "", nil)
	h.Record("storing", full)
	clock.now += 5 * time.Second
	h.Record("storing", full)
	h.Record("joining", ErrUnknown)
	h.Record("reading", nil) // hides nothing
	want(5*time.Second, "storing", full)
	h.Record("storing", nil)
	want(0, "joining", ErrUnknown)
	h.Record("joining", nil)
	h.Record("joining", fmt.Errorf("x: %w", ErrLapsed))
	h.Record("joining", context.Canceled)
	want(0, "", nil)
	h.Record("sweeping", full)
	clock.now += healthFor
	want(healthFor, "sweeping", full)
	clock.now++ // another instance sweeps now
	want(0, "", nil)
	h.Record("sweeping", full)
	want(0, "sweeping", full)
}
