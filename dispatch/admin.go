package dispatch

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/understudy-ha/understudy/lease"
)

// Overview is a summary of a queue.
type Overview struct {
	Queue string
	// Depth is how many messages are waiting or in flight, Done how many were ever
	// committed or cancelled: two readings of it give the rate.
	Depth int64
	Done  int64
	// DeadLetters are messages that ended as invalid or failed and are not pruned yet. At most MaxDeadLetters are
	// counted; Done then counts what is beyond.
	DeadLetters int64
	// Scheduled messages wait for their time: they are in no key, and not in Depth. At most MaxScheduled are counted, also
	// those that give way to another of the same ID, until they are due.
	Scheduled int64
	// Oldest is how long the oldest head of a key has waited, blocked keys included, or for how long a scheduled message
	// is overdue; 0 when none waits.
	Oldest time.Duration
	// Keys that have messages waiting. Each may count in one of the next: Blocked, else in a step, else its head is pending or
	// valid, else it waits for another attempt. A blocked key waits for an operator, or is [Stuck]: it goes on when the
	// target decides.
	Keys    int64
	InStep  int64
	Pending int64
	Delayed int64
	Blocked int64
	// Holders are the instances that joined, and how many keys each holds.
	Holders []HolderCount
}

// HolderCount is how many keys of a queue an instance holds.
type HolderCount struct {
	Instance lease.Instance
	Keys     int
	Asleep   bool
}

// KeyRecord is a key of a queue as operators see it.
type KeyRecord struct {
	Key     string
	Depth   int64 // messages that are not finished
	Head    string
	State   State // of the head; "" when there is none
	Holder  lease.Instance
	Term    int64
	InStep  bool
	Blocked bool
	// Reason why it is blocked, or what its head waits for, in the target's words.
	Reason string
	// Waiting is how long its head has been there, Next when it is tried again
	// (0 when at once, or not known).
	Waiting time.Duration
	Next    time.Duration
}

// IsRefused reports whether the target refused the head of the key, which is tried again ([OnFailureRetry]).
func (k KeyRecord) IsRefused() bool {
	return k.State == Delayed && !k.Blocked && strings.HasPrefix(k.Reason, refusedMark)
}

// KeyQuery selects keys of a queue in the order of their names.
type KeyQuery struct {
	Queue   string
	After   string // only keys after this one
	Blocked bool   // only those that are blocked
	Idle    bool   // also those with nothing to do
	Limit   int    // 1 to MaxPage; 0 is MaxPage
}

// MessageQuery selects messages of a queue in the order of key and sequence. Scheduled ones are found by their state or
// their IDs alone.
type MessageQuery struct {
	Queue    string
	Key      string   // of this key only, when not ""
	State    State    // in this state only, when not ""
	IDs      []string // these only, at most MaxPage; the order of the answer is free
	AfterKey string   // with AfterSeq: continue after that message
	AfterSeq int64
	Limit    int // 1 to MaxPage; 0 is MaxPage
}

// MaxDeadLetters and MaxScheduled bound counts.
const (
	MaxDeadLetters = 10_000
	MaxScheduled   = 10_000
)

// MaxPage is the most rows that one call of [Admin] returns.
const MaxPage = 1000

// PageSize is how many rows a query with this Limit gets.
func PageSize(limit int) int {
	if limit <= 0 || limit > MaxPage {
		return MaxPage
	}
	return limit
}

// Action is what an operator may do with a message.
type Action string

// Actions.
const (
	// Retry sends a message again, at once, with its attempts counted from 0: one
	// that blocks its key or is delayed. A dead-lettered (invalid or failed) or
	// cancelled one goes to the end of its key. One that the target may have (unknown, [Stuck], or
	// skipped or cancelled while it was) is refused with [ErrUncertain].
	Retry Action = "retry"
	// RetryUnknown is Retry, and sends a message again that the target may have: an
	// operator says so who knows that it does not, or may act on it twice. The target is
	// asked before, if it can be; it may have committed the message meanwhile.
	RetryUnknown Action = "retry-unknown"
	// Skip dead-letters a message that blocks its key (also as [Stuck]), is delayed or unknown: its
	// state becomes failed, or stays invalid.
	Skip Action = "skip"
	// Cancel removes a message that was never sent (also a scheduled one, which gets its place in its key by that), or that the target has and has not decided for too long ([Stuck]).
	Cancel Action = "cancel"
)

