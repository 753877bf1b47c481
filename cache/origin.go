package cache

import (
	"context"
	"errors"
	"time"
)

// Origin fetches the value of a key from where it is slow. It is called by one peer
// at a time for a key, for different keys at the same time, up to
// [Config.Fetches].
//
// ctx ends when the fetch has to stop: its deadline has passed, or the peer can no
// longer be sure that nobody else fetches; its cause says which. An Origin must
// return soon after, whatever it was doing, because another peer may begin then: an
// error, unless it has the whole value, which is kept where the context ended only because the peer stops.
// A panic is recovered and counts as a failure.
type Origin func(ctx context.Context, f Fetch) (Value, error)

// Fetch is one call of an origin.
type Fetch struct {
	Key string
	// Term grows with every fetch of the key, whichever peer makes it: the fencing
	// token of its effects.
	Term int64
	// Stale is the copy that is being replaced, nil when there is none.
	Stale []byte
}

// Value is what an origin returns.
type Value struct {
	// Data is the value, at most [Config.MaxValue] bytes. It must not be changed
	// after it was returned.
	Data []byte
	// TTL is how long the value is fresh, from the start of the fetch: at least a second, at most as configured; 0: as
	// configured.
	TTL time.Duration
	// NoStore: Data answers the requests that wait at this peer, and no peer keeps a copy.
	NoStore bool
}

// ErrNotFound is what an origin returns, wrapped or not, for a key that has no value.
// It is told to whoever asked, and asked for again no sooner than after the back-off,
// as any failure.
var ErrNotFound = errors.New("cache: the origin has no such key")

// RetryAfter is an error that says when an origin wants to be called again.
type RetryAfter struct {
	After time.Duration
	Err   error
}

// Error implements error.
func (e *RetryAfter) Error() string { return e.Err.Error() }

// Unwrap is the failure itself.
func (e *RetryAfter) Unwrap() error { return e.Err }
