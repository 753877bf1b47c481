package shard

import "context"

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
