package dispatch

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/understudy-ha/understudy/claim"
	"github.com/understudy-ha/understudy/lease"
)

var (
	// ErrNoQueue: no queue of this name was created; see [Admin].
	ErrNoQueue = errors.New("dispatch: no such queue")
	// ErrNoMessage: there is no such message, or it was pruned.
	ErrNoMessage = errors.New("dispatch: no such message")
	// ErrState: the message's state does not allow the action.
	ErrState = errors.New("dispatch: not possible in this state")
	// ErrUncertain: a retry could be a second submission of a message that the target has.
	ErrUncertain = errors.New("dispatch: the target may have it, and acting on it twice can do harm that nobody can undo (it can end a Scabbard circuit); " +
		"look there first, and retry it with --i-know (i_know in the API) if it does not have it")
)

// Work is what a dispatcher must do with the head of a key.
type Work string

// Kinds of work. That of Resolve is stored as "ask".
const (
	Send    Work = "send" // submit it: the step has started
	Resolve Work = "ask"  // the target may have it: query its status first; the step has started
	Poll    Work = "poll" // the target has it: query its status; no step has started
)

// Assignment is the head of a key, given to the instance that claims the key.
type Assignment struct {
	Message
	Work Work
	Seq  int64
	Term int64
	// Attempt is the number of this submission, from 1. When the work is not
	// Send, it is the number of the last one. Send with Attempt 1, and not Retried, was certainly never sent.
	Attempt int
	// Doubtful: an earlier attempt may have arrived, and the target could not
	// say. A dispatcher sets it, not a store.
	Doubtful bool
	// Age of the message since it joined its key, or an operator last retried it, by the store's clock when the step started.
	Age time.Duration
	// Refused is for how long its address has refused it for good. A dispatcher sets it, not a store.
	Refused time.Duration
	// Code and Detail of that submission, when the work is Resolve: why the outcome is unknown.
	Code   int
	Detail string
	// Link: see [Record].
	Link string
	// Retried, when the work is Send: an operator had it sent again, so that the target may have it from before.
	Retried bool
	// Undecided, when the work is Poll, is for how long the target may have had it: since its submission began.
	Undecided time.Duration
	// Unanswered is how many status queries in a row brought nothing. A dispatcher sets it, not a store.
	Unanswered int
	// Lost is how often the target had taken it and then did not know it. A dispatcher sets it, not a store.
	Lost int
}

// After is what the key does after a [Result].
type After string

// What may follow a result. RetryLater is "again" in the store.
const (
	Next       After = "next"  // the message is done with: its key continues with the next one
	RetryLater After = "again" // the same message again, after Wait; the key is released meanwhile
	Hold       After = "hold"  // the target has it: the claim is kept, no step is in progress, nothing overtakes
	Block      After = "block" // the key waits for an operator, and is released
	// Stuck is Hold for a message that the target has had for too long: it is polled on, and operators see the key as
	// blocked until the target decides or they act.
	Stuck After = "stuck"
)

// Result is the outcome of an assignment, to be recorded.
type Result struct {
	Key   string
	Term  int64
	Seq   int64
	State State // never Queued, Submitting or Cancelled
	After After
	Wait  time.Duration // with RetryLater
	// Attempt, Code, Detail and Link: see [Record]. An empty Link leaves the one
	// that is known.
	Attempt int
	Code    int
	Detail  string
	Link    string
}

// Blocks reports that the key waits for an operator after the result.
func (r Result) Blocks() bool { return r.After == Block || r.After == Stuck }

// BlockingReason is what the history says of a key that the result blocks or unblocks.
func (r Result) BlockingReason() string {
	if r.Blocks() {
		return lease.TruncateReason("blocked: " + cmp.Or(r.Detail, string(r.State)))
	}
	return "unblocked: " + string(r.State)
}

// Exchange is one request to the store: the results of earlier assignments, and the
// keys to start next. Both lists together have up to claim.MaxKeys entries. Each list
// has a key once; a key may be in both, under one term.
type Exchange struct {
	Queue   string
	Session string
	Results []Result
	// Begin names claimed keys. A key that is in a step already, or whose head is
	// pending and has no result in this exchange, is only read.
	Begin []claim.Claim
	// Restart: an earlier exchange that named these keys was not answered, and nothing
	// was sent for them since: a key that is in a step starts it again.
	Restart bool
	// Window keeps others from a key in a step, even if the session lapses; see
	// claim.KeyTable.StartSteps.
	Window time.Duration
}

// Receipt is the store's answer to a [Result].
type Receipt struct {
	Key string
	Seq int64
	// Accepted: it was recorded. Otherwise the session no longer has the claim under
	// that term, or the key's head is another message now.
	Accepted bool
}

// Holding is how an instance holds a key after an exchange.
type Holding string

// Holdings. The stores answer with these words: "held" for InProgress, "given" for Released.
const (
	Ready      Holding = "ready" // claimed, and it has more messages to start
	InProgress Holding = "held"  // claimed, and in a step, or its head is pending
	Released   Holding = "given" // released: it has nothing to do now, waits for its next attempt, or is blocked
	Lost       Holding = "lost"  // not claimed under that term, or the session does not live
)

// ExchangeResult is the store's answer to an [Exchange].
type ExchangeResult struct {
	Receipts []Receipt          // one for each result, in the same order
	Begun    []Assignment       // at most one for each key of Begin
	Holdings map[string]Holding // of every key that was named
}

// Queue is the port that delivers: what a dispatcher needs of a store besides the
// claims.
type Queue interface {
	// Exchange records results and starts the next messages in one atomic statement,
	// whose cost grows with the keys that it names and with nothing else.
	//
	// A result counts if this session has claimed the key under the term, lapsed
	// or not, and the message is the key's head and not final. A claim of Begin
	// needs a session that lives. The head is the first message in the key's order
	// that is not done with (by After Next, or cancelled). Its work follows from the head's state: queued and delayed are
	// Send; pending and valid are Poll; unknown is Resolve; and all but pending and
	// valid are Resolve if the claim was interrupted in a step, which is recorded as
	// the state unknown.
	//
	// A key without a head is released, idle, in the same statement that shows that
	// no message was enqueued meanwhile. Every result is a step of the message's own
	// history. Any result but Block and Stuck unblocks a key. Blocking a key, and unblocking it, is an event of part "batch",
	// subject queue + "/" + key, from and to the holder, reason [Result.BlockingReason]. Errors are those of claim.KeyTable.
	Exchange(ctx context.Context, x Exchange) (ExchangeResult, error)

	// EnqueueDue puts scheduled messages whose time has come, by the store's clock, into their keys, as
	// [Message].NotBefore says, and wakes whom new messages wake: at most limit of them, and fewer if they are large.
	// It returns how many it was. claim.Share.Due says when it is worth a call.
	EnqueueDue(ctx context.Context, queue string, limit int) (enqueued int, err error)

	// Prune deletes messages that reached a final state longer than keep ago and
	// that block no key, at most limit of them, going on where the last call
	// ended, and returns how many, and whether it has been through all. A scheduled message of the same ID goes with each.
	Prune(ctx context.Context, queue string, keep time.Duration, limit int) (deleted int, through bool, err error)
}
