package sabledb

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/understudy-ha/understudy/history"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/store"
)

var (
	_ store.Store  = (*Store)(nil)
	_ store.Shards = (*Store)(nil)
	_ store.Tokens = (*Store)(nil)
)

// defaultKeepEvents is about 30 MiB of history.
const defaultKeepEvents = 100_000

// Config says where the store is.
type Config struct {
	// URL of the server: sabledb://HOST:PORT?prefix=NAME&cacert=FILE. Required.
	URL string
	// KeepEvents is how many events the history keeps, give or take a few. Default 100,000.
	KeepEvents int
	// NoMigrate leaves the schema as it is: only Inspect and Migrate are sure to work.
	NoMigrate bool
}

// Store is a store in SableDB. It is safe to use from many goroutines.
type Store struct {
	target *target
	keep   int
	guard  *guard
	// reading is held while a page of the history is read: however many read, one page at a time competes for the lock.
	reading chan struct{}
}

// Open connects to the server. It returns lease.ErrInvalid for a URL that cannot be used, lease.ErrUnavailable for a server that
// does not answer or is not a SableDB, and store.ErrSchema.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	t, err := parseURL(cfg.URL)
	if err != nil {
		return nil, err
	}
	s := &Store{target: t, keep: cmp.Or(max(0, cfg.KeepEvents), defaultKeepEvents), reading: make(chan struct{}, 1)}
	s.guard = newGuard(s.dial)
	if cfg.NoMigrate {
		if err = s.guard.check(ctx, ""); err != nil {
			err = failure(err, false)
		}
	} else {
		_, _, err = s.Migrate(ctx)
	}
	if err != nil {
		_ = s.Close()
		return nil, fmt.Errorf("opening %s: %w", t.location, err)
	}
	return s, nil
}

// Close implements [store.Admin].
func (s *Store) Close() error {
	s.guard.close()
	return nil
}

// Migrate implements [store.Admin].
func (s *Store) Migrate(ctx context.Context) (from, to int, err error) {
	from = schema
	err = s.run(ctx, func(k *call) error {
		if len(k.state.Memory) == 0 {
			from = 0
		}
		return nil
	})
	return from, schema, err
}

// Inspect implements [store.Admin].
func (s *Store) Inspect(ctx context.Context) (store.Info, error) {
	out := store.Info{Kind: "sabledb", Location: s.target.location, Wanted: schema, Warnings: []string{
		"SableDB counts whole seconds and wakes nobody: intervals of 1 s and more",
		"a crash of the server loses up to 250 ms, and two holders may meet for up to T; check the term wherever effects land",
	}}
	err := s.run(ctx, func(k *call) error {
		if out.Schema, out.Now = k.state.Schema, k.now; len(k.state.Memory) == 0 {
			out.Schema = 0
		}
		k.looks = true
		return nil
	})
	run := s.guard.server()
	out.Server = "SableDB, node " + run.id
	if run.role != "primary" {
		out.Warnings = append(out.Warnings, "the server is a replica: it can only be read; name its primary")
	}
	return out, err
}

// Append implements [history.Log].
func (s *Store) Append(ctx context.Context, e history.Event) error {
	return s.run(ctx, func(k *call) error { return k.memory.Append(ctx, e) })
}

// Read implements [history.Log]. With a filter that matches little it reads the whole history, and each page of it under
// the lock for itself: renewals come in between.
func (s *Store) Read(ctx context.Context, q history.Query) (out []history.Event, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	limit := q.PageSize()
	for more := true; more && len(out) < limit; {
		var page []history.Event
		if page, more, err = s.readPage(ctx, &q); err != nil {
			return nil, err
		}
		if q.Newest {
			out = append(page, out...)
		} else {
			out = append(out, page...)
		}
	}
	if q.Newest {
		return out[max(0, len(out)-limit):], nil
	}
	return out[:min(len(out), limit)], nil
}

// readPage returns those of the next [history.MaxRead] events that match, and has q continue after them.
func (s *Store) readPage(ctx context.Context, q *history.Query) (page []history.Event, more bool, err error) {
	select {
	case s.reading <- struct{}{}:
		defer func() { <-s.reading }()
	case <-ctx.Done():
		return nil, false, failure(context.Cause(ctx), false)
	}
	err = s.run(ctx, func(k *call) (err error) {
		// Since the page before, the oldest events may have been cut off.
		first, last := max(k.state.Base, q.After)+1, k.memory.Snapshot().LastID()
		if q.Before != 0 {
			last = min(last, q.Before-1)
		}
		if first > last {
			return nil
		}
		from, to := first, min(last, first+history.MaxRead-1)
		if q.Newest {
			from, to = max(first, last-history.MaxRead+1), last
		}
		if page, err = k.events(ctx, from, to); err != nil {
			return err
		}
		if more = from > first || to < last; q.Newest {
			q.Before = from
		} else {
			q.After = to
		}
		return nil
	})
	page = slices.DeleteFunc(page, func(e history.Event) bool {
		return q.Part != "" && e.Part != q.Part || q.Subject != "" && e.Subject != q.Subject
	})
	return page, more, err
}

// Trim implements [history.Log].
func (s *Store) Trim(ctx context.Context, keep int) (cut int64, err error) {
	err = s.run(ctx, func(k *call) error {
		cut = max(0, k.memory.Snapshot().LastID()-k.state.Base-int64(max(0, keep)))
		if cut == 0 {
			return nil
		}
		k.extra = append(k.extra, k.trim(cut))
		return nil
	})
	return cut, err
}

// validateTiming refuses a timing for which whole seconds are too coarse.
func validateTiming(t lease.Timing) error {
	if t.Interval >= precision && t.Timeout > 2*t.Interval {
		return nil
	}
	i := max(t.Interval, precision).Truncate(precision)
	if i < t.Interval {
		i += precision
	}
	return fmt.Errorf("%w: interval %v and timeout %v on SableDB, which counts whole seconds; use %v and %v or more",
		lease.ErrUnsafeTiming, t.Interval, t.Timeout, i, max(3*i, (t.Timeout+precision-1).Truncate(precision)))
}

// keptFor is how long nothing is given away yet after a loss.
func (k *call) keptFor(timeout time.Duration) time.Duration {
	return max(0, timeout+2*precision-k.now.Sub(k.state.Lost))
}
