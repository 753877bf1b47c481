package apitype

import "time"

// Event is one row of the history: something changed hands.
type Event struct {
	ID      int64     `json:"id"`
	At      time.Time `json:"at"`
	Part    string    `json:"part"`    // of a lease, its space
	Subject string    `json:"subject"` // of a lease, its key; of a message, queue/key
	From    string    `json:"from"`    // holder before, as name/id; "" is none
	To      string    `json:"to"`      // holder after
	Term    int64     `json:"term"`
	Reason  string    `json:"reason"` // vacant, successor, lapsed, or the words of the caller
	// DurationMS is how long the state before had lasted: of an acquisition the time without a holder, of a release
	// the time that the lease was held.
	DurationMS int64 `json:"duration_ms"`
}

// Events is a part of the history, the oldest first.
type Events struct {
	Events []Event `json:"events"`
}

// Point is one value of a series; nil where nothing is known.
type Point = *float64

// Series is how a value changed lately.
type Series struct {
	Name string `json:"name"`
	Unit string `json:"unit"`
	// Points has one for each every_ms, the oldest first and the last of now; null where nothing is known. It is left
	// out of a list without names.
	Points []Point `json:"points,omitempty"`
}

// SeriesList is the series that were asked for, or the names of all.
type SeriesList struct {
	EveryMS int64    `json:"every_ms"`
	Series  []Series `json:"series"`
}
