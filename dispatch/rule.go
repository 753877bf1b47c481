package dispatch

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/understudy-ha/understudy/internal/backoff"
	"github.com/understudy-ha/understudy/lease"
)

// OnFailure is what a key does when a message fails for good.
type OnFailure string

// Policies of a queue. The default dead-letters a message that the target refused
// as invalid, or that its address refused for good for five minutes, and blocks the key otherwise.
const (
	OnFailureDefault OnFailure = ""
	OnFailureBlock   OnFailure = "block"
	OnFailureSkip    OnFailure = "skip"
	// OnFailureRetry tries a message that was refused again until the target takes it, with pauses that grow to an
	// hour, and lets nothing of its key overtake it: for alarms, whose end is worth nothing without their start.
	OnFailureRetry OnFailure = "retry"
)

// RetryPolicy is when, and for how long, messages that a target could not take are sent again.
type RetryPolicy struct {
	// Initial pause, doubled with each attempt up to Max. Defaults 250 ms and 1 min.
	Initial, Max time.Duration
	// Attempts after which a message has failed for good, or blocks its key if its outcome is unknown. A target with a
	// status query has been asked after the last of them. Status queries are not attempts. An attempt counts from its start,
	// so that one that is interrupted counts. Only one that sends a message of unknown outcome again counts with its result:
	// if it is interrupted, it does not. Default 500, which is up to eight hours of pauses. Negative: never. OnFailureRetry
	// has no limit.
	Attempts int
	// MaxAge: a message whose attempt fails, or whose outcome is unknown, this long after it was enqueued is given up as after
	// the last of its Attempts, even if a target with a status query does not answer. Age alone ends nothing: every message
	// is sent once, and a pending one is polled on. 0: whatever its age. OnFailureRetry has none.
	MaxAge time.Duration
}

// WithDefaults fills what is zero.
func (r RetryPolicy) WithDefaults() RetryPolicy {
	r.Initial = cmp.Or(r.Initial, 250*time.Millisecond)
	r.Max = cmp.Or(r.Max, max(time.Minute, r.Initial))
	r.Attempts = cmp.Or(r.Attempts, 500)
	return r
}

// Validate returns an error that wraps [lease.ErrInvalid].
func (r RetryPolicy) Validate() error {
	if r.Initial < 0 || r.Max < r.Initial {
		return fmt.Errorf("%w: pauses of %v to %v between attempts", lease.ErrInvalid, r.Initial, r.Max)
	}
	if r.MaxAge < 0 {
		return fmt.Errorf("%w: a maximum age of %v", lease.ErrInvalid, r.MaxAge)
	}
	return nil
}

// Pause before the attempt that follows the given one; jitter in [0, 1) spreads
// it over its upper half.
func (r RetryPolicy) Pause(attempt int, jitter float64) time.Duration {
	return backoff.JitteredPause(attempt, r.Initial, r.Max, func(d time.Duration) time.Duration { return time.Duration(jitter * float64(d)) })
}

// Limits of the rule.
const (
	// maxRetryAfter bounds Retry-After: a wrong clock at the target must not park a key
	// for days.
	maxRetryAfter = time.Hour
	// slowestRetry is the longest pause of a message that is refused and tried until the target takes it.
	slowestRetry = time.Hour
	// refusedLimit is how long an address is tried that will not take a message, ever: as long as a receiver is gone
	// while a new version of it is put in place.
	refusedLimit = 5 * time.Minute
	// maxLost is how often a target may take a message and then not know it, which a restart explains, and a dependency
	// that never comes. With the default pauses that is up to three minutes. Each instance counts for itself.
	maxLost = 10
	// minStatusPause is the least pause between status queries that get no answer.
	minStatusPause = time.Second
)

// Marks in the reason of a message, which is all that the store keeps of why.
const (
	// refusedMark starts the reason of a message that was refused and is tried again.
	refusedMark = "refused: "
	// afterQuery separates why an outcome is unknown from what the latest status query brought.
	afterQuery = "; its status: "
)

// Rule decides what an answer of the target means for a message and its key. It is
// pure; testdata/*.txt replay it.
type Rule struct {
	Semantics Semantics
	OnFailure OnFailure
	Retry     RetryPolicy
}

