package backoff_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/understudy-ha/understudy/internal/backoff"
)

func TestPausesDouble(t *testing.T) {
	const ms = time.Millisecond
	b := backoff.Backoff{First: 100 * ms, Most: 1 * time.Second, Jitter: func(d time.Duration) time.Duration { return d }}
	take := func(n int) (out []time.Duration) {
		for range n {
			out = append(out, b.Next())
		}
		return out
	}
	if got, want := take(6), []time.Duration{100 * ms, 200 * ms, 400 * ms, 800 * ms, time.Second, time.Second}; !slices.Equal(got, want) {
		t.Errorf("pauses %v, want %v", got, want)
	}
	if b.Failures() != 6 {
		t.Errorf("%d failures, want 6", b.Failures())
	}
	b.Reset()
	if got := b.Next(); got != 100*ms {
		t.Errorf("the pause after a reset is %v", got)
	}
}

func TestPausesAreSpread(t *testing.T) {
	for failures, whole := range map[int]time.Duration{1: 50, 2: 100, 6: 1600, 7: 2000, 1 << 30: 2000} {
		least, most := whole, time.Duration(0)
		for range 1000 {
			d := backoff.Pause(failures, 50, 2000)
			least, most = min(least, d), max(most, d)
		}
		if least < whole/2 || most > whole || least > whole*6/10 || most < whole*9/10 {
			t.Errorf("pauses after %d failures are %d to %d, want all of %d to %d", failures, least, most, whole/2, whole)
		}
	}
}

func TestPausesAreBounded(t *testing.T) {
	for _, c := range []struct{ first, most, longest time.Duration }{{5, 2, 2}, {0, 0, 0}, {0, 10, 10}, {1, 1<<63 - 1, 1<<63 - 1}} {
		if d := backoff.Pause(100, c.first, c.most); d < 0 || d > c.longest {
			t.Errorf("a pause of %d, between %d and %d", d, c.first, c.most)
		}
	}
}

func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		b := backoff.Backoff{First: time.Second, Most: time.Minute}
		began := time.Now()
		for range 2 {
			if !b.Wait(ctx) {
				t.Fatal("a pause was cut short")
			}
		}
		if took := time.Since(began); took < 1500*time.Millisecond || took > 3*time.Second {
			t.Errorf("two pauses took %v", took)
		}
		for b.Wait(ctx) {
		}
		if took := time.Since(began); took != 10*time.Second {
			t.Errorf("the wait ended after %v, its context after 10 s", took)
		}
	})
}
