package history

import (
	"context"
	"slices"
	"time"
)

// Feed follows a [Log]. It allows for events that become visible late: ids that
// were skipped are asked for again until they are older than any statement that
// could still bring them.
type Feed struct {
	log  Log
	gaps gaps
}

// lateness is longer than any statement that writes an event may take.
const lateness = 30 * time.Second

// maxGaps bounds what a feed remembers; the oldest gaps are given up first.
const maxGaps = 10_000

// NewFeed follows the log from after the given id.
func NewFeed(log Log, after int64) *Feed {
	return &Feed{log: log, gaps: gaps{next: after + 1, missing: map[int64]time.Time{}}}
}

// Next returns the events that have appeared since the last call, oldest id
// first, and none when there are none. Each is returned once.
func (f *Feed) Next(ctx context.Context) ([]Event, error) {
	var out []Event
	q := Query{After: f.gaps.floor(time.Now())}
	for {
		page, err := f.log.Read(ctx, q)
		if err != nil && len(out) > 0 {
			return out, nil // they count as seen; the next call meets the error again
		}
		if err != nil {
			return nil, err
		}
		for _, e := range page {
			q.After = e.ID
			if f.gaps.take(e.ID, time.Now()) {
				out = append(out, e)
			}
		}
		if len(page) < MaxRead {
			return out, nil
		}
	}
}

// gaps remembers which ids were skipped. It is pure.
type gaps struct {
	next    int64               // the smallest id that is larger than every one taken
	missing map[int64]time.Time // skipped, and when that was noticed
}

// floor forgets the gaps that are too old to be filled, and returns the id
// after which to read.
func (g *gaps) floor(now time.Time) int64 {
	low := g.next
	for id, noticed := range g.missing {
		if now.Sub(noticed) > lateness {
			delete(g.missing, id)
			continue
		}
		low = min(low, id)
	}
	return low - 1
}

// take reports whether the id is new.
func (g *gaps) take(id int64, now time.Time) bool {
	if id < g.next {
		_, late := g.missing[id]
		delete(g.missing, id)
		return late
	}
	// An id far ahead is a log that was restored or trimmed, not ten thousand
	// statements at once.
	if id-g.next <= maxGaps {
		for skipped := g.next; skipped < id; skipped++ {
			g.missing[skipped] = now
		}
	}
	g.next = id + 1
	if len(g.missing) > maxGaps {
		ids := make([]int64, 0, len(g.missing))
		for id := range g.missing {
			ids = append(ids, id)
		}
		slices.Sort(ids)
		for _, id := range ids[:len(ids)-maxGaps] {
			delete(g.missing, id)
		}
	}
	return true
}
