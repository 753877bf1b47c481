package claim

import (
	"context"
	"errors"
	"time"

	"github.com/understudy-ha/understudy/lease"
)

// ErrNotHeld: the key is not held by the session and term that were named.
var ErrNotHeld = errors.New("claim: not held")

// MaxKeys is the most keys of one call, and rows of one List. Callers split what is more.
const MaxKeys = 1000

// Claim is a key that an instance holds.
type Claim struct {
	Key  string
	Term int64
	// Interrupted: the last step on this key was started and never finished: its
	// effects may or may not have happened.
	Interrupted bool
}

// ClaimRequest says how many keys to claim.
type ClaimRequest struct {
	Space   string
	Session string
	// Limit keys to take, 1 to MaxKeys.
	Limit int
	// Fresh is how many of them may have become free or ready less than Linger
	// ago. A member that has its fair share leaves those to others for a while.
	Fresh  int
	Linger time.Duration
}

// Member is an instance that works on the keys of a space.
type Member struct {
	Space   string
	Session string
	// Asleep: it has nothing to do; wake it ([WakeID]) when a key becomes ready.
	// Being woken ends it, and so does a Join without it.
	Asleep bool
}

// Share is how the held keys of a space are divided.
type Share struct {
	Members int // live sessions that have joined
	Mine    int // keys held by the member that joined
	Held    int // keys held by all live members
	Least   int // the fewest that any one of them holds
	// Free: some keys are ready and may be claimed.
	Free bool
	// Due: the space is that of a queue, and the time of a scheduled message has come.
	Due bool
}

// StepResult ends a step.
type StepResult struct {
	Key  string
	Term int64
	// In is when the key is ready again; 0 is at once. An idle key is not ready until
	// it is offered again.
	In   time.Duration
	Idle bool
	// Release also releases the key.
	Release bool
}

// Row is a key as operators see it.
type Row struct {
	Key  string
	Term int64
	// Session of the holder, "" when the key is free; Holder is its instance.
	Session string
	Holder  lease.Instance
	// Lapsed: the holder's session has lapsed, by the store's clock.
	Lapsed bool
	// Since is when it last changed hands, by the store's wall clock.
	Since time.Time
	// Idle keys have nothing to do; others are ready In from now, or since
	// then when that is negative.
	Idle bool
	In   time.Duration
	// InStep: a step was started and not finished. Hold is how long it still keeps
	// others from the key, even if the holder lapses; zero or negative: no longer.
	InStep bool
	Hold   time.Duration
	// Interrupted: see [Claim].
	Interrupted bool
}

// Query selects rows of a space.
type Query struct {
	Space   string
	Session string // only keys that it holds, when not ""
	After   string // only keys after this one
	Limit   int    // 1 to MaxKeys; 0 is MaxKeys
}

// PageSize is how many rows the query gets.
func (q Query) PageSize() int {
	if q.Limit <= 0 || q.Limit > MaxKeys {
		return MaxKeys
	}
	return q.Limit
}

// IsFree reports whether a ready key may be claimed: it has no holder, or the holder
// has lapsed and, if the key is in a step, the second window has passed too. Stores
// say the same in the database.
func (r Row) IsFree() bool {
	return r.Session == "" || r.Lapsed && (!r.InStep || r.Hold <= 0)
}

// WakeID is the lease.Change with which a store wakes the sleeping members of a
// space. A change that names a Successor is for that session alone.
func WakeID(space string) lease.ID { return lease.ID{Space: space} }

// KeyTable is the port: what a store must provide to divide keys.
//
// Every method is one short atomic operation, linearizable on the rows it
// touches, and safe to use from many goroutines. It returns
// [lease.ErrUnavailable] when the request cannot have been applied, and
// [lease.ErrUnknown] when it may have been: then [KeyTable.List], or the next call
// under the same terms, shows which. A list of claims may have up to MaxKeys, in any
// order, without repetition. Any text is only data to a store.
//
// Part and Subject of a history event that it records are "claim" and the space.
type KeyTable interface {
	// Offer makes keys ready in the given time from now, and creates those that
	// are not there. A key that is ready earlier stays so; for one in a step the
	// offer applies after the step, however that ends. Sleeping members are
	// woken if a key became ready at once.
	Offer(ctx context.Context, space string, keys []string, in time.Duration) error

	// Withdraw deletes keys. Their holders learn it at their next call.
	Withdraw(ctx context.Context, space string, keys []string) error

	// Join makes the session a member of the space, or keeps it one, and returns
	// how the keys are divided. A member whose session has ended does not count. The
	// cost grows with the keys that are held, not with those that there are.
	// [lease.ErrLapsed] when the session does not live.
	Join(ctx context.Context, m Member) (Share, error)

	// ClaimKeys claims keys that are ready and [Row.IsFree], those of lapsed holders
	// first, then of the others the longest ready, each under a new term: max(old + 1, the store's clock in
	// ms). A key that was in a step is not in one any more, and is interrupted.
	// Those taken over from a lapsed holder are one event for each holder and call,
	// with reason history.Lapsed and the largest term. [lease.ErrLapsed] when the
	// session does not live.
	ClaimKeys(ctx context.Context, w ClaimRequest) ([]Claim, error)

	// StartSteps starts a step on each key that the session holds under the term and
	// that is not in a step, and returns those. The step keeps others from the
	// key for hold, even if the session lapses; 0 for a step that may safely run
	// twice at once. [lease.ErrLapsed] when the session does not live.
	StartSteps(ctx context.Context, space, session string, hold time.Duration, claims []Claim) ([]Claim, error)

	// FinishSteps ends steps, clears Interrupted, and returns the keys that it was
	// accepted for: those still held under the term by this session, even
	// a lapsed one, as long as no other has claimed the key.
	FinishSteps(ctx context.Context, space, session string, done []StepResult) ([]string, error)

	// Release releases keys that the session still holds under the term. Those that were ready are ready from now on, behind all that have waited
	// for longer; others stay as they are. A key in a step counts as interrupted:
	// stop working on it before releasing it. Sleeping members are woken.
	Release(ctx context.Context, space, session string, claims []Claim) error

	// List returns rows in the order of their keys, by bytes. With a session, its
	// cost grows with what that session holds, not with the keys that there are.
	List(ctx context.Context, q Query) ([]Row, error)
}
