package store

import "context"

// Verdict of a check.
type Verdict string

// Verdicts.
const (
	OK   Verdict = "ok"
	Warn Verdict = "warn" // it works, but not forever
	Bad  Verdict = "bad"  // it does not work, or is about to stop
)

// Finding is the result of one check of a store's server.
type Finding struct {
	Check   string
	Verdict Verdict
	Says    string
	// Do is what the operator can do about it; "" when it is ok.
	Do string
}

// Checkups is what a store also offers if its server has limits of its own: PostgreSQL and Redis.
type Checkups interface {
	// Checkup asks the server how near it is to its limits, and changes nothing. It takes longer than
	// [Admin.Inspect], and reports only what this user of the server may see. Errors are those of
	// lease.Store.
	Checkup(ctx context.Context) ([]Finding, error)
}
