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

// Claim is a key as its holder knows it.
type Claim struct {
	Key  string
	Term int64
	// Interrupted: the last step on this key was begun by somebody, and nobody
	// knows how it ended.
	Interrupted bool
}

// Want asks for keys.
type Want struct {
	Space   string
	Session string
	// Most keys to take, 1 to MaxKeys.
	Most int
	// Fresh is how many of them may have become free or ready less than Linger
	// ago. Who has its fair share already leaves those to others for a while.
	Fresh  int
	Linger time.Duration
}

// Member is an instance that works on the keys of a space.
type Member struct {
	Space   string
	Session string
	// Asleep: it has nothing to do, and wants to be woken ([Wake]) when a key
	// becomes ready. Being woken ends it, and so does every other call of Join.
	Asleep bool
}

// Share is how the held keys of a space are divided.
type Share struct {
	Members int // live sessions that have joined
	Mine    int // keys held by the one that asks
	Held    int // keys held by all live members
	Least   int // the fewest that one of them holds
	// Free tells that there are keys that are ready and may be taken.
	Free bool
}

// Finished ends a step.
type Finished struct {
	Key  string
	Term int64
	// In how long the key is ready again: 0 is at once. Idle keys are not ready
	// until they are offered again.
	In   time.Duration
	Idle bool
	// Release gives the key back with it.
	Release bool
}

// Row is a key as people see it.
type Row struct {
	Key  string
	Term int64
	// Session of the holder, "" when the key is free; Holder is its instance.
	Session string
	Holder  lease.Instance
	// Lapsed: the holder's session is over, by the store's clock.
	Lapsed bool
	// Since is when it last changed hands, by the store's wall clock.
	Since time.Time
	// Idle keys have nothing to do; others are ready In from now, or since
	// then when that is negative.
	Idle bool
	In   time.Duration
	// InStep: a step was begun and not finished. Hold is how long that keeps others from
	// the key, even if its holder lapses; zero or negative when it does not.
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

// Free is the rule of whose keys may be taken, once they are ready: nobody's, and
// those of a lapsed holder, but a key in a step only past the second window.
// Stores say the same in the database.
func (r Row) Free() bool {
	return r.Session == "" || r.Lapsed && (!r.InStep || r.Hold <= 0)
}

// Wake is the lease.Change with which a store wakes the sleeping members of a
// space. A change that names a Successor is for that session alone.
func Wake(space string) lease.ID { return lease.ID{Space: space} }

// Table keeps the keys.
//
// Every method is one short atomic operation, linearizable on the rows it
// touches, and safe to use from many goroutines. It returns
// [lease.ErrUnavailable] when the request cannot have been applied, and
// [lease.ErrUnknown] when it may have been: then [Table.List] or the next call
// under the same terms tells. A list of claims may have up to MaxKeys, in any
// order, without repetition. Any text is only data to a store.
//
// Part and Subject of a history event that it records are "claim" and the space.
type Table interface {
	// Offer makes keys ready in the given time from now, and creates those that
	// are not there. A key that is ready earlier stays so; of one in a step it
	// holds for after the step, however that is finished. Sleeping members are
	// woken if a key became ready at once.
	Offer(ctx context.Context, space string, keys []string, in time.Duration) error

	// Withdraw deletes keys. Their holders find out at their next call.
	Withdraw(ctx context.Context, space string, keys []string) error

	// Join makes the session a member of the space, or keeps it one, and tells how
	// the keys are divided. A member whose session is over is none. Its cost
	// grows with the keys that are held, not with those that there are.
	// [lease.ErrLapsed] when the session does not live.
	Join(ctx context.Context, m Member) (Share, error)

	// Take takes keys that are ready and [Row.Free], the one that has been ready
	// for longest first, each under a new term: max(old + 1, the store's clock in
	// ms). A key that was in a step is not in one any more, and is interrupted.
	// Those taken over from a lapsed holder are one event for each holder and call,
	// with reason history.Lapsed and the largest term. [lease.ErrLapsed] when the
	// session does not live.
	Take(ctx context.Context, w Want) ([]Claim, error)

	// Begin begins a step on each key that the session holds under the term and
	// that is not in a step, and returns those. The step keeps others from the
	// key for hold, even if the session lapses; 0 for a step that may be done
	// twice at once. [lease.ErrLapsed] when the session does not live.
	Begin(ctx context.Context, space, session string, hold time.Duration, claims []Claim) ([]Claim, error)

	// Finish ends steps, clears Interrupted, and returns the keys that it was
	// accepted for: those still held under the term by this session, be it
	// lapsed, as long as nobody has taken the key.
	Finish(ctx context.Context, space, session string, done []Finished) ([]string, error)

	// Release gives keys back, where the session still holds them under the
	// term. Those that were ready are ready from now on, behind all that have waited
	// for longer; others stay as they are. A key in a step is interrupted then:
	// whoever releases it must have stopped working on it. Sleeping members are woken.
	Release(ctx context.Context, space, session string, claims []Claim) error

	// List returns rows in the order of their keys, by bytes. With a session, its
	// cost grows with what that session holds, not with the keys that there are.
	List(ctx context.Context, q Query) ([]Row, error)
}
