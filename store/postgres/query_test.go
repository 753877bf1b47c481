package postgres

import (
	"context"
	"math"
	"testing"
	"time"
)

// The server takes a lock_timeout of at most 2,147,483,647 ms.
func TestLockTimeoutOfALongCall(t *testing.T) {
	for after, want := range map[time.Duration]int64{-time.Hour: 1, 100 * 24 * time.Hour: math.MaxInt32} {
		ctx, cancel := context.WithDeadline(t.Context(), time.Now().Add(after))
		got := withLockTimeout(ctx, []any{"a", lockTimeout{}})[1]
		cancel()
		if got != want {
			t.Errorf("with a deadline in %v the lock timeout is %v ms, want %d", after, got, want)
		}
	}
}
