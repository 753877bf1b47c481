package shard

import "context"

// Process is a node's process on this host.
type Process interface {
	// Start starts it, unless it runs. An adopted one cannot be started.
	Start(ctx context.Context) error
	Running() bool
	// Done is closed at the end of the run that was last started. Nothing of it can
	// accept a write any more then.
	Done() <-chan struct{}
	// Kill ends it at once, stopped or not. It does not wait for its end.
	Kill() error
	// PID is 0 when it does not run.
	PID() int
}
