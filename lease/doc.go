// Package lease is the kernel: sessions, leases, and the rules by which one
// holder follows another. Every other part of Understudy stands on it.
//
// # What it is
//
// An [Instance] is one running process. It keeps a [Session] in a store: a
// heartbeat row that a [Keeper] renews once per interval I. A [Lease] points to
// the session of its holder and costs nothing to keep: it is held while that
// session lives. The lease's term is an int64 that only grows; it is the fencing
// token that every effect of the holder carries.
//
// A session is in one of three states, judged by the store's clock alone:
//
//	live    its deadline, the last renewal plus the timeout T, lies ahead
//	lapsed  its deadline has passed; it can never be renewed again
//	ended   closed by its owner, or by the contender that took a lease from it
//
// A lease is free (never held, or released), or it points to a session. A
// [Contender] acquires it when it is free, or when it has reason to believe that
// the holder's session has lapsed: see [TakeoverPolicy].
//
// # Who decides what
//
//	timing.go          which intervals and timeouts are safe; how long to trust
//	keeper.go          start, renew and end the session: one request per interval
//	keeperstats.go     what a keeper counts, and whether the store answers it
//	activesession.go   may this process still believe in its session?
//	heldlease.go       acquire a lease under the kept session, and release it
//	contender.go       when to read the lease, when to try to acquire it
//	takeoverpolicy.go  when a held lease counts as lapsed (the contender's side)
//	expectation.go     whether an acquisition succeeds (the store's side)
//	notifier.go        wake-ups shared by all waiters of a process, and whether to listen for them
//	state.go           what holders keep beside a lease for their successors
//	store.go           the port: what a store must provide
//
// A new setting of sessions goes into [KeeperConfig], one of acquisitions into
// [AcquireRequest], and a new condition for an acquisition into [Expectation]
// with [Expectation.Permits]; leasetest has the conformance suite for stores.
//
// # What it promises
//
//   - Terms never fall: a new term is max(old+1, the store's clock in
//     milliseconds). A store that lost terms gives a lower one only if its clock
//     is behind those too.
//   - As the store saw it, a lease has at most one holder at any time, and a
//     lapsed session is never renewed.
//   - [ActiveSession.Valid] turns false on the holder's own clock, at the latest
//     one interval before the store can give its leases away, provided that every
//     host's clock runs at a rate within [Timing.RateTolerance] of true. No two
//     hosts' clock readings are ever compared.
//   - A step of the store's wall clock, by any amount in either direction, makes
//     no second holder and delays a takeover by at most one T. Two opposite steps
//     within 2·T of each other can make one: see [TakeoverPolicy].
//
// # What it does not promise
//
//   - That a paused process knows that time has passed. A process stopped by a
//     debugger, a hypervisor or SIGSTOP finds out when it runs again. That is
//     what terms are for: check them where the effects land.
//   - Anything about a store that loses acknowledged writes (Redis failing over
//     to a replica that lags, a database restored from a backup) beyond the
//     term: for up to T there may be two holders, of which the later has the
//     higher term. A Redis master that is replaced while it is cut off may add the
//     length of the partition: see package store/redis.
//
// # How it fails
//
// A store that cannot be reached costs the holder its trust T−I after the last
// accepted renewal, counted from before that request was sent. A request that
// timed out may have been applied: it returns [ErrUnknown], and the caller reads
// back before it believes either.
package lease
