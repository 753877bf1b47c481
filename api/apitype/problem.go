package apitype

import "fmt"

// Problem is the body of every answer that is an error (RFC 9457).
type Problem struct {
	Title  string `json:"title"`
	Status int    `json:"status"`
	Code   string `json:"code"`             // stable: look at this in programs
	Detail string `json:"detail,omitempty"` // for operators
	// RetryAfterMS is when to ask again. For a lease: the earliest time at which it can lapse if its holder does not
	// renew.
	RetryAfterMS int64 `json:"retry_after_ms,omitempty"`
	// Holder and Term of the lease that another session holds.
	Holder *Instance `json:"holder,omitempty"`
	Term   int64     `json:"term,omitempty"`
}

// Error implements error.
func (p *Problem) Error() string {
	if p.Detail == "" {
		return fmt.Sprintf("server answered %d (%s)", p.Status, p.Code)
	}
	return p.Detail
}
