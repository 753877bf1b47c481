package store

import (
	"context"
	"errors"
	"time"
)

// ErrSchema: the store's schema cannot be used by this program: it is newer, or
// it is missing and may not be made.
var ErrSchema = errors.New("store: schema")

// Info is what a store tells about itself.
type Info struct {
	// Kind is "memory", "sqlite", "postgres" or "redis".
	Kind string `json:"kind"`
	// Location is where it is, fit to be shown: a path, or a URL without secrets.
	Location string `json:"location"`
	// Server is the product and version that answers.
	Server string `json:"server"`
	// Schema is the version found, 0 when there is none; Wanted is this program's.
	Schema int `json:"schema"`
	Wanted int `json:"wanted"`
	// Now is the store's clock.
	Now time.Time `json:"now"`
	// Notifies tells whether changes wake waiters, or are only found by polling.
	Notifies bool `json:"notifies"`
	// Warnings are about this store's settings, each with what to do.
	Warnings []string `json:"warnings,omitempty"`
}

// Admin is what every store offers to whoever looks after it.
type Admin interface {
	// Inspect asks the store about itself, and changes nothing.
	Inspect(ctx context.Context) (Info, error)
	// Migrate brings the schema to the version that this program wants and
	// returns the versions before and after. Any number of processes may do so
	// at once. A newer schema is [ErrSchema].
	Migrate(ctx context.Context) (from, to int, err error)
	// Close gives up all connections. Calls under way fail.
	Close() error
}
