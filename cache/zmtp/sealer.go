package zmtp

import (
	"encoding/binary"
	"fmt"
	"slices"

	"golang.org/x/crypto/nacl/box"
)

// messagePrefix starts the body of every frame that is sealed. Frames of CURVE are
// commands in the specification; libzmq sends and wants them without the flag that says so.
const messagePrefix = "\x07MESSAGE"

// sealOverhead is what a box adds to a frame: prefix, nonce, proof, flags.
const sealOverhead = len(messagePrefix) + 8 + box.Overhead + 1

// Flags inside of a box: libzmq's bit for a command is not that of a plain frame.
const sealedCommand = 0x02

// sealer seals what one side sends and opens what the other has sealed. The two
// directions may be used at the same time, each by one goroutine.
type sealer struct {
	key       [32]byte
	out, in   [24]byte // the nonces: a prefix, and a number that only grows
	sent, got uint64
	text      []byte
}

// newSealer makes the sealer of one side; sent and got are the numbers of the last nonces
// that were used in the handshake.
func newSealer(server bool, key *[32]byte, sent, got uint64) *sealer {
	s := &sealer{key: *key, sent: sent, got: got}
	copy(s.out[:], "CurveZMQMESSAGEC")
	copy(s.in[:], "CurveZMQMESSAGES")
	if server {
		s.out, s.in = s.in, s.out
	}
	return s
}

// seal appends the body of a sealed frame.
func (s *sealer) seal(dst []byte, flags byte, body []byte) []byte {
	if flags&flagCommand != 0 {
		flags = sealedCommand
	}
	s.sent++
	binary.BigEndian.PutUint64(s.out[16:], s.sent)
	dst = append(dst, messagePrefix...)
	dst = append(dst, s.out[16:]...)
	s.text = append(append(s.text[:0], flags), body...)
	dst = slices.Grow(dst, len(s.text)+box.Overhead)
	dst = box.SealAfterPrecomputation(dst, s.text, &s.out, &s.key)
	if cap(s.text) > keptBuffer {
		s.text = nil
	}
	return dst
}

// open appends the flags, translated, and the body of a sealed frame.
func (s *sealer) open(dst, sealed []byte) ([]byte, error) {
	if len(sealed) < sealOverhead || string(sealed[:len(messagePrefix)]) != messagePrefix {
		return dst, fmt.Errorf("%w: a frame of %d bytes is not a CURVE message", ErrProtocol, len(sealed))
	}
	nonce := sealed[len(messagePrefix):][:8]
	n := binary.BigEndian.Uint64(nonce)
	if n <= s.got {
		return dst, fmt.Errorf("%w: a CURVE message was repeated: its nonce is %d after %d", ErrProtocol, n, s.got)
	}
	copy(s.in[16:], nonce)
	at := len(dst)
	dst = slices.Grow(dst, len(sealed))
	dst, ok := box.OpenAfterPrecomputation(dst, sealed[len(messagePrefix)+8:], &s.in, &s.key)
	if !ok {
		return dst, fmt.Errorf("%w: a CURVE message does not open: it was changed, or sealed with another key", ErrProtocol)
	}
	s.got = n
	if dst[at]&sealedCommand != 0 {
		dst[at] = dst[at]&^sealedCommand | flagCommand
	}
	return dst, nil
}
