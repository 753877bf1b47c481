package lease

import (
	"context"
	"time"
)

// Session is the heartbeat row of one instance, as the store shows it.
type Session struct {
	ID       string
	Instance Instance
	Timing   Timing
	// Seq counts the renewals. A session whose Seq has not changed has not moved.
	Seq int64
	// Remaining until the session lapses, by the store's clock; zero or negative
	// when it has lapsed.
	Remaining time.Duration
	// Ended sessions do not live, whatever Remaining says.
	Ended bool
	// Started is when it began, by the store's clock.
	Started time.Time
}

// Renewal is what a session learns each time it is renewed.
type Renewal struct {
	Seq int64
	// Changes is a number that differs from the last one when something needs the
	// session's attention that Waits does not show: a lease that it holds was asked
	// for, or one that it waits for can be acquired. It may also differ when anything
	// else has changed hands in the store; 0 says that nothing needs attention. It
	// makes each renewal the poll that stands in for a lost notification.
	Changes int64
	// Waits are the leases for which the session has joined to wait, as Join would
	// return them; nil in a store that does not show them.
	Waits []Lease
}

// Lease is a lease as the store shows it.
type Lease struct {
	ID
	// Term of the present or last holder; 0 when the lease was never held.
	Term int64
	// Session of the holder; "" when the lease is free.
	Session string
	// Holder, Timing, Seq, Remaining and Ended are those of that session. When
	// the store no longer has its row, Seq is 0, Remaining is 0 and Timing is zero.
	Holder    Instance
	Timing    Timing
	Seq       int64
	Remaining time.Duration
	Ended     bool
	// Foreign: the session belongs to another boot of a single-host store, so
	// that the store's clock says nothing about it. Its process is dead, but only a whole T that was counted proves it.
	// Remaining is never positive then; the wall clock gives it, and nothing but displays and cleaning up may rely on it.
	Foreign bool
	// Since is when the present term began, Age how long ago; after a release,
	// those of the release. Both by the store's clock.
	Since time.Time
	Age   time.Duration
	// Successor is the instance (name or id) that the last holder named when it
	// released, and Reserved how long the lease is still kept for it.
	Successor string
	Reserved  time.Duration
	// ReleaseRequested: the holder has been asked to release the lease, for RequestedSuccessor
	// if that is not "".
	ReleaseRequested   bool
	RequestedSuccessor string
	// Places is how many equal leases its holder contended for, this one among them; 0 when it did not say, and
	// when the lease is free.
	Places int
	// Waiting is how many live sessions have joined to wait for the lease; as
	// Join and Acquire return it to one of them, only those that joined before it,
	// or as many of them as matter. It only spreads their attempts: whoever acquires the lease is told nothing by it.
	Waiting int
}

// Free reports that the lease has no holder: it was never held, was released, or
// its holder's session was ended. One whose holder has lapsed is neither free nor held.
func (l Lease) Free() bool { return l.Session == "" || l.Ended }

// Held reports that the lease has a holder whose session lives by the store's
// clock, or, if it is Foreign, as far as that clock can tell.
func (l Lease) Held() bool { return !l.Free() && (l.Remaining > 0 || l.Foreign) }

// HasLiveHolder is Held for who shows, asks or cleans up: the holder of a lease that is Foreign is dead, though only a whole T proves it
// to who wants the lease.
func (l Lease) HasLiveHolder() bool { return l.Held() && !l.Foreign }

// TermAge is how long ago the present or last term began, by the store's clock,
// in which a term is counted: negative if that clock was stepped back since.
func (l Lease) TermAge() time.Duration {
	return l.Since.Add(l.Age).Sub(time.UnixMilli(l.Term))
}

// Seen is what [Store.Acquire] compares: the lease as a contender last saw it.
type Seen struct {
	Term    int64
	Session string
	Seq     int64
}

// Seen returns what a contender must name to acquire the lease as it is.
func (l Lease) Seen() Seen { return Seen{Term: l.Term, Session: l.Session, Seq: l.Seq} }

// Expectation is the compare-and-set of an acquisition: the lease as the contender
// last saw it, and whether it has waited long enough.
type Expectation struct {
	Lease   ID
	Session string // that acquires
	Seen    Seen
	// Waited: since the contender first saw Seen, its own clock has counted the
	// holder's whole timeout. Then the store's clock is not asked whether the
	// holder has lapsed; that the session has not moved is still required.
	Waited bool
	Places int // as [Lease] is to show it
}

// ReleaseRequest releases a lease.
type ReleaseRequest struct {
	Lease   ID
	Session string
	Term    int64
	// Successor, when not "", is the instance (name or id) for which the lease
	// is kept during Reserve.
	Successor string
	Reserve   time.Duration
	Reason    string
}

// SpaceCount is how many leases a space has, held or not.
type SpaceCount struct {
	Space  string
	Leases int
}

// Change tells that a lease changed hands, or that its holder was asked for it.
// The zero Change means that anything may have changed. A store may tell of other
// news, too, under an ID that no lease has.
type Change struct {
	Lease     ID
	Term      int64
	Free      bool   // released: it can be acquired
	Successor string // … by this instance only, for a while
}

