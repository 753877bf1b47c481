package dispatch

import (
	"fmt"
	"time"

	"github.com/understudy-ha/understudy/lease"
)

// OnFailure tells what becomes of a key when a batch fails for good.
type OnFailure string

// Policies of a queue. The default lets a batch step aside that the target has
// judged invalid, and blocks its key otherwise.
const (
	OnFailureDefault OnFailure = ""
	OnFailureBlock   OnFailure = "block"
	OnFailureSkip    OnFailure = "skip"
)

// Backoff is how batches are tried again that a target could not take.
type Backoff struct {
	// First pause, doubled with each attempt up to Most. Defaults 250 ms and 1 min.
	First, Most time.Duration
	// Attempts after which a batch has failed for good. Default 500, which is
	// some eight hours of pauses. Negative: never.
	Attempts int
}

// WithDefaults fills what is zero.
func (r Backoff) WithDefaults() Backoff {
	if r.First == 0 {
		r.First = 250 * time.Millisecond
	}
	if r.Most == 0 {
		r.Most = max(time.Minute, r.First)
	}
	if r.Attempts == 0 {
		r.Attempts = 500
	}
	return r
}

// Validate returns an error that wraps [lease.ErrInvalid].
func (r Backoff) Validate() error {
	if r.First < 0 || r.Most < r.First {
		return fmt.Errorf("%w: pauses of %v to %v between attempts", lease.ErrInvalid, r.First, r.Most)
	}
	return nil
}

// Pause before the attempt that follows the given one; jitter in [0, 1) spreads
// it over its upper half.
func (r Backoff) Pause(attempt int, jitter float64) time.Duration {
	d := r.First
	for range attempt - 1 {
		if d *= 2; d >= r.Most {
			d = r.Most
			break
		}
	}
	return d/2 + time.Duration(jitter*float64(d/2))
}

// Rule is what a queue does with the answers of its target.
type Rule struct {
	Semantics Semantics
	OnFailure OnFailure
	Retry     Backoff
}

// Sends tells whether a batch whose fate is unknown may be sent again, asked
// telling whether the target has just said that it does not know it.
func (r Rule) Sends(asked bool) bool {
	return r.Semantics.Resend || asked && !r.Semantics.Forgets
}

// Judge tells what becomes of an assignment after an answer. jitter is in [0, 1).
func (r Rule) Judge(a Assignment, answer Answer, jitter float64) Result {
	if a.Todo != Send && (answer.Outcome == Busy || answer.Outcome == Rejected) {
		answer.Outcome = Silent // the inquiry was refused, which tells nothing of the batch
	}
	if !r.Semantics.Asks && (answer.Outcome == Accepted || answer.Outcome == Executed) {
		answer.Outcome = Silent // nobody could ever hear more
	}
	out := Result{
		Key: a.Key, Term: a.Term, Seq: a.Seq, Attempt: a.Attempt,
		Code: answer.Code, Detail: CutDetail(answer.Detail), Link: answer.Link,
	}
	switch answer.Outcome {
	case Done:
		out.State, out.After = Committed, Next
	case Accepted:
		out.State, out.After = Pending, Hold
	case Executed:
		out.State, out.After = Valid, Hold
	case Refused:
		out.State, out.After = Invalid, Next
		if r.OnFailure == OnFailureBlock {
			out.After = Block
		}
	case Busy, Rejected:
		s := Delayed
		if a.Doubtful {
			s = Unknown // certain of this attempt, not of the one before
		}
		r.later(&out, s, answer.RetryAfter, jitter)
	case Missing:
		r.missing(a, &out, jitter)
	default:
		r.silent(a, &out, answer.RetryAfter, jitter)
	}
	return out
}

// later tries again, until there were enough attempts.
func (r Rule) later(out *Result, s State, asked time.Duration, jitter float64) {
	out.State, out.After = s, Again
	out.Wait = max(r.Retry.Pause(out.Attempt, jitter), min(asked, maxRetryAfter))
	if r.Retry.Attempts > 0 && out.Attempt >= r.Retry.Attempts {
		out.Wait = 0
		r.giveUp(out)
	}
}

// askAgain is the least pause between inquiries that get no answer.
const askAgain = time.Second

// maxRetryAfter bounds what a target may ask for.
const maxRetryAfter = time.Hour

func (r Rule) giveUp(out *Result) {
	if out.State == Unknown {
		r.unresolved(out)
		return
	}
	out.State, out.After = Failed, Block
	if r.OnFailure == OnFailureSkip {
		out.After = Next
	}
}

// silent: it may have been taken or not. Where it is polled it is still taken, as
// long as the target can be asked again.
func (r Rule) silent(a Assignment, out *Result, asked time.Duration, jitter float64) {
	switch {
	case a.Todo == Poll && r.Semantics.Asks:
		out.State, out.After = Pending, Hold
	case r.Semantics.Asks || r.Semantics.Resend:
		r.later(out, Unknown, asked, jitter)
		if a.Todo == Ask && out.After == Again {
			out.Wait = max(out.Wait, askAgain) // an inquiry is no attempt: its pause does not grow
		}
	default:
		r.unresolved(out)
	}
}

// missing: the target was asked and does not know it.
func (r Rule) missing(a Assignment, out *Result, jitter float64) {
	switch {
	case a.Todo == Poll: // it did know it: look closer before anything else
		out.State, out.After, out.Wait = Unknown, Again, r.Retry.Pause(1, jitter)
	case r.Sends(true):
		out.State, out.After = Unknown, Again
		out.Wait = r.Retry.First
	default:
		r.unresolved(out)
	}
}

// unresolved waits for a person, whatever the policy: to step aside could lose
// the batch, and to send it again could do it twice.
func (r Rule) unresolved(out *Result) {
	out.State, out.After = Unknown, Block
	if out.Detail == "" {
		out.Detail = "nobody knows whether the target has it"
	}
}
