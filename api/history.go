package api

import (
	"math"
	"net/http"
	"time"

	"github.com/understudy-ha/understudy/api/apitype"
	"github.com/understudy-ha/understudy/history"
)

// history answers with the newest events that match or, if after is given, with
// the oldest after it; in either case in ascending order.
func (s *Server) history(r *http.Request) (out apitype.Events, err error) {
	params := queryOf(r)
	q := history.Query{
		Part: params.name("part"), Subject: params.name("subject"), Limit: params.limit(history.MaxRead), Newest: !params.values.Has("after"),
		After: params.number("after", 0, math.MaxInt64, 0), Before: params.number("before", 1, math.MaxInt64, 0),
	}
	if !q.Newest && q.Before > 0 {
		params.refuse("give after or before, not both")
	}
	if params.err != nil {
		return out, params.err
	}
	events, err := s.cfg.Store.Read(r.Context(), q)
	return apitype.Events{Events: views(events, viewEvent)}, err
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
