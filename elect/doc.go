// Package elect keeps one primary per role, or as many holders as are asked for,
// and tells who it is.
//
// [Campaign] waits for a role, runs the work with a [Term] and a context, stops
// it before the store can give the role away, and gives the role back. [Run]
// campaigns again after a loss. [Resolve] and [Watch] answer who is primary, and
// where. [Once] runs a job on one instance per period, whoever is up.
//
// # States of a campaign
//
//	waiting   a standby: on the roster, sleeping until the primary could lapse
//	primary   the work runs; ends when the work returns, or by
//	            lost      trust ran out, or the store named another holder
//	            resign    somebody asked for the role (lease.ErrResign)
//	            moved     the role it must be near went elsewhere (ErrMoved)
//	            stopped   the caller's context ended
//	stopping  the work's context is cancelled; it has StopGrace to return
//	released  the role is free, or kept for the successor who was named
//
// # What it promises
//
// While the work obeys its context within StopGrace, it has stopped before any
// other instance can become primary of the role, whatever happens to the
// network, the store or any wall clock. The term that the work is given is larger
// than every term that the role had before, so whoever checks terms sees no
// effect of an old primary after the first of a new one, even if the old one
// was paused for an hour.
//
// # What it does not promise
//
// A claim that reaches the store only after its campaign was stopped, although the
// campaign looked once more, leaves the role held by nobody's work until the
// session ends or the process campaigns for it again.
//
// It cannot stop work that ignores its context ([Config].Overrun is told), nor
// know about a pause while it is paused. A role with several holders has that
// many terms, one per place.
package elect
