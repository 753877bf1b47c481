package api

import (
	"fmt"
	"github.com/understudy-ha/understudy/api/apitype"
	"math"
	"net/http"
	"time"

	"github.com/understudy-ha/understudy/history"
	"github.com/understudy-ha/understudy/lease"
)

// history answers with the newest events that match or, if after is given, with
// the oldest after it; in either case in ascending order.
func (s *Server) history(w http.ResponseWriter, r *http.Request) error {
	var q history.Query
	var err error
	if q.Part, err = filter(r, "part"); err != nil {
		return err
	}
	if q.Subject, err = filter(r, "subject"); err != nil {
		return err
	}
	if q.After, err = number(r, "after", 0, math.MaxInt64, 0); err != nil {
		return err
	}
	if q.Before, err = number(r, "before", 1, math.MaxInt64, 0); err != nil {
		return err
	}
	limit, err := number(r, "limit", 1, history.MaxRead, 100)
	if err != nil {
		return err
	}
	q.Limit, q.Newest = int(limit), !r.URL.Query().Has("after")
	if !q.Newest && q.Before > 0 {
		return fmt.Errorf("%w: give after or before, not both", lease.ErrInvalid)
	}
	events, err := s.cfg.Store.Read(r.Context(), q)
	if err != nil {
		return err
	}
	out := apitype.Events{Events: make([]apitype.Event, 0, len(events))}
	for _, e := range events {
		out.Events = append(out.Events, viewEvent(e))
	}
	return writeJSON(w, http.StatusOK, out)
}

// viewEvent shows a row of the history.
func viewEvent(e history.Event) apitype.Event {
	return apitype.Event{
		ID: e.ID, At: e.At, Part: e.Part, Subject: e.Subject, From: e.From, To: e.To, Term: e.Term, Reason: e.Reason,
		DurationMS: roundedUp(e.Duration),
	}
}

// roundedUp is a duration in whole milliseconds. It is rounded up, so that 0 means none at all.
func roundedUp(d time.Duration) int64 { return int64((d + time.Millisecond - 1) / time.Millisecond) }
