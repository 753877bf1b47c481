package cache

import (
	"errors"
	"strings"
	"time"
	"unicode/utf8"
)

// Errors of a [Peer], to be told apart by errors.Is.
var (
	// ErrConfig wraps everything that is wrong with a [Config].
	ErrConfig = errors.New("cache: configuration")
	// ErrPartitioned: no majority of the members can be reached, so nobody may fetch,
	// and there is no copy that would do. What is held is still given.
	ErrPartitioned = errors.New("cache: no majority of the peers can be reached")
	// ErrFailed: the origin failed; a [Failure] says how, and when it is asked again.
	ErrFailed = errors.New("cache: the origin failed")
	// ErrOverloaded: too much waits already. Ask again a little later, or another peer.
	ErrOverloaded = errors.New("cache: too many requests wait")
	// ErrTooLarge: a key or a value is larger than [Config.MaxKey] or [Config.MaxValue].
	ErrTooLarge = errors.New("cache: too large")
	// ErrBadKey: the key is empty.
	ErrBadKey = errors.New("cache: a key must not be empty")
	// ErrClosed: the peer has stopped, or is about to.
	ErrClosed = errors.New("cache: the peer has stopped")
	// ErrNotMember: this peer is not, or not yet, a member of the cluster.
	ErrNotMember = errors.New("cache: this peer is not a member")
	// ErrPassive: this peer has no origin, and no copy that will do. Another peer fetches.
	ErrPassive = errors.New("cache: this peer is passive and has no such copy")
	// ErrBroken: this peer cannot do its part, because of its storage or its clock.
	ErrBroken = errors.New("cache: this peer cannot fetch")
	// ErrOriginRuns: the origin has not returned, although its context has ended.
	ErrOriginRuns = errors.New("cache: the origin has not returned although it was told to")
)

// Causes of the end of an origin's context.
var (
	errTrustEnded = errors.New("cache: the fetch must stop: a majority of the peers no longer promises that no other peer fetches")
	errDeadline   = errors.New("cache: the fetch must stop: the origin has taken longer than it may")
	errStopping   = errors.New("cache: the fetch must stop: the peer stops")
)

// Failure is what is known of a fetch that failed, on this peer or another. It
// is [ErrFailed], and [ErrNotFound] when the origin said so.
type Failure struct {
	Text       string        // the origin's error, at most 256 bytes
	RetryAfter time.Duration // when the origin may be asked again
}

// Error implements error. The text may begin with this package's prefix, and then says which error it was.
func (f *Failure) Error() string {
	if f.notFound() {
		return f.Text
	}
	return ErrFailed.Error() + ": " + strings.TrimPrefix(f.Text, "cache: ")
}

// Is implements errors.Is.
func (f *Failure) Is(target error) bool {
	return target == ErrFailed || target == ErrNotFound && f.notFound()
}

func (f *Failure) notFound() bool { return strings.HasPrefix(f.Text, ErrNotFound.Error()) }

// maxText bounds the text of a failure, which every peer keeps.
const maxText = 256

// failureText is what peers are told of an origin's error. A missing key stays
// recognisable: its text starts with that of [ErrNotFound].
func failureText(err error) string {
	text, missing := err.Error(), ErrNotFound.Error()
	if errors.Is(err, ErrNotFound) && !strings.HasPrefix(text, missing) {
		// Said once: an error that wraps ErrNotFound has that text somewhere behind its own.
		text = missing + ": " + strings.TrimSuffix(strings.Replace(text, missing+": ", "", 1), ": "+missing)
	}
	text = strings.ToValidUTF8(text, "�")
	if len(text) > maxText {
		cut := maxText
		for !utf8.RuneStart(text[cut]) {
			cut--
		}
		text = text[:cut]
	}
	if text == "" {
		return "an error without a text"
	}
	return text
}
