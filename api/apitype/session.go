package apitype

import "time"

// Session is a live session as it is listed. Its id is missing: it is for its owner alone, because anyone who knows
// it can end the session while the owner still trusts it.
type Session struct {
	Instance    Instance  `json:"instance"`
	IntervalMS  int64     `json:"interval_ms"`
	TimeoutMS   int64     `json:"timeout_ms"`
	Renewals    int64     `json:"renewals"`
	Started     time.Time `json:"started"`
	ExpiresInMS int64     `json:"expires_in_ms"`
}

// Sessions is a list of sessions.
type Sessions struct {
	Sessions []Session `json:"sessions"`
	Next     string    `json:"next,omitempty"`
}

// NewSession asks for a session.
type NewSession struct {
	Name       string `json:"name,omitempty"`
	Address    string `json:"address,omitempty"`
	IntervalMS int64  `json:"interval_ms,omitempty"` // 0 is the default
	TimeoutMS  int64  `json:"timeout_ms,omitempty"`  // 0 is the default
}

// StartedSession is a session as its owner gets it.
type StartedSession struct {
	Session    string   `json:"session"` // its id, a secret: needed to renew, use or end the session
	Instance   Instance `json:"instance"`
	IntervalMS int64    `json:"interval_ms"`
	TimeoutMS  int64    `json:"timeout_ms"`
	// TrustedForMS is how long after sending a request the owner may trust the session that it started or renewed.
	TrustedForMS int64 `json:"trusted_for_ms"`
}

// SessionIDs are the sessions that one request renews.
type SessionIDs struct {
	Sessions []string `json:"sessions"` // at most 1000
}

// Renewals is the answer to it: each session is in one of the two.
type Renewals struct {
	Renewed map[string]Renewal `json:"renewed"`
	Lapsed  []string           `json:"lapsed"` // they have ended: start others
}

// Renewal is the answer to a renewal.
type Renewal struct {
	Renewals int64 `json:"renewals"`
	Changes  int64 `json:"changes"` // grows when a lease of the session needs its owner's attention
}
