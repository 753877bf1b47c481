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

// Limit is the finding about something of which a server has no more than most: it warns from 80 % on, and from 95 % on it is
// bad, which then is what full says.
func Limit(check string, used, most float64, says, full, do string) Finding {
	f := Finding{Check: check, Verdict: OK, Says: says}
	switch share := used / max(1, most); {
	case most <= 0:
	case share >= 0.95:
		f.Verdict, f.Do = Bad, do
		f.Says += ": " + full
	case share >= 0.8:
		f.Verdict, f.Do = Warn, do
	}
	return f
}

// Checkups is what a store also offers if its server has limits of its own: PostgreSQL and Redis.
type Checkups interface {
	// Checkup asks the server how near it is to its limits, and changes nothing. It takes longer than
	// [Admin.Inspect], and reports only what this user of the server may see. Errors are those of
	// lease.Store.
	Checkup(ctx context.Context) ([]Finding, error)
}
