package wire

import (
	"errors"
	"fmt"

	"github.com/understudy-ha/understudy/cache/protocol"
)

// What is wrong with a message.
var (
	// ErrMalformed is that a frame is missing or is not what it must be.
	ErrMalformed = errors.New("wire: malformed message")
	// ErrTarget is that a message is for another peer. Subscriptions are by prefix, so
	// that it happens where one url starts with another.
	ErrTarget = errors.New("wire: message for another peer")
	// ErrAuth is that a message has no MAC, a wrong one, or one where no secret is set.
	ErrAuth = errors.New("wire: message not authenticated")
	// ErrUnknown is that a message has a type that nobody has defined yet.
	ErrUnknown = errors.New("wire: unknown type of message")
)

var (
	errRange = fmt.Errorf("%w: a number is above 2^53-1", ErrMalformed)
	errEmpty = fmt.Errorf("%w: a number is empty", ErrMalformed)
)

// appendUint appends a number. One that the protocol cannot carry is brought to
// the nearest that it can: it is a mistake, but no reason to stop.
func appendUint(dst []byte, n int64) []byte {
	n = min(max(n, 0), protocol.MaxWireNumber)
	dst = append(dst, byte(n))
	for n >>= 8; n > 0; n >>= 8 {
		dst = append(dst, byte(n))
	}
	return dst
}

// parseUint reads a number; an empty frame is [errEmpty].
func parseUint(b []byte) (int64, error) {
	if len(b) == 0 {
		return 0, errEmpty
	}
	var n uint64
	for i, digit := range b {
		if digit == 0 {
			continue
		}
		if i > 7 {
			return 0, errRange
		}
		n |= uint64(digit) << (8 * i)
	}
	if n > protocol.MaxWireNumber {
		return 0, errRange
	}
	return int64(n), nil
}
