// Package backoff is how long to wait before something that failed is tried again: twice as long after each failure, up to a
// limit, and part of it at random, so that many who failed together do not come back together.
package backoff

import (
	"context"
	"math/rand/v2"
	"time"
)

// Backoff is the pauses of one loop. It is for one goroutine.
type Backoff struct {
	// First and Most are the longest that the first pause and any pause can be.
	First, Most time.Duration
	// Jitter returns a random duration in [0, d). Default: [Random].
	Jitter func(d time.Duration) time.Duration

	failures int
}

// Next counts a failure and returns the pause after it.
func (b *Backoff) Next() time.Duration {
	b.failures++
	return JitteredPause(b.failures, b.First, b.Most, b.Jitter)
}

// Failures is how many there were in a row.
func (b *Backoff) Failures() int { return b.failures }

// Reset ends the row: the next pause is a first one.
func (b *Backoff) Reset() { b.failures = 0 }

// Wait waits for [Backoff.Next], and reports whether ctx let it.
func (b *Backoff) Wait(ctx context.Context) bool { return Sleep(ctx, b.Next()) }

// Sleep waits for so long, and reports whether ctx let it.
func Sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// Pause is the pause after so many failures in a row (1 or more): first, doubled for each further one, most at most; a random
// part of up to half of it is left out.
func Pause(failures int, first, most time.Duration) time.Duration {
	return JitteredPause(failures, first, most, nil)
}

// JitteredPause is [Pause] with a [Backoff.Jitter] of the caller's.
func JitteredPause(failures int, first, most time.Duration, jitter func(time.Duration) time.Duration) time.Duration {
	if jitter == nil {
		jitter = Random
	}
	d := min(first, most)
	for range failures - 1 {
		if d >= most/2 {
			d = most
			break
		}
		d *= 2
	}
	return d/2 + jitter(d/2)
}

// Random returns a random duration in [0, d); 0 if d is not positive.
func Random(d time.Duration) time.Duration { return rand.N(max(1, d)) }
