package apitype

import "time"

// Lease is a lease as the store has it. The session of its holder is not shown.
type Lease struct {
	Space string `json:"space"`
	Key   string `json:"key"`
	Held  bool   `json:"held"` // it has a holder whose session is live, by the store's clock
	Term  int64  `json:"term"` // of the present or last holder: the fencing token
	// Holder is missing when the lease is free.
	Holder      *Instance `json:"holder,omitempty"`
	ExpiresInMS int64     `json:"expires_in_ms"`
	Since       time.Time `json:"since"` // when the term started, or the lease was released
	AgeMS       int64     `json:"age_ms"`
	Asked       bool      `json:"asked"`               // the holder has been asked to give it up
	AskedFor    string    `json:"asked_for,omitempty"` // for this instance
	// Successor for which the lease is reserved, for ReservedMS.
	Successor  string `json:"successor,omitempty"`
	ReservedMS int64  `json:"reserved_ms,omitempty"`
	Waiting    int    `json:"waiting"` // how many wait for it
	// State that the holders before have left, for the one that takes the lease.
	State []byte `json:"state,omitempty"`
}

// LeaseState is what the holders of a lease keep beside it, up to 64 KiB.
type LeaseState struct {
	Term  int64  `json:"term"` // under which it was written; the present one, to write it
	State []byte `json:"state"`
}

// Leases is a list of leases.
type Leases struct {
	Leases []Lease `json:"leases"`
	Next   string  `json:"next,omitempty"`
}

// AcquireRequest asks for a lease on behalf of a session.
type AcquireRequest struct {
	Session string `json:"session"`
}

// ReleaseRequest gives a lease back.
type ReleaseRequest struct {
	Session   string `json:"session"`
	Term      int64  `json:"term"`
	Successor string `json:"successor,omitempty"` // name or id of the instance that the lease is reserved for; "" is none
	Reason    string `json:"reason,omitempty"`    // for the history
}
