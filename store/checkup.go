package store

import "context"

// Verdict on something that was looked at.
type Verdict string

// Verdicts.
const (
	OK   Verdict = "ok"
	Warn Verdict = "warn" // it works, and will not for ever
	Bad  Verdict = "bad"  // it does not work, or is about to stop
)

// Finding is what a check of a store's server found.
type Finding struct {
	Check   string
	Verdict Verdict
	Says    string
	// Do is what a person can do about it; "" when it is ok.
	Do string
}

// Checkups is what a store offers besides whose server has limits of its own: PostgreSQL and Redis.
type Checkups interface {
	// Checkup asks the server how near it is to them, and changes nothing. It takes longer than
	// [Admin.Inspect], and tells only what this user of the server may see. Errors are those of
	// lease.Store.
	Checkup(ctx context.Context) ([]Finding, error)
}
