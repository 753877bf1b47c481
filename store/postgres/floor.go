package postgres

import (
	"sync"
	"time"
)

// lateness is how long after its place in the order a key that became ready may be
// seen at last: its transaction takes the time, and then has to commit.
const lateness = 3 * time.Second

// wholeEvery is how often all ready keys are looked for, be they seen later than that.
const wholeEvery = time.Second

// floors remember, for each space, since when no key can be ready that was not
// taken. They are hints: they only spare looking.
type floors struct {
	mu sync.Mutex
	by map[string]floor
}

type floor struct {
	at    time.Time // by the store's clock
	whole time.Time // by the local one: until then it is enough to look from there
}

// get returns from when to look for keys that are ready; nil is from the beginning.
func (f *floors) get(space string, now time.Time) *time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	known, ok := f.by[space]
	if !ok || !now.Before(known.whole) {
		return nil
	}
	return &known.at
}

// raise remembers that all that was ready has been taken. Looking at everything must
// not become all that is done: the longer it takes, the rarer it is.
func (f *floors) raise(space string, to time.Time, whole bool, began, ended time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	known := f.by[space]
	known.at = to
	if whole {
		known.whole = ended.Add(max(wholeEvery, 20*ended.Sub(began)))
	}
	if f.by == nil {
		f.by = map[string]floor{}
	}
	f.by[space] = known
}
