package shardtest

import (
	"slices"
	"sync"
	"time"

	"github.com/understudy-ha/understudy/shard"
)

// Views are what is known of some shards, as a test writes it, for readers of a catalog.
type Views struct {
	// Age and Err are their freshness; change them while nobody reads.
	Age time.Duration
	Err error

	mu      sync.Mutex
	views   []shard.View
	changed chan struct{}
}

// NewViews returns these.
func NewViews(views ...shard.View) *Views {
	return &Views{views: views, changed: make(chan struct{})}
}

// Set puts views in the place of all there were, and wakes the readers.
func (v *Views) Set(views ...shard.View) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.views = views
	close(v.changed)
	v.changed = make(chan struct{})
}

// Shards returns all of them.
func (v *Views) Shards() []shard.View {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.Clone(v.views)
}

// Shard returns the one of a shard.
func (v *Views) Shard(name string) (shard.View, bool) {
	for _, one := range v.Shards() {
		if one.Row.Name == name {
			return one, true
		}
	}
	return shard.View{}, false
}

// Changed is closed at the next change.
func (v *Views) Changed() <-chan struct{} {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.changed
}

// Freshness returns Age and Err.
func (v *Views) Freshness() (time.Duration, error) { return v.Age, v.Err }
