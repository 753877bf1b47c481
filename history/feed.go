package history

import (
	"context"
	"slices"
	"time"
)

// Feed follows a [Log]. It allows for events that become visible late: ids that
// were skipped are asked for again until they are older than any statement that
// could still bring them. And it notices a log that was set back, as by a failover to a copy that lagged, whose ids come again.
type Feed struct {
	log  Log
	gaps gaps
	// last is the event with the largest id that was seen, which every reading has to find as it was; 0 is none.
	last Event
	// seen are the latest MaxRead events, by id, and ids is their order: in a log that was set back they are not new.
	seen map[int64]time.Time
	ids  []int64
	// began is from when on it follows: of an event that it was only told the id of, the time is not known.
	began time.Time
}

// lateness is longer than any statement that writes an event may take.
const lateness = 30 * time.Second

// maxGaps bounds what a feed remembers; the oldest gaps are given up first.
const maxGaps = 10_000

// clocksDiffer is more than the wall clocks of a store and of the copy that replaces it may differ by.
const clocksDiffer = time.Minute

// NewestID is the id of the newest event, after which a [Feed] sees what is new; 0 if there is none.
func NewestID(ctx context.Context, log Log) (int64, error) {
	newest, err := log.Read(ctx, Query{Newest: true, Limit: 1})
	if err != nil || len(newest) == 0 {
		return 0, err
	}
	return newest[0].ID, nil
}

// NewFeed follows the log from after the given id, which is 0 or that of an event.
func NewFeed(log Log, after int64) *Feed {
	return &Feed{log: log, gaps: newGaps(after), last: Event{ID: after}, seen: map[int64]time.Time{}, began: time.Now()}
}

// Next returns the events that have appeared since the last call, oldest id
// first, and none when there are none. Each is returned once; those of a log that was
// set back may be returned again.
func (f *Feed) Next(ctx context.Context) ([]Event, error) {
	var out []Event
	last, found := f.last, f.last.ID == 0
	q := Query{After: max(0, min(f.gaps.floor(time.Now()), last.ID-1))}
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
			if e.ID == last.ID && (last.At.IsZero() || e.At.Equal(last.At)) {
				found, f.last = true, e
			}
			if e.ID >= last.ID && !found {
				return f.resume(ctx, out, true)
			}
			if at, known := f.seen[e.ID]; f.gaps.take(e.ID, time.Now()) && !(known && e.At.Equal(at)) {
				f.remember(e)
				out = append(out, e)
			}
			if e.ID > f.last.ID {
				f.last = e
			}
		}
		if len(page) < MaxRead {
			if !found {
				return f.resume(ctx, out, false)
			}
			return out, nil
		}
	}
}

func (f *Feed) remember(e Event) {
	f.seen[e.ID] = e.At
	if f.ids = append(f.ids, e.ID); len(f.ids) > MaxRead {
		delete(f.seen, f.ids[0])
		f.ids = f.ids[1:]
	}
}

// resume goes on in a log that has the last event no more, or another with its id. It was trimmed, and the events that follow are new, or it
// was set back: the copy may lack more than that event, and has given ids again. Those that were not seen so are new then, if their time
// says that they may be. (Of a feed that began less than a minute ago these may be some from before it.)
func (f *Feed) resume(ctx context.Context, out []Event, follow bool) ([]Event, error) {
	older, err := f.log.Read(ctx, Query{Before: f.last.ID + 1, Limit: 1})
	if err == nil && (len(older) > 0 || !follow) {
		err = f.rewind(ctx)
	}
	if err == nil {
		f.last = Event{}
		var more []Event
		more, err = f.Next(ctx)
		out = append(out, more...)
	}
	if len(out) > 0 {
		return out, nil // the next call meets the error again
	}
	return nil, err
}

// rewind makes all events new that may be younger than the last one that was seen.
func (f *Feed) rewind(ctx context.Context) error {
	newest, err := f.log.Read(ctx, Query{Newest: true})
	if err != nil {
		return err
	}
	last := f.last.At
	if last.IsZero() {
		last = f.began
	}
	after := int64(0)
	for i, e := range newest {
		if i == 0 {
			after = e.ID - 1
		}
		if e.At.Before(last.Add(-clocksDiffer)) {
			after = e.ID
		}
	}
	f.gaps = newGaps(after)
	return nil
}

// gaps remembers which ids were skipped. It is pure.
type gaps struct {
	next    int64               // the smallest id that is larger than every one taken
	missing map[int64]time.Time // skipped, and when that was noticed
}

func newGaps(after int64) gaps { return gaps{next: after + 1, missing: map[int64]time.Time{}} }

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
