package cache

import (
	"context"

	"github.com/understudy-ha/understudy/cache/protocol"
)

// Storage keeps a peer's copies, and what it must not forget, across restarts. One
// peer uses it, with one call at a time. [cachetest.Run] checks an
// implementation; cache/disk has one on SQLite.
//
// [cachetest.Run]: https://pkg.go.dev/github.com/understudy-ha/understudy/cache/cachetest
type Storage interface {
	// Load reads everything, once, before anything else is called. Records come in
	// the order of last use as far as it is known, the least recent first; each
	// ends the reading by returning an error, which Load returns.
	Load(ctx context.Context, each func(Record) error) (State, error)
	// Save replaces the records of these keys, and deletes those whose Entry is the
	// zero Entry: all or nothing, a value and what belongs to it together. What
	// was saved survives the process; a crash of the machine may lose the last
	// saves, in order, but none that came before a call of the methods below that survives.
	Save(ctx context.Context, records []Record) error
	// Raise stores the ceiling of terms, which never falls; when it returns, the
	// ceiling survives a crash of the machine.
	Raise(ctx context.Context, to int64) error
	// SaveRemovals stores removals, which survive a crash of the machine, and
	// forgets those that are not in the list: the list is whole.
	SaveRemovals(ctx context.Context, all []protocol.Removal) error
	// SaveMembers stores the list of members in force; it survives a crash of the
	// machine.
	SaveMembers(ctx context.Context, state protocol.MembersState) error
}

// Record is a stored copy.
type Record struct {
	Key   string
	Entry protocol.Entry
}

// State is what a peer must not forget besides its copies.
type State struct {
	Ceiling  int64
	Removals []protocol.Removal
	Members  protocol.MembersState // without members when none was stored
}
