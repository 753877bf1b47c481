package api

import (
	"cmp"
	"math"
	"net/http"
	"time"

	"github.com/understudy-ha/understudy/access"
	"github.com/understudy-ha/understudy/api/apitype"
	"github.com/understudy-ha/understudy/history"
)

// history answers with the newest events that match or, if after is given, with
// the oldest after it; in either case in ascending order.
func (s *Server) history(r *http.Request) (out apitype.Events, err error) {
	params := queryOf(r)
	q := history.Query{
		Part: storedPart(params.name("part")), Subject: params.name("subject"), Limit: params.limit(history.MaxRead), Newest: !params.values.Has("after"),
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

// storedParts and shownParts are the parts whose name in the store is not the one that readers see. The store keeps the
// old one: rows of earlier versions have it, and versions that run side by side look for it.
var (
	storedParts = map[string]string{"queue": "batch", "token": access.Part}
	shownParts  = map[string]string{"batch": "queue", access.Part: "token"}
)

// storedPart is what the store calls a part that a caller asks for, by its name or by the stored one.
func storedPart(asked string) string { return cmp.Or(storedParts[asked], asked) }

// shownPart is what readers see of a stored part.
func shownPart(stored string) string { return cmp.Or(shownParts[stored], stored) }

// viewEvent shows a row of the history.
func viewEvent(e history.Event) apitype.Event {
	return apitype.Event{
		ID: e.ID, At: e.At, Part: shownPart(e.Part), Subject: e.Subject, From: e.From, To: e.To, Term: e.Term, Reason: e.Reason,
		DurationMS: roundedUp(e.Duration),
	}
}

// roundedUp is a duration in whole milliseconds. It is rounded up, so that 0 means none at all.
func roundedUp(d time.Duration) int64 { return int64((d + time.Millisecond - 1) / time.Millisecond) }
