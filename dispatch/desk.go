package dispatch

import (
	"context"
	"time"

	"github.com/understudy-ha/understudy/lease"
)

// Overview is a queue at a glance.
type Overview struct {
	Queue string
	// Depth is how many batches are not over, Done how many are, ever: their
	// number at two moments gives the rate.
	Depth int64
	Done  int64
	// Oldest is how long the batch that has waited longest is there, among the
	// heads of keys that are not blocked; 0 when none waits.
	Oldest time.Duration
	// Keys that have batches waiting, and how many of them are in a step, have a
	// head that is pending, wait for another attempt, or are blocked.
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

// KeyRecord is a key of a queue as people see it.
type KeyRecord struct {
	Key     string
	Depth   int64 // batches that are not over
	Head    string
	State   State // of the head; "" when there is none
	Holder  lease.Instance
	Term    int64
	InStep  bool
	Blocked bool
	// Reason that it is blocked, or what its head waits for, in the target's words.
	Reason string
	// Waiting is how long its head has been there, Next when it is tried again
	// (0 when at once, or when that is not known).
	Waiting time.Duration
	Next    time.Duration
}

// KeyQuery selects keys of a queue in the order of their names.
type KeyQuery struct {
	Queue   string
	After   string // only keys after this one
	Blocked bool   // only those that are blocked
	Idle    bool   // also those with nothing to do
	Limit   int    // 1 to MaxPage; 0 is MaxPage
}

// BatchQuery selects batches of a queue in the order of key and sequence.
type BatchQuery struct {
	Queue    string
	Key      string   // of this key only, when not ""
	State    State    // in this state only, when not ""
	IDs      []string // these only, at most MaxPage; the order of the answer is free
	AfterKey string   // with AfterSeq: go on after that batch
	AfterSeq int64
	Limit    int // 1 to MaxPage; 0 is MaxPage
}

// MaxPage is the most rows that one call of [Desk] returns.
const MaxPage = 1000

// Action is what a person may do with a batch.
type Action string

// Actions.
const (
	// Retry sends a batch again that blocks its key, is delayed or waits as
	// unknown (sending again is then the person's decision): at once, its
	// attempts counted anew. One that had stepped aside (invalid, failed or
	// cancelled) goes to the end of its key.
	Retry Action = "retry"
	// Skip lets a batch that blocks its key, is delayed or unknown step aside as
	// it is: state failed, or invalid if it is.
	Skip Action = "skip"
	// Cancel takes out a batch that was never sent.
	Cancel Action = "cancel"
)

// Desk is what people and programs do with queues, besides delivering them.
// Errors are those of lease.Store, and [ErrNoQueue], [ErrNoBatch] and [ErrState].
type Desk interface {
	// Make makes a queue; one that is there is left as it is.
	Make(ctx context.Context, queue string) error

	// Add enqueues batches, all or none, in a transaction of its own, and tells
	// for each whether it is new: false when the queue has a batch of that id, or
	// the call has it twice and this is the second. Up to claim.MaxKeys batches.
	Add(ctx context.Context, batches []Batch) (added []bool, err error)

	// Queues lists all queues by name.
	Queues(ctx context.Context) ([]Overview, error)

	// Keys and Batches list what is in a queue, without payloads and trails.
	Keys(ctx context.Context, q KeyQuery) ([]KeyRecord, error)
	Batches(ctx context.Context, q BatchQuery) ([]Record, error)

	// Batch returns one batch whole. With queue "", the id must be of one queue
	// only.
	Batch(ctx context.Context, queue, id string) (Record, error)

	// Act does what a person asked for, and records who and why in the history
	// of the batch and of the store (part "batch", subject queue + "/" + key).
	Act(ctx context.Context, queue, id string, a Action, who string) error
}
