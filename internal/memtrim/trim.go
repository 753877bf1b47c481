package memtrim

import (
	"context"
	"runtime/debug"
	"time"
)

// settled is how long after a start the memory is given back: sessions, connections and the first answers come before.
const settled = 5 * time.Second

// AfterStart gives memory back once, when the program has settled. It returns then, or when the context ends.
func AfterStart(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(settled):
		debug.FreeOSMemory()
		unmapProgram()
	}
}
