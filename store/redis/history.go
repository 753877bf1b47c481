package redis

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/understudy-ha/understudy/history"
	"github.com/understudy-ha/understudy/lease"
)

// Append implements [history.Log].
func (s *Store) Append(ctx context.Context, e history.Event) error {
	_, err := s.run(ctx, s.rest, writes, "history_append", []string{s.eventsKey()},
		e.Part, e.Subject, e.From, e.To, e.Term, e.Reason, e.Duration.Microseconds(), s.keep, s.channel)
	return err
}

// Read implements [history.Log]. A part or subject is picked out here, page by
// page: the stream has no index.
func (s *Store) Read(ctx context.Context, q history.Query) ([]history.Event, error) {
	limit := q.PageSize()
	first, last := max(0, q.After)+1, int64(math.MaxInt64)
	if q.Before != 0 {
		last = q.Before - 1
	}
	page := history.MaxRead
	if q.Part == "" && q.Subject == "" {
		page = limit
	}
	var out []history.Event
	for first <= last && len(out) < limit {
		read, err := s.page(ctx, first, last, q.Newest, page)
		if err != nil {
			return nil, err
		}
		for _, e := range read {
			if (q.Part == "" || e.Part == q.Part) && (q.Subject == "" || e.Subject == q.Subject) && len(out) < limit {
				out = append(out, e)
			}
		}
		if len(read) < page {
			break
		}
		if end := read[len(read)-1].ID; q.Newest {
			last = end - 1
		} else {
			first = end + 1
		}
	}
	if q.Newest {
		slices.Reverse(out)
	}
	return out, nil
}

// page reads events from first to last, or from last to first.
func (s *Store) page(ctx context.Context, first, last int64, newest bool, count int) ([]history.Event, error) {
	command, from, to := "XRANGE", first, last
	if newest {
		command, from, to = "XREVRANGE", last, first
	}
	v, err := s.do(ctx, command, s.eventsKey(), from, to, "COUNT", count)
	if err != nil {
		return nil, err
	}
	var out []history.Event
	for r := rowOf(v); r.more(); {
		e, err := event(r.row())
		if err != nil {
			return nil, err
		}
		out = append(out, e)
	}
	return out, nil
}

func event(r *row) (history.Event, error) {
	id, _, _ := strings.Cut(r.text(), "-")
	var e history.Event
	var err error
	if e.ID, err = strconv.ParseInt(id, 10, 64); err != nil {
		return e, fmt.Errorf("%w: the history has the entry %q: something else writes under this prefix", lease.ErrUnavailable, id)
	}
	for f := r.row(); f.more(); {
		switch f.text() {
		case "at":
			e.At = f.time()
		case "part":
			e.Part = f.text()
		case "subject":
			e.Subject = f.text()
		case "from":
			e.From = f.text()
		case "to":
			e.To = f.text()
		case "term":
			e.Term = f.number()
		case "reason":
			e.Reason = f.text()
		case "duration":
			e.Duration = time.Duration(f.number()) * time.Microsecond
		default:
			f.next()
		}
	}
	return e, r.err()
}

// Trim implements [history.Log].
func (s *Store) Trim(ctx context.Context, keep int) (int64, error) {
	r, err := s.run(ctx, s.rest, writes, "history_trim", []string{s.eventsKey()}, max(0, keep))
	if err != nil {
		return 0, err
	}
	return r.number(), nil
}

func (s *Store) eventsKey() string { return s.root + "events" }
