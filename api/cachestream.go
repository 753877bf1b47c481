package api

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/understudy-ha/understudy/api/apitype"
	"github.com/understudy-ha/understudy/cache"
)

// viewCacheStats shows the counts.
func viewCacheStats(s cache.Stats) apitype.CacheStats {
	return apitype.CacheStats{
		Hits: s.Hits, Stales: s.Stales, Misses: s.Misses, Referred: s.Referred, Refused: s.Refused, Waiting: s.Waiting,
		Keys: s.Keys, Bytes: s.Bytes, Evicted: s.Evicted, Elections: s.Elections, Won: s.Won, Yielded: s.Yielded,
		ElectionMS: s.ElectionTime.Milliseconds(), Fetches: s.Fetches, FetchFailures: s.FetchFailures, FetchesAborted: s.FetchAborted,
		Fetching: s.Fetching, FetchMS: s.FetchTime.Milliseconds(), Clients: s.Clients, Dropped: s.Dropped, Malformed: s.Malformed,
		Partitions: s.Partitions, Removals: s.Removals, SaveFailures: s.SaveFailures,
	}
}

// stateEvery is how often the state is sent to readers that want it.
const stateEvery = time.Second

// events streams what the peer does about its keys as it happens: what was before
// is not kept. A reader that is slow misses some, and is told how many.
func (c *cachePart) events(w http.ResponseWriter, r *http.Request) error {
	q := queryOf(r)
	state := q.flag("state")
	if q.err != nil {
		return q.err
	}
	leave, err := c.streams.take(r, 0)
	if err != nil {
		return err
	}
	defer leave()
	out, ok := openStream(w, r)
	if !ok {
		return nil
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer context.AfterFunc(c.running, cancel)()
	defer cancel()
	c.streamEvents(ctx, out, c.watch(ctx, q.values.Get("prefix")), state)
	return nil
}

// watch hands over events one at a time, until ctx ends or the peer does.
func (c *cachePart) watch(ctx context.Context, prefix string) <-chan cache.Event {
	events := make(chan cache.Event)
	go func() {
		defer close(events)
		err := c.peer.Watch(ctx, func(e cache.Event) {
			if e.Key != "" && !strings.HasPrefix(e.Key, prefix) {
				return
			}
			select {
			case events <- e:
			case <-ctx.Done():
			}
		})
		if err != nil && ctx.Err() == nil && !errors.Is(err, cache.ErrClosed) {
			c.router.log.Debug("cache peer cannot be watched", "err", err)
		}
	}()
	return events
}

func (c *cachePart) streamEvents(ctx context.Context, out sseWriter, events <-chan cache.Event, state bool) {
	beat := time.NewTicker(keepAliveInterval)
	defer beat.Stop()
	var tick <-chan time.Time
	if state {
		t := time.NewTicker(stateEvery)
		defer t.Stop()
		tick = t.C
		if out.write(c.stateFrame(ctx)) != nil {
			return
		}
	}
	for {
		frame := []byte(": still here\n\n")
		select {
		case <-ctx.Done():
			return
		case <-beat.C:
		case <-tick:
			frame = c.stateFrame(ctx)
		case e, ok := <-events:
			if !ok {
				return
			}
			frame = frameOf("cache", apitype.CacheEvent(e))
		}
		if out.write(frame) != nil {
			return
		}
	}
}

func (c *cachePart) stateFrame(ctx context.Context) []byte {
	ctx, cancel := context.WithTimeout(ctx, stateEvery)
	defer cancel()
	s := apitype.CacheState{Version: c.version, At: time.Now(), Stats: viewCacheStats(c.peer.Stats())}
	if view, err := c.peer.Cluster(ctx); err == nil {
		s.Cluster = new(viewCluster(view))
	} else {
		s.Error = err.Error()
	}
	return frameOf("state", s)
}

// frameOf is a value in the form of the stream, or a comment that says why it is missing.
func frameOf(name string, v any) []byte {
	frame, err := namedFrame(name, v)
	if err != nil {
		return []byte(": " + name + " cannot be shown\n\n")
	}
	return frame
}
