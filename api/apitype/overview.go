package apitype

import "time"

// Overview answers three questions at a glance: is everything held, what changed in the last hour, and what needs
// attention. Its lists are bounded; what they leave out is counted.
type Overview struct {
	At      time.Time `json:"at"`
	Held    []Held    `json:"held"`
	Changes Changes   `json:"changes"`
	// Needs is what needs attention, the bad ones first; MoreNeeds are not listed.
	Needs     []Need `json:"needs"`
	MoreNeeds int64  `json:"more_needs"`
	// Errors say what could not be read: what is shown of it is old, or missing.
	Errors []string `json:"errors,omitempty"`
}

// Held is how many things of a part there are, and how many of them are held.
type Held struct {
	Part  string  `json:"part" enum:"role,job,shard,queue,monitor,cache"`
	Total int     `json:"total"`
	Held  int     `json:"held"`
	Wrong []Wrong `json:"wrong"`
	More  int     `json:"more"` // that are not held and not listed
	// First: there are more than Total, which are those in trouble and the first others by name.
	First bool `json:"first,omitempty"`
}

// Wrong is one that is not held.
type Wrong struct {
	Subject string `json:"subject"`
	What    string `json:"what"`
}

// Changes is what happened since a time, by what it happened to, the latest first.
type Changes struct {
	Since  time.Time `json:"since"`
	Total  int       `json:"total"`
	Groups []Change  `json:"groups"`
	// More: more happened than was read, or there are more groups than are listed.
	More bool `json:"more"`
}

// Change is what happened to one subject.
type Change struct {
	Part    string    `json:"part"`
	Subject string    `json:"subject"`
	Count   int       `json:"count"`
	First   time.Time `json:"first"`
	Latest  Event     `json:"latest"`
}

// Need is something that needs attention.
type Need struct {
	Part    string `json:"part"`
	Subject string `json:"subject"`
	Item    string `json:"item,omitempty"` // of the subject: the key of a queue, the source of a check
	ID      string `json:"id,omitempty"`   // of the message or the alarm
	// Severity is bad for what waits for an operator, otherwise warn.
	Severity string `json:"severity" enum:"bad,warn"`
	What     string `json:"what"`
}
