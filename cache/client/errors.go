package client

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/understudy-ha/understudy/cache/wire"
)

// How a Get ends without a value.
var (
	// ErrFailed: the origin failed, and no copy that would do is there.
	ErrFailed = errors.New("client: the origin failed")
	// ErrNotFound: the origin has no such key.
	ErrNotFound = errors.New("client: no such key")
	// ErrPartitioned: every server that is connected is cut off from the majority, and none
	// has a copy that would do.
	ErrPartitioned = errors.New("client: the servers are cut off from the majority")
	// ErrOverloaded: every server that is connected is at one of its bounds, or has
	// as many requests of this client as may wait.
	ErrOverloaded = errors.New("client: overloaded")
	// ErrTooLarge: the key is longer than is allowed.
	ErrTooLarge = errors.New("client: the key is too long")
	// ErrBadRequest: the key is empty, or the server did not understand the request.
	ErrBadRequest = errors.New("client: bad request")
	// ErrTimeout: the time was over before any server had a value. It does not say that
	// none is fetched.
	ErrTimeout = errors.New("client: timeout")
	// ErrClosed: the client was closed.
	ErrClosed = errors.New("client: closed")
)

// Refusal is what a server said instead of a value. It is one of the sentinel errors
// above, by errors.Is.
type Refusal struct {
	Server     string // its address
	Code       wire.Code
	Text       string        // for people; may be empty
	RetryAfter time.Duration // before which asking again is of no use; 0: not said
}

// Error says which server refused, and why.
func (r *Refusal) Error() string {
	s := fmt.Sprintf("%v, says %s", r.Unwrap(), r.Server)
	if r.Text != "" {
		s += fmt.Sprintf(": %q", r.Text)
	}
	if r.RetryAfter > 0 {
		s += fmt.Sprintf("; ask again in %v", r.RetryAfter)
	}
	return s
}

// Unwrap is the sentinel. What a newer server may say and this client does not know is
// a failure.
func (r *Refusal) Unwrap() error {
	switch r.Code {
	case wire.CodeNotFound:
		return ErrNotFound
	case wire.CodePartitioned:
		return ErrPartitioned
	case wire.CodeOverloaded:
		return ErrOverloaded
	case wire.CodeTooLarge:
		return ErrTooLarge
	case wire.CodeBadRequest:
		return ErrBadRequest
	}
	return ErrFailed
}

// allowsOtherServer reports whether another server may say something better.
func (r *Refusal) allowsOtherServer() bool {
	return r.Code == wire.CodePartitioned || r.Code == wire.CodeOverloaded
}

// notes are what the servers that were asked said, for the text of an error.
type notes []note

type note struct {
	server, said string
	times        int
}

// add notes the last thing that a server said.
func (n *notes) add(server, said string) {
	for i := range *n {
		if (*n)[i].server == server {
			(*n)[i].said = said
			(*n)[i].times++
			return
		}
	}
	if len(*n) < maxServers {
		*n = append(*n, note{server, said, 1})
	}
}

func (n notes) String() string {
	var b strings.Builder
	for i, e := range n {
		if i > 0 {
			b.WriteString("; ")
		}
		fmt.Fprintf(&b, "%s (asked %d×) %s", e.server, e.times, e.said)
	}
	return b.String()
}
