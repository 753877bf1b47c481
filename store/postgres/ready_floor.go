package postgres

import (
	"sync"
	"time"
)

// maxCommitDelay is the longest time from the clock reading that orders a key that became ready
// to the commit that makes the key visible.
const maxCommitDelay = 3 * time.Second

// fullScanInterval is how often all ready keys are scanned, for those that became visible even later.
const fullScanInterval = time.Second

// readyFloors remember, for each space, the time before which every ready key has been
// claimed. They are hints: they only make scans shorter.
type readyFloors struct {
	mu sync.Mutex
	by map[string]floor
}

type floor struct {
	at    time.Time // by the store's clock
	whole time.Time // by the local one: until then a scan from at is enough
}

// get returns the time to scan from; nil is from the beginning.
func (f *readyFloors) get(space string, now time.Time) *time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	known, ok := f.by[space]
	if !ok || !now.Before(known.whole) {
		return nil
	}
	return &known.at
}

// raise remembers that all ready keys before to have been claimed. The longer a full scan takes, the
// rarer it is, so that full scans never take up all the time.
func (f *readyFloors) raise(space string, to time.Time, whole bool, began, ended time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	known := f.by[space]
	known.at = to
	if whole {
		known.whole = ended.Add(max(fullScanInterval, 20*ended.Sub(began)))
	}
	if f.by == nil {
		f.by = map[string]floor{}
	}
	f.by[space] = known
}