// Classify returns what to record for an assignment after an answer: the message's
// new state, and what its key does next. jitter is in [0, 1).
func (r Rule) Classify(a Assignment, answer Answer, jitter float64) (out Result) {
	switch {
	case a.Work != Send && (answer.Outcome == Busy || answer.Outcome == Misconfigured):
		// The status query was refused, which says nothing about the message.
		answer.Outcome = Uncertain
	case a.Work == Send && answer.Outcome == NotFound:
		answer.Outcome = Uncertain // that answers a status query alone
	}
	if !r.Semantics.HasStatus && (answer.Outcome == Accepted || answer.Outcome == Executed) {
		// "Accepted" by a target that cannot be asked: nothing would ever settle it.
		answer.Outcome = Uncertain
	}
	out = Result{
		Key: a.Key, Term: a.Term, Seq: a.Seq, Attempt: a.Attempt,
		Code: answer.Code, Detail: answer.Detail, Link: answer.Link,
	}
	defer func() { out.explain(a, answer) }()
	switch answer.Outcome {
	case Done:
		out.State, out.After = Committed, Next
	case Accepted:
		out.State, out.After = Pending, Hold
	case Executed:
		out.State, out.After = Valid, Hold
	case InvalidMessage:
		// It will never succeed, so holding the key up helps no one, unless the queue's
		// owner says that nothing may overtake it.
		out.State, out.After = Invalid, Next
		switch r.OnFailure {
		case OnFailureBlock:
			out.After = Block
		case OnFailureRetry:
			r.retryRefused(&out, answer.RetryAfter, jitter)
		}
	case Busy, Misconfigured:
		s := Delayed
		if a.Doubtful {
			s = Unknown // this attempt was not taken; the one before may have been
		}
		// Another attempt, or the end of them. What follows changes that for refusals.
		r.retryLater(a, &out, s, answer.RetryAfter, jitter)
		switch {
		case r.OnFailure == OnFailureRetry && (answer.Permanent || answer.Outcome == Misconfigured):
			r.retryRefused(&out, answer.RetryAfter, jitter)
		case out.After == RetryLater && a.Refused >= refusedLimit:
			// Refused counts answers that are Permanent alone: a target whose settings are wrong may be repaired.
			r.deadLetter(&out)
		}
	case NotFound:
		r.classifyNotFound(a, &out, jitter)
	default:
		r.classifyUncertain(a, &out, answer.RetryAfter, jitter)
	}
	return out
}

// retryLater schedules the next attempt, until the attempts run out or the message is too old. The target's
// Retry-After can only lengthen the pause. A message that the target may have, and can be asked about, is not given up
// unasked, and asked about until it is too old, because a query is not an attempt.
func (r Rule) retryLater(a Assignment, out *Result, s State, retryAfter time.Duration, jitter float64) {
	out.State, out.After = s, RetryLater
	out.Wait = max(r.Retry.Pause(out.Attempt, jitter), min(retryAfter, maxRetryAfter))
	ends := r.isLast(a)
	if s == Unknown && r.Semantics.HasStatus {
		ends = a.Work != Send && r.isTooOld(a)
	}
	if ends {
		r.giveUp(out)
	}
}

// isLast reports whether no attempt may follow that of the assignment.
func (r Rule) isLast(a Assignment) bool {
	return r.OnFailure != OnFailureRetry && r.Retry.Attempts > 0 && a.Attempt >= r.Retry.Attempts || r.isTooOld(a)
}

func (r Rule) isTooOld(a Assignment) bool {
	return r.OnFailure != OnFailureRetry && r.Retry.MaxAge > 0 && a.Age >= r.Retry.MaxAge
}

// giveUp ends the attempts. An unknown outcome becomes failed only if the queue's owner lets failures pass and the target
// declares Resend: the message may have had its effect.
func (r Rule) giveUp(out *Result) {
	out.Wait = 0
	switch {
	case r.OnFailure == OnFailureSkip:
		r.deadLetter(out)
	case out.State == Unknown:
		r.blockUnresolved(out)
	default:
		out.State, out.After = Failed, Block
	}
}

// deadLetter ends the attempts. It lets the key continue, unless the queue's owner says that nothing may overtake, or the
// message may have had an effect at a target where that decides.
func (r Rule) deadLetter(out *Result) {
	out.Wait = 0
	if out.State == Unknown {
		out.Detail = cmp.Or(out.Detail, notKnown)
	}
	switch {
	case out.State == Unknown && !r.Semantics.Resend:
		r.blockUnresolved(out)
	case r.OnFailure == OnFailureBlock:
		out.State, out.After = Failed, Block
	default:
		out.State, out.After = Failed, Next
	}
}

// retryRefused tries a message again that the target refused. Someone has to change something there first, so that
// the pauses grow longer than those after a failure.
func (r Rule) retryRefused(out *Result, retryAfter time.Duration, jitter float64) {
	slow := r.Retry
	slow.Max = max(slow.Max, slowestRetry)
	if out.State != Unknown {
		out.State = Delayed
	}
	out.After, out.Wait = RetryLater, max(slow.Pause(out.Attempt, jitter), min(retryAfter, maxRetryAfter))
	out.Detail = refusedMark + cmp.Or(out.Detail, "without a reason")
}

