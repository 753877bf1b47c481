package catalog

import (
	"time"

	"github.com/understudy-ha/understudy/shard"
)

// Views are what is known of shards, at no cost to the store: those of a [Catalog], or of an agent, which knows its own shard.
// They belong to all readers, who do not change them.
type Views interface {
	Shard(name string) (shard.View, bool)
	Shards() []shard.View
	// Changed is closed at the next change; take it before the views.
	Changed() <-chan struct{}
}

// AgedViews tell how old they are, and why they are not newer.
type AgedViews interface {
	Views
	Freshness() (time.Duration, error)
}
