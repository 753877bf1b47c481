package redis

import (
	"context"
	"encoding/json"
	"slices"
	"strconv"

	"github.com/understudy-ha/understudy/history"
)

// The history is a list; an event's id is its place, counted from a base that
// grows as the oldest are cut off.

// record runs an operation and writes its event, if it has one, all at one
// moment. f may be called several times.
func (s *plain) record(ctx context.Context, p *pool, f func(t *tx) (*history.Event, error)) error {
	var length *command
	err := s.transact(ctx, p, writes, func(t *tx) error {
		length = nil
		e, err := f(t)
		if err == nil && e != nil {
			length = s.write(t, *e)
		}
		return err
	})
	if err == nil {
		s.trimAfter(ctx, length)
	}
	return err
}

// trimAfter keeps the history at its length, give or take a few, after an event was
// written.
func (s *plain) trimAfter(ctx context.Context, length *command) {
	if length == nil || length.number() <= int64(s.keep+s.keep/16+16) {
		return
	}
	if _, err := s.Trim(ctx, s.keep); err != nil {
		s.log.Debug("cutting the history; the next event does", "err", err)
	}
}

// write queues an event; the answer is the length of the list.
func (s *plain) write(t *tx, e history.Event) *command {
	e.ID, e.At = 0, s.now()
	length := t.do("RPUSH", s.root+"events", document(e))
	t.do("SET", s.root+"changed", change())
	return length
}

// Append implements [history.Log].
func (s *plain) Append(ctx context.Context, e history.Event) error {
	return s.record(ctx, s.rest, func(*tx) (*history.Event, error) { return &e, nil })
}

// Read implements [history.Log].
func (s *plain) Read(ctx context.Context, q history.Query) ([]history.Event, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	limit := q.PageSize()
	var out []history.Event
	after, before := max(0, q.After), q.Before
	for len(out) < limit {
		page, more, err := s.page(ctx, after, before, q.Newest)
		if err != nil {
			return nil, err
		}
		if q.Newest {
			slices.Reverse(page)
		}
		for _, e := range page {
			if (q.Part == "" || e.Part == q.Part) && (q.Subject == "" || e.Subject == q.Subject) && len(out) < limit {
				out = append(out, e)
			}
		}
		if !more || len(page) == 0 {
			break
		}
		if end := page[len(page)-1].ID; q.Newest {
			before = end
		} else {
			after = end
		}
	}
	if q.Newest {
		slices.Reverse(out)
	}
	return out, nil
}

// page reads events between two ids, in ascending order: the first, or the last.
// more tells that there may be others.
func (s *plain) page(ctx context.Context, after, before int64, newest bool) (out []history.Event, more bool, err error) {
	err = s.transact(ctx, s.rest, reads, func(t *tx) error {
		out, more = nil, false
		key := s.root + "events-base"
		base, length := ask("GET", key), ask("LLEN", s.root+"events")
		if err := t.watch([]string{key}, base, length); err != nil {
			return err
		}
		first, last := max(0, after-base.number()), length.number()-1
		if before != 0 {
			last = min(last, before-base.number()-2)
		}
		if last < first {
			return nil
		}
		if more = last-first >= history.MaxRead; more && newest {
			first = last - history.MaxRead + 1
		} else if more {
			last = first + history.MaxRead - 1
		}
		read := ask("LRANGE", s.root+"events", strconv.FormatInt(first, 10), strconv.FormatInt(last, 10))
		// Under the watch, which tells if the places have moved meanwhile.
		if err := t.read(read); err != nil {
			return err
		}
		for i, text := range read.texts() {
			var e history.Event
			if err := json.Unmarshal([]byte(text), &e); err != nil {
				return foreign(s.root+"events", err)
			}
			e.ID = base.number() + first + int64(i) + 1
			out = append(out, e)
		}
		return nil
	})
	return out, more, err
}

// Trim implements [history.Log].
func (s *plain) Trim(ctx context.Context, keep int) (cut int64, err error) {
	keep = max(0, keep)
	err = s.transact(ctx, s.rest, writes, func(t *tx) error {
		key, events := s.root+"events-base", s.root+"events"
		base, length := ask("GET", key), ask("LLEN", events)
		if err := t.watch([]string{key, events}, base, length); err != nil {
			return err
		}
		if cut = max(0, length.number()-int64(keep)); cut == 0 {
			return nil
		}
		t.do("LTRIM", events, strconv.FormatInt(cut, 10), "-1")
		t.do("SET", key, strconv.FormatInt(base.number()+cut, 10))
		return nil
	})
	if err != nil {
		return 0, err
	}
	return cut, nil
}