// classifyUncertain: the message may have been taken. One that is polled stays pending as
// long as the target can be asked again.
func (r Rule) classifyUncertain(a Assignment, out *Result, retryAfter time.Duration, jitter float64) {
	switch {
	case a.Work == Poll && r.Semantics.HasStatus:
		out.State, out.After = Pending, Hold
	case r.Semantics.HasStatus || r.Semantics.Resend:
		r.retryLater(a, out, Unknown, retryAfter, jitter)
		if a.Work == Resolve && out.After == RetryLater {
			// A query is not an attempt: its pause grows with the queries that brought nothing.
			out.Wait = max(out.Wait, minStatusPause, r.Retry.Pause(max(1, a.Unanswered), jitter))
		}
	default:
		r.blockUnresolved(out)
	}
}

// classifyNotFound: the target was asked, and does not know the message.
func (r Rule) classifyNotFound(a Assignment, out *Result, jitter float64) {
	switch {
	case a.Work == Poll && a.Lost > maxLost:
		out.Detail = fmt.Sprintf("the target took it %d times and then did not know it: %s", a.Lost, out.Detail)
		r.blockUnresolved(out)
	case a.Work == Poll:
		// It did know it: a restart, or another node answers. Query again as an
		// unknown message, under a step, before anything is sent.
		out.State, out.After, out.Wait = Unknown, RetryLater, r.Retry.Pause(max(1, a.Lost), jitter)
	case r.Semantics.Forgets: // it may have had it
		out.State = Unknown
		r.giveUp(out)
	default: // it is not sent again: beforeSend would have had it sent
		out.State, out.Detail = Failed, cmp.Or(out.Detail, "the target does not know it")
		r.giveUp(out)
	}
}

// blockUnresolved blocks the key whatever the policy: dead-lettering could lose the
// message, and sending it again could execute it twice.
func (r Rule) blockUnresolved(out *Result) {
	out.State, out.After, out.Detail = Unknown, Block, cmp.Or(out.Detail, notKnown)
}

// notKnown is the reason where nothing else is known.
const notKnown = "it is not known whether the target has it"

// stuckResult is the result of a message that the target took and does not decide.
func stuckResult(r Result, answer Answer, state State, had time.Duration) Result {
	status := string(answer.Outcome)
	if answer.Outcome == Uncertain { // the target could not be asked: what is known stays
		r.State, status = state, answer.Detail
	}
	r.After = Stuck
	r.Detail = CutDetail(fmt.Sprintf("the target took it %v ago and has not decided%s%s", had.Round(time.Second), afterQuery, status))
	return r
}

// explain sets the reason that operators see. While the outcome is unknown it is that of the attempt, with its code: a
// query that brought nothing is not a cause.
func (out *Result) explain(a Assignment, answer Answer) {
	if cause, _, _ := strings.Cut(a.Detail, afterQuery); a.Work == Resolve && (out.State == Unknown || out.State == Failed) && cause != "" {
		out.Code, out.Detail = a.Code, cause
		if answer.Detail != "" {
			out.Detail += afterQuery + answer.Detail
		}
	}
	out.Detail = CutDetail(out.Detail)
}

// queriesFirst reports whether the target is asked for the message before it is sent (again).
func (r Rule) queriesFirst(a Assignment) bool {
	return r.Semantics.HasStatus && (a.Work == Resolve || a.Retried)
}

// beforeSend returns the assignment to send, or the answer that takes the place of sending it. status is what the target
// has said of the message, if it was asked.
func (r Rule) beforeSend(a Assignment, status Answer) (_ Assignment, instead Answer, send bool) {
	switch {
	case a.Work != Resolve && !r.queriesFirst(a):
		return a, Answer{}, true
	case a.Work != Resolve:
		switch status.Outcome {
		case Done: // an earlier attempt had its effect after all
			return a, status, false
		case Uncertain, Busy, Misconfigured:
			return a, Answer{Outcome: Busy, Code: status.Code, RetryAfter: status.RetryAfter,
				Detail: "the target is asked before it is sent again" + afterQuery + status.Detail}, false
		}
		return a, Answer{}, true
	case r.Semantics.HasStatus && (status.Outcome != NotFound || r.Semantics.Forgets && !r.Semantics.Resend || r.isLast(a)):
		return a, status, false // it settles the message, leaves it unknown, or ends it: never send over it
	case !r.Semantics.HasStatus && (!r.Semantics.Resend || r.isLast(a)):
		unknown := Answer{Outcome: Uncertain}
		if a.Detail == "" {
			unknown.Detail = fmt.Sprintf("an instance died or lost its claim during attempt %d; it is not known whether the target has it", a.Attempt)
		}
		return a, unknown, false
	}
	a.Work, a.Attempt = Send, a.Attempt+1
	a.Doubtful = !r.Semantics.HasStatus || r.Semantics.Forgets
	return a, Answer{}, true
}
