package history

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"time"
)

// Event is one row of the history.
type Event struct {
	// ID is unique in the store and larger for later events, give or take
	// statements that ran at the same time. The store gives it.
	ID int64 `json:"id"`
	// At is the store's wall clock.
	At time.Time `json:"at"`
	// Part and Subject tell what changed hands: for a lease, its space and key.
	Part    string `json:"part"`
	Subject string `json:"subject"`
	// From and To are the holders before and after, as labels for operators; "" is
	// no holder. Both are "" or equal when something other than the holder changed.
	From string `json:"from"`
	To   string `json:"to"`
	// Term after the change.
	Term int64 `json:"term"`
	// Reason is one of those below for what a store does by itself, and
	// otherwise the reason that the caller gave.
	Reason string `json:"reason"`
	// Duration is how long the state before had lasted: on an acquisition the
	// time without a holder, on a release the time it was held. On an alarm it is how long the outage had lasted.
	Duration time.Duration `json:"-"`
}

// eventFields are those that JSON shows as they are.
type eventFields Event

// MarshalJSON writes the duration as duration_ms, which can have a fraction.
func (e Event) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		eventFields
		DurationMS float64 `json:"duration_ms"`
	}{eventFields(e), float64(e.Duration) / float64(time.Millisecond)})
}

// UnmarshalJSON also reads records of versions that wrote duration_ns.
func (e *Event) UnmarshalJSON(text []byte) error {
	var v struct {
		eventFields
		DurationMS float64       `json:"duration_ms"`
		DurationNS time.Duration `json:"duration_ns"`
	}
	if err := json.Unmarshal(text, &v); err != nil {
		return err
	}
	*e = Event(v.eventFields)
	e.Duration = cmp.Or(time.Duration(math.Round(v.DurationMS*float64(time.Millisecond))), v.DurationNS)
	return nil
}

// String is the event as one line for people.
func (e Event) String() string {
	d := e.Duration.Round(time.Millisecond)
	what := e.Part + " " + e.Subject
	switch {
	case e.From == "" && e.To == "":
		return fmt.Sprintf("%s: %s", what, e.Reason)
	case e.From == e.To:
		return fmt.Sprintf("%s: %s, %s (term %d)", what, e.To, e.Reason, e.Term)
	case e.To == "":
		return fmt.Sprintf("%s: %s → nobody, %s, held for %v (term %d)", what, e.From, e.Reason, d, e.Term)
	case e.From == "":
		return fmt.Sprintf("%s: nobody → %s, %s for %v (term %d)", what, e.To, e.Reason, d, e.Term)
	default:
		return fmt.Sprintf("%s: %s → %s, %s for %v (term %d)", what, e.From, e.To, e.Reason, d, e.Term)
	}
}

// Reasons that stores give.
const (
	Vacant    = "vacant"    // acquired: it was free, or had never been held
	Successor = "successor" // acquired: it was kept for this instance
	Lapsed    = "lapsed"    // acquired: the holder's session had lapsed
)

// Query selects events. Zero fields select everything.
type Query struct {
	After   int64 // only events with a larger id
	Before  int64 // only events with a smaller id, when not 0
	Part    string
	Subject string
	Newest  bool // the newest that match instead of the oldest; the answer is ascending either way
	Limit   int  // 1 to MaxRead; 0 is MaxRead
}

// MaxRead is the most events that one [Log.Read] returns.
const MaxRead = 1000

// PageSize is how many events the query gets.
func (q Query) PageSize() int {
	if q.Limit <= 0 || q.Limit > MaxRead {
		return MaxRead
	}
	return q.Limit
}

// Log is where a store keeps the events. Its methods fail as those of
// lease.Store do.
type Log interface {
	// Append records an event that no statement of the store's own makes; ID
	// and At are the store's to give.
	Append(ctx context.Context, e Event) error
	// Read returns the matching events in ascending order of id.
	Read(ctx context.Context, q Query) ([]Event, error)
	// Trim deletes all but the newest keep events and returns how many it deleted.
	Trim(ctx context.Context, keep int) (int64, error)
}
