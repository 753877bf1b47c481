// Package elect keeps one primary per role (or N holders, when asked), and tells
// clients who it is.
//
// [Campaign] waits for a role, runs the work with a [Term] and a context, stops
// the work before the store can give the role away, and releases the role. [Run]
// campaigns again after a loss. [Resolve] and [Watch] return the primary and its
// address. [Once] runs a job on one instance per period.
//
// # States of a campaign
//
//	waiting   a standby: listed as waiting, asleep until the primary could lapse
//	primary   the work runs, until it returns or
//	            lost      trust ran out, or the store named another holder (lease.ErrLost)
//	            resign    an operator asked for the role (lease.ErrResign)
//	            moved     the role named by With moved elsewhere (ErrMoved)
//	            stopped   the caller's context ended
//	stopping  the work's context is cancelled; it has StopGrace to return
//	released  the role is free, or reserved for the named successor
//
// # Who decides what
//
//	campaign.go  waiting, running the work, and the four ways to lose a role
//	standby.go   what a standby logs about who holds the role
//	release.go   releasing the lease, and what the end of a term is to the history and the caller
//	await.go     wake up when a lease may have changed, and at least every interval
//	resolve.go   who holds a role: Resolve, Holders, Roles, Watch
//	resign.go    asking holders to resign, and letting others go first
//	once.go      once per period
//	candidate.go campaigning for code that others call
//	role.go      names of roles and their leases
//
// Whether a standby may take a role is decided in package lease
// ([lease.TakeoverPolicy] and [lease.Expectation]). A new setting of a campaign is
// a field of [Config].
//
// # What it promises
//
// While the work obeys its context within StopGrace, it has stopped before any
// other instance can become primary, whatever happens to the network, the store
// or any wall clock. The term that the work gets is larger than every earlier term
// of the role: where terms are checked, no effect of an old primary lands after
// the first effect of a new one, even if the old one was paused for an hour.
//
// # What it does not promise
//
// It cannot stop work that ignores its context (it calls [Config].Overrun), nor
// notice a pause while it is paused. A role with several holders has that many
// terms, one per place.
//
// An acquisition that had no answer when its campaign was stopped is sent again,
// which settles it, and given back. Without the store, the role may be held without
// work until the session ends.
//
// # How it fails
//
// A store that does not answer is asked again after an interval. A primary that
// cannot renew stops its work StopGrace before trust ends, which is T − I after
// the last accepted renewal was sent.
package elect
