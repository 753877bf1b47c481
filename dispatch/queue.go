package dispatch

import (
	"context"
	"errors"
	"time"

	"github.com/understudy-ha/understudy/claim"
)

var (
	// ErrNoQueue: no queue of this name was made; see [Desk].
	ErrNoQueue = errors.New("dispatch: no such queue")
	// ErrNoBatch: no such batch, or it was pruned.
	ErrNoBatch = errors.New("dispatch: no such batch")
	// ErrState: the batch is not in a state in which that can be done.
	ErrState = errors.New("dispatch: not possible in this state")
)

// Todo is what a dispatcher has to do with the head of a key.
type Todo string

// What [Assignment] asks for.
const (
	Send Todo = "send" // submit it: the step has begun
	Ask  Todo = "ask"  // find out first what became of it: the step has begun
	Poll Todo = "poll" // the target has it: ask how far it is; no step has begun
)

// Assignment is the head of a key, for the instance that claims it.
type Assignment struct {
	Batch
	Todo Todo
	Seq  int64
	Term int64
	// Attempt is the number of this submission, from 1. When the todo is not
	// Send it is that of the last one.
	Attempt int
	// Doubtful: an earlier attempt may have arrived, and the target could not
	// say. A dispatcher sets it, not a store.
	Doubtful bool
	// Link: see [Record].
	Link string
}

// After tells what becomes of a key after a [Result].
type After string

// What may follow a result.
const (
	Next  After = "next"  // the batch is over: its key goes on with the next one
	Again After = "again" // the same batch once more, after Wait; the key is given back meanwhile
	Hold  After = "hold"  // the target has it: the claim is kept, no step is under way, nothing overtakes
	Block After = "block" // the key waits for a person, and is given back
)

// Result is what became of an assignment.
type Result struct {
	Key   string
	Term  int64
	Seq   int64
	State State // never Queued, Submitting or Cancelled
	After After
	Wait  time.Duration // with Again
	// Attempt, Code, Detail and Link: see [Record]. An empty Link leaves the one
	// that is known.
	Attempt int
	Code    int
	Detail  string
	Link    string
}

// Turn is one exchange with the store: what became of earlier assignments, and
// the keys for which the next are wanted. Both lists together have up to
// claim.MaxKeys entries. A key may be in both.
type Turn struct {
	Queue   string
	Session string
	Results []Result
	// Begin names claimed keys. A key that is in a step already, or whose head
	// is pending and was not just settled, is only looked at.
	Begin []claim.Claim
	// Anew: an earlier turn that named these keys was not answered, and nothing
	// was sent for them since: a key that is in a step begins it again.
	Anew bool
	// Window keeps others from a key in a step, even if the session lapses; see
	// claim.Table.Begin.
	Window time.Duration
}

// Settled is the store's answer to a result.
type Settled struct {
	Key string
	Seq int64
	// Accepted: it was recorded. Otherwise the claim is no longer held under that
	// term, or the key's head is another batch by now.
	Accepted bool
}

// Standing is where a key stands after a turn.
type Standing string

// Standings of a key.
const (
	Ready Standing = "ready" // held, and it has more batches: begin when it is their turn
	Held  Standing = "held"  // held: in a step, or its head is pending
	Given Standing = "given" // given back: it has nothing more to do now, waits for its next attempt, or is blocked
	Lost  Standing = "lost"  // not held under that term, or the session does not live
)

// Turned is the outcome of a turn.
type Turned struct {
	Settled  []Settled           // one for each result, in the same order
	Begun    []Assignment        // at most one for each key of Begin
	Standing map[string]Standing // of every key that was named
}

// Queue is what a dispatcher needs of a store, besides the claims: the port that
// delivers.
type Queue interface {
	// Turn records results and begins next batches in one atomic statement, the
	// cost of which grows with the keys that it names and with nothing else.
	//
	// A result counts if the key is held under the term by this session, lapsed
	// or not, and the batch is the key's head and not final. A claim of Begin
	// needs a session that lives. The head is the first batch in the key's order
	// that is not over: passed by After Next, or cancelled. What its
	// assignment asks for follows from the head's state: queued and delayed are
	// Send; pending and valid are Poll; unknown is Ask; and all but pending and
	// valid are Ask if the claim was interrupted in a step, which is recorded as
	// the state unknown.
	//
	// A key without a head is given back, idle, together with the proof that no
	// batch was enqueued meanwhile. Every result is a step of the batch's own
	// history. Blocking a key, and unblocking it, is an event of part "batch",
	// subject queue + "/" + key. Errors are those of claim.Table.
	Turn(ctx context.Context, t Turn) (Turned, error)

	// Prune deletes batches that reached a final state longer than keep ago and
	// that block no key, at most limit of them, going on where the last call
	// ended, and returns how many, and whether it has been through all.
	Prune(ctx context.Context, queue string, keep time.Duration, limit int) (deleted int, through bool, err error)
}
