package wire

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
)

// typeFrame is where the type stands in a message of peers.
const typeFrame = 2

// sum is the MAC of a message. The lengths make the frames' borders part of it:
// without them "ab","c" and "a","bc" were the same.
func (c Codec) sum(dst []byte, frames [][]byte) []byte {
	h := hmac.New(sha256.New, c.Secret)
	var size [8]byte
	for i, f := range frames {
		if i == typeFrame {
			f = f[:1]
		}
		binary.BigEndian.PutUint64(size[:], uint64(len(f)))
		h.Write(size[:])
		h.Write(f)
	}
	return h.Sum(dst)
}

// authenticate checks the type frame of a message of at least three frames.
func (c Codec) authenticate(frames [][]byte) error {
	kind := frames[typeFrame]
	const signed = 1 + sha256.Size
	switch {
	case len(kind) != 1 && len(kind) != signed:
		return fmt.Errorf("%w: the type (frame 2) has %d bytes", ErrMalformed, len(kind))
	case len(c.Secret) == 0 && len(kind) == signed:
		return fmt.Errorf("%w: the sender has a secret, this peer has none: give every peer the same", ErrAuth)
	case len(c.Secret) == 0:
		return nil
	case len(kind) == 1:
		return fmt.Errorf("%w: the sender has no secret, this peer has one: give every peer the same", ErrAuth)
	}
	var sum [sha256.Size]byte
	if !hmac.Equal(kind[1:], c.sum(sum[:0], frames)) {
		return fmt.Errorf("%w: the MAC is wrong: give every peer the same secret", ErrAuth)
	}
	return nil
}
