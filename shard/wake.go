package shard

import "github.com/understudy-ha/understudy/lease"

// RowSpace is the space of changes of shards' rows, for stores that tell their watchers of those and of leases in one stream. The
// key is the shard; no lease has this space.
const RowSpace = "shard:row"

// WakeByChanges returns a function for a [lease.Store]'s Watch that calls wake as [Registry].Watch promises for the shard of
// this name, or for all if it is empty: at a change of a row or of a lease of shards, and with "" at a zero change.
func WakeByChanges(name string, wake func(shard string)) func(lease.Change) {
	return func(c lease.Change) {
		switch {
		case c == lease.Change{}:
			wake("")
		case (c.Lease.Space == Space || c.Lease.Space == RowSpace) && (name == "" || name == c.Lease.Key):
			wake(c.Lease.Key)
		}
	}
}