// Waiter is a session that has joined to wait for a lease.
type Waiter struct {
	Lease   ID
	Session Session
}

// Store keeps sessions and leases, and is the only judge of time among hosts.
//
// Every method is one short atomic operation, linearizable against the others on
// the same rows, and safe to use from many goroutines. Every method returns
// [ErrUnavailable] when the request cannot have been applied, and [ErrUnknown]
// when it may have been; ctx bounds the whole call. Input is checked by the
// callers in this package, but a store relies on nothing: any text is only data
// to it. Every acquisition, release and request is recorded in the history by
// the operation itself.
type Store interface {
	// StartSession creates the session with s.ID, s.Instance and s.Timing,
	// live for T from now. An ID that was used before is [ErrLapsed].
	StartSession(ctx context.Context, s Session) (Renewal, error)

	// RenewSession moves the deadline of a live session to T from now.
	// [ErrLapsed] if it has lapsed, was ended, or is not there; a session that
	// was once refused so is ended, whatever the store's clock shows later.
	RenewSession(ctx context.Context, id string) (Renewal, error)

	// EndSession ends the session, releases every lease it holds and takes it
	// off every waiting list, also if it has lapsed or was ended already. Ending an
	// unknown session is not an error.
	EndSession(ctx context.Context, id, reason string) error

	// Acquire gives c.Session the lease if it is as c.Seen says and
	//   - it is free and not reserved for another instance (c.Waited overrides a
	//     reservation), or
	//   - its holder's session has not moved and was ended, or has lapsed by the
	//     store's clock, or c.Waited is set. A session whose row is gone, and a
	//     Foreign one, count as over only when c.Waited is set.
	// Acquiring raises the term to max(old+1, the store's clock in ms), ends the
	// previous holder's session, clears every reservation and request, and takes
	// c.Session off the waiting list. Acquiring what c.Session holds already
	// succeeds and changes nothing.
	//
	// It returns the lease as it is afterwards: with a nil error c.Session
	// holds it; with [ErrHeld] it does not. [ErrLapsed] if c.Session has ended.
	Acquire(ctx context.Context, c Expectation) (Lease, error)

	// Release frees the lease if it is held by h.Session under h.Term, and is
	// [ErrNotHeld] otherwise. The term stays.
	Release(ctx context.Context, h ReleaseRequest) error

	// Get returns the lease: a zero Term if it was never held.
	Get(ctx context.Context, id ID) (Lease, error)

	// List returns the leases of a space whose key is greater than after, in
	// byte order of their keys, at most limit of them: 1 to [MaxList], see [ListLimit].
	List(ctx context.Context, space, after string, limit int) ([]Lease, error)

	// Watch calls wake for every change from when it is ready until ctx ends,
	// first with the zero Change to say that it is ready. Delivery is best
	// effort. It returns nil when ctx ended, and an error when it broke; a store
	// without notifications returns [errors.ErrUnsupported] at once. wake must
	// not block.
	Watch(ctx context.Context, wake func(Change)) error
}

// FewWatcher is a [Store] in which every watcher slows the others down.
type FewWatcher interface {
	// WatchIfFew is Watch for a caller that learns of changes from its renewals, too:
	// it returns [ErrCrowded] when enough others watch like that.
	WatchIfFew(ctx context.Context, wake func(Change)) error
}

// MaxList is the most leases that [Store.List] returns at once.
const MaxList = 1000

// ListLimit is the limit by which a [Store.List] that is called with some limit goes: the nearest that is allowed.
func ListLimit(limit int) int { return min(max(limit, 1), MaxList) }

// Roster is the part of a store that people look at: who waits for what, which
// sessions live, and requests to a holder. Errors are as for [Store].
type Roster interface {
	// Join puts a live session on the lease's waiting list, and returns the lease
	// as [Store.Get] does; joining twice is not an error. [ErrLapsed] if the session
	// has ended.
	Join(ctx context.Context, id ID, session string) (Lease, error)
	// Leave takes it off; leaving twice is not an error.
	Leave(ctx context.Context, id ID, session string) error
	// Waiters returns the live sessions that wait for leases of a space, by key
	// and then in the order in which they joined.
	Waiters(ctx context.Context, space string) ([]Waiter, error)
	// RequestRelease asks the present holder to release the lease, for the successor if
	// that is not "". The history records who asked.
	// [ErrNotHeld] when no live session holds it.
	RequestRelease(ctx context.Context, id ID, successor, who string) error
	// Sessions returns the sessions that live by the store's clock, oldest first.
	Sessions(ctx context.Context) ([]Session, error)
	// Forget deletes a lease that is as f.Seen says, that no live session holds or waits for, and ends the session of
	// its last holder. Its next term is greater than any that was ever forgotten. [ErrHeld] otherwise, and
	// [ErrNotFound] if it was never held.
	Forget(ctx context.Context, f ForgetRequest) error
	// Spaces returns the spaces that have leases, in byte order.
	Spaces(ctx context.Context) ([]SpaceCount, error)
}