// Retries reports whether the action sends the message again.
func (a Action) Retries() bool { return a == Retry || a == RetryUnknown }

// WasSkippedUnknown reports whether an operator skipped or cancelled the message of this trail
// while its outcome was unknown: the target may have it still.
func WasSkippedUnknown(trail []TrailEntry) bool {
	if len(trail) < 2 {
		return false
	}
	if by := trail[len(trail)-1].Action; by != Skip && by != Cancel {
		return false
	}
	switch trail[len(trail)-2].State {
	case Submitting, Pending, Valid, Unknown:
		return true
	}
	return false
}

// WasRetried reports whether an operator had the message of this trail sent again.
func WasRetried(trail []TrailEntry) bool {
	return slices.ContainsFunc(trail, func(e TrailEntry) bool { return e.Action.Retries() })
}

// TruncateTrail cuts a trail to [MaxTrail] entries, in place: its first and the latest. The latest retry stays, too, however long
// ago it was: see [WasRetried].
func TruncateTrail(trail []TrailEntry) []TrailEntry {
	for len(trail) > MaxTrail {
		oldest := 1
		if trail[oldest].Action.Retries() && !WasRetried(trail[oldest+1:]) {
			oldest++
		}
		trail = slices.Delete(trail, oldest, oldest+1)
	}
	return trail
}

// Admin is the port for operators and for programs that enqueue over the API.
// Errors are those of lease.Store, and [ErrNoQueue], [ErrNoMessage], [ErrState]
// and [ErrUncertain].
type Admin interface {
	// CreateQueue creates a queue; an existing one is left as it is.
	CreateQueue(ctx context.Context, queue string) error

	// RemoveQueue deletes a queue with all that was ever in it; one that is created again under its name starts again, with
	// numbers from 1. messages is what the caller agrees to lose: how many of its messages wait, are scheduled, in flight or are dead
	// letters. [ErrState], with nothing done, if it is another number, or if a live instance has joined.
	// The history records who.
	RemoveQueue(ctx context.Context, queue string, messages int64, who string) error

	// Add enqueues messages, all or none, in a transaction of its own, and reports
	// for each whether it is new: false when the queue has a message of that id, or
	// the call has it twice and this is the second. Up to claim.MaxKeys messages.
	Add(ctx context.Context, messages []Message) (added []bool, err error)

	// Queues lists all queues by name.
	Queues(ctx context.Context) ([]Overview, error)

	// Keys and Messages list what is in a queue, without payloads and trails.
	Keys(ctx context.Context, q KeyQuery) ([]KeyRecord, error)
	Messages(ctx context.Context, q MessageQuery) ([]Record, error)

	// Message returns one message with payload and trail. With queue "", the id must
	// be in one queue only.
	Message(ctx context.Context, queue, id string) (Record, error)

	// Act applies an operator's action, and records who and why in the history
	// of the message and of the store (part "batch", subject queue + "/" + key, reason [ActionReason], duration how long the
	// message had been in its state).
	Act(ctx context.Context, queue, id string, a Action, who string) error
}

// CheckRemoval is the rule of [Admin.RemoveQueue] for a queue that has this many messages and joined instances.
func CheckRemoval(queue string, agreed, has, joined int64) error {
	switch {
	case joined > 0:
		return fmt.Errorf("%w: %d instances deliver queue %q: stop them first", ErrState, joined, queue)
	case agreed != has && agreed == 0:
		return fmt.Errorf("%w: queue %q has %d messages that are waiting, in flight or dead letters: to lose them with it, name their number", ErrState, queue, has)
	case agreed != has:
		return fmt.Errorf("%w: queue %q has %d messages that are waiting, in flight or dead letters, not %d", ErrState, queue, has, agreed)
	}
	return nil
}

// SinkQueueError is what [Admin.RemoveQueue] says of a queue that receives the alarms of a sink of the monitor.
func SinkQueueError(queue string) error {
	return fmt.Errorf("%w: queue %q receives the alarms of a sink: drop the sink first", ErrState, queue)
}

// ActionReason is what the history says of an operator's action on the message of an ID that was in a state, with a detail.
func ActionReason(a Action, who string, was State, detail, id string) string {
	return lease.TruncateReason(fmt.Sprintf("%s by %s: %s, %s", a, who, was, cmp.Or(detail, id)))
}

// RemovalReason is what the history says of it.
func RemovalReason(messages int64, who string) string {
	return lease.TruncateReason(fmt.Sprintf("queue removed with %d messages by %s", messages, who))
}
