package store

import (
	"context"
	"errors"
	"time"
)

// ErrSchema: this program cannot use the store's schema: it needs a newer program, or it
// is missing and this program may not create it.
var ErrSchema = errors.New("store: schema")

// Info describes a store.
type Info struct {
	// Kind is "memory", "sqlite", "postgres", "redis" or "sabledb".
	Kind string `json:"kind"`
	// Location is a path, or a URL without secrets.
	Location string `json:"location"`
	// Server is the product and version that answers.
	Server string `json:"server"`
	// Schema is the version found, 0 when there is none; Wanted is this program's.
	Schema int `json:"schema"`
	Wanted int `json:"wanted"`
	// Readers is the oldest version that a program must know to use the schema: less than Schema
	// if the newest steps only added to it. 0: Schema.
	Readers int `json:"readers,omitempty"`
	// Now is the store's clock.
	Now time.Time `json:"now"`
	// Notifies: changes wake waiters. Otherwise waiters find them by polling alone.
	Notifies bool `json:"notifies"`
	// Warnings about this store's settings, each with what to do.
	Warnings []string `json:"warnings,omitempty"`
}

// Admin is what every store offers to its operator.
type Admin interface {
	// Inspect describes the store, and changes nothing.
	Inspect(ctx context.Context) (Info, error)
	// Migrate brings the schema to the version that this program wants and
	// returns the versions before and after. Any number of processes may call it
	// at once. Processes of the version before continue, and can start again. A schema
	// that needs a newer program is [ErrSchema].
	Migrate(ctx context.Context) (from, to int, err error)
	// Close closes all connections that the store keeps. Calls under way may fail or end; make none after it.
	Close() error
}

// Salvaged is what could be copied of a damaged store.
type Salvaged struct {
	Tables []SalvagedTable `json:"tables"`
	// Repairs made rows agree with others that were lost. Without damage there are none.
	Repairs []SalvageRepair `json:"repairs,omitempty"`
	// NotCopied names the tables of another program, which stay in the damaged file alone.
	NotCopied []string `json:"not_copied,omitempty"`
	// Unreadable is how many bytes of the file the disk could not read.
	Unreadable int64 `json:"unreadable_bytes"`
}

// SalvagedTable is what could be copied of one table; Damage is why not all of it, or "".
type SalvagedTable struct {
	Name   string `json:"table"`
	Rows   int64  `json:"rows"`
	Damage string `json:"damage,omitempty"`
}

// SalvageRepair says what was dropped, added or corrected, with the number in front.
type SalvageRepair struct {
	Rows int64  `json:"rows"`
	What string `json:"what"`
}
