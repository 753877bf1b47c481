package lease

import (
	"errors"
	"fmt"
)

var (
	// ErrHeld: another session holds the lease, or it is reserved for another
	// instance. [Store.Acquire] returns it together with the lease.
	ErrHeld = errors.New("lease: held by another")

	// ErrNotHeld: the lease is not held by the session and term that were named.
	ErrNotHeld = errors.New("lease: not held")

	// ErrNotFound: there has never been such a lease or session.
	ErrNotFound = errors.New("lease: not found")

	// ErrLapsed: the session has ended: it is past its deadline by the store's clock, or
	// was closed. It can never be renewed; its instance starts a new one.
	ErrLapsed = errors.New("lease: session lapsed")

	// ErrLost is the cause with which a work context is cancelled when its
	// lease can no longer be trusted.
	ErrLost = errors.New("lease: lost")

	// ErrResign is the cause with which a work context is cancelled when the
	// holder was asked to release it.
	ErrResign = errors.New("lease: asked to resign")

	// ErrUnknown: the request may or may not have been applied (it timed out, or
	// the connection broke after it was sent). Read back before believing either.
	ErrUnknown = errors.New("lease: outcome unknown")

	// ErrUnavailable: the store could not be reached; the request was not applied.
	ErrUnavailable = errors.New("lease: store unavailable")

	// ErrDamaged: what the store has on disk is damaged, or is not a store. No retry helps.
	ErrDamaged = errors.New("lease: store damaged")

	// ErrCrowded: enough others watch the store: see [FewWatcher].
	ErrCrowded = errors.New("lease: enough others watch")

	// ErrUnsafeTiming: the interval and timeout leave no room for safety.
	ErrUnsafeTiming = errors.New("lease: unsafe timing")

	// ErrInvalid: a name, address or other input is not valid.
	ErrInvalid = errors.New("lease: invalid input")

	// ErrTwoHosts: a session of another kernel boot is being renewed in a store
	// that only one host may use (SQLite): two kernels share the file.
	ErrTwoHosts = errors.New("lease: two hosts share a single-host store")
)

// PartiallyEnded is the error of a store that has ended a session with more leases
// than it can announce at once, and could not announce the others. It wraps
// [ErrUnknown]: the leases are free, but not all waiters were woken.
func PartiallyEnded(session string, err error) error {
	return fmt.Errorf("%w: session %s is ended, but not all of its leases were announced as free: %v", ErrUnknown, session, err)
}
