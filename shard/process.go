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

// HookEvent is when a hook is called.
type HookEvent string

// Hook events.
const (
	OnPromote HookEvent = "promote" // before and after a promotion
	OnRole    HookEvent = "role"    // after any other change of the node's role
)

// HookCall tells a hook what happens.
type HookCall struct {
	Event HookEvent `json:"event"`
	Shard string    `json:"shard"`
	Node  string    `json:"node"` // its address for clients
	Role  Role      `json:"role"` // that it gets, or got
	Epoch int64     `json:"epoch"`
	From  string    `json:"from,omitempty"` // node id of the old primary
	To    string    `json:"to,omitempty"`   // node id of the new one
}

// Hooks are a user's own programs.
type Hooks interface {
	// Before is called before a promotion. Its error makes the promotion fail.
	Before(ctx context.Context, call HookCall) error
	// After is called after it, and after any change of role.
	After(ctx context.Context, call HookCall)
}

// Promisers reaches the agents of other nodes without the store.
type Promisers interface {
	// RequestPromise asks the agent at an address for a promise, under the authentication mac, and
	// returns that of its answer. Any error means that nothing was promised.
	RequestPromise(ctx context.Context, agentAddress string, p Promise, mac string) (answer string, err error)
}
