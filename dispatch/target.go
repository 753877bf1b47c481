package dispatch

import (
	"context"
	"time"
)

// Semantics is what a target declares about itself. The dispatcher never assumes
// more.
type Semantics struct {
	// Resend: sending a batch again whose fate is not known is safe, because the
	// target recognises its id or because doing it twice does no harm.
	Resend bool
	// Recognises: it recognises the id of a batch that it has, however late a
	// second request for it arrives. Implies Resend.
	Recognises bool
	// Asks: it can be asked what became of a batch.
	Asks bool
	// AskMany is how many batches it can be asked about at once, at least 1.
	AskMany int
	// Compares: it refuses what comes under an older term than it has seen for
	// the key.
	Compares bool
	// Forgets: that it does not know a batch proves nothing: it may have done it
	// and forgotten.
	Forgets bool
}

// Alone tells that a batch must not be under way twice at once, so that its key is
// kept from others for the second window.
func (s Semantics) Alone() bool { return !s.Recognises || !s.Asks }

// Outcome is what a target said, or did not say.
type Outcome string

// Outcomes of a submission or an inquiry.
const (
	Done     Outcome = "committed" // for good
	Accepted Outcome = "pending"   // it has it, and will decide
	Executed Outcome = "valid"     // executed, not yet committed
	Refused  Outcome = "invalid"   // judged, and refused for good
	Busy     Outcome = "busy"      // it did not take it: certain; send it later
	Missing  Outcome = "missing"   // asked: it does not know the batch
	Silent   Outcome = "silent"    // it may have taken it or not
	Rejected Outcome = "rejected"  // it did not take it and never will as things are: wrong address, no rights
)

// Answer is what came of a submission or an inquiry.
type Answer struct {
	Outcome Outcome
	Code    int    // the target's status; 0 when there was none
	Detail  string // in its words or ours, for people
	// Over, of a Silent submission: the target is done with the request, so that
	// nothing of it can take effect later than now.
	Over bool
	// RetryAfter is when it asked to be tried again, 0 when it did not say.
	RetryAfter time.Duration
	Link       string // where its status can be asked
}

// Target is where a queue's batches go. Its methods are called from many
// goroutines, never for two batches of one key at once by the same instance.
// They never fail: what went wrong is an outcome, and after a panic or the end of ctx it is Silent.
type Target interface {
	// Name is its kind and place, fit to be shown: no secrets.
	Name() string
	Semantics() Semantics
	// Submit sends a batch; ctx has the submission's deadline.
	Submit(ctx context.Context, a Assignment) Answer
	// Ask tells what became of batches, up to AskMany, in their order. It is not
	// called when the target cannot be asked.
	Ask(ctx context.Context, as []Assignment) []Answer
}

// Observer is told what a dispatcher does, after the store has recorded it (the
// store is always the first observer). Its methods must return at once; they
// are called from one goroutine for each dispatcher.
type Observer interface {
	// Begun: the batch is about to be sent, or asked for.
	Begun(a Assignment)
	// Answered: the target's answer to it.
	Answered(a Assignment, answer Answer)
	// Changed: the state that the store has recorded, accepted as it was.
	Changed(r Result)
}
