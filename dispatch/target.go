package dispatch

import (
	"context"
	"time"
)

// Semantics is what a target declares about itself. The dispatcher assumes nothing
// more.
type Semantics struct {
	// Resend: sending a message again when its outcome is unknown is safe, because
	// the target deduplicates or because delivering it twice does no harm.
	Resend bool
	// Deduplicates: it drops a second request with the same message ID, however late.
	// [Config.Validate] refuses it without Resend.
	Deduplicates bool
	// HasStatus: it can be asked for the status of a message.
	HasStatus bool
	// StatusLimit is how many messages one status query may name, at least 1.
	StatusLimit int
	// Decides is within what time it has decided nearly every message that it took. 0: an hour.
	Decides time.Duration
	// Forgets: "not found" proves nothing: it may have executed the message and
	// forgotten it.
	Forgets bool
}

// NeedsSecondWindow reports that two submissions of one message at once could do
// harm, so that a key in a step is kept from others for the second window.
func (s Semantics) NeedsSecondWindow() bool { return !s.Deduplicates || !s.HasStatus }

// Outcome is what the dispatcher knows about a message after a submission or a
// status query.
type Outcome string

// Outcomes. Two of them are final: Done and InvalidMessage.
const (
	Done           Outcome = "committed" // for good
	InvalidMessage Outcome = "invalid"   // final: the message is refused; only OnFailureRetry sends it again
	Accepted       Outcome = "pending"   // it has it, and will decide
	Executed       Outcome = "valid"     // executed, not yet committed
	Busy           Outcome = "busy"      // certainly not taken; send it later
	Misconfigured  Outcome = "rejected"  // certainly not taken, and not until something is fixed (wrong address, no rights); sent again while attempts are left
	NotFound       Outcome = "missing"   // the target does not know the message; of a status query alone
	Uncertain      Outcome = "silent"    // it may have been taken
)

// Answer is the result of a submission or a status query.
type Answer struct {
	Outcome Outcome
	Code    int    // the target's status; 0 when there was none
	Detail  string // in its words or ours, for operators
	// RequestEnded, of an Uncertain submission: the target has finished with the
	// request, so that it cannot take effect later than now.
	RequestEnded bool
	// Permanent, of a Misconfigured one: what has this address will not take the message, however often it is sent.
	Permanent bool
	// RetryAfter is when the target asked to be tried again; 0 when it did not say.
	RetryAfter time.Duration
	Link       string // where its status can be queried
}

// Target is where a queue's messages go. Its methods are called from many
// goroutines, never for two messages of one key at once by the same instance.
// They do not return errors: what went wrong is an [Outcome]; after a panic or the
// end of ctx it is Uncertain.
type Target interface {
	// Name is its kind and address, without secrets: operators see it.
	Name() string
	Semantics() Semantics
	// Submit sends a message; ctx has the submission's deadline.
	Submit(ctx context.Context, a Assignment) Answer
	// Status returns the status of messages, up to Semantics.StatusLimit, in their order. It is not
	// called when Semantics.HasStatus is false.
	Status(ctx context.Context, as []Assignment) []Answer
}
