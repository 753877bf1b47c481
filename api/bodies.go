package api

import (
	"io"
	"sync/atomic"
)

const (
	// maxBodyMemory is how much memory the bodies that are being handled may take together. Heartbeats have as much of
	// their own (package intake).
	maxBodyMemory = 128 << 20
	// bodyCost is how many bytes of memory a byte of a body takes: in the decoder's buffer, which grows by doubling, as the
	// value that was decoded, and as what the store is given.
	bodyCost = 4
)

// bodyMemory counts what has arrived of the bodies that are being handled; not what was announced, so that slow senders
// of large bodies shut out nobody.
type bodyMemory struct{ held atomic.Int64 }

// countedBody is a body whose bytes count until it is released.
type countedBody struct {
	io.ReadCloser
	memory *bodyMemory
	n      int64
}

func (m *bodyMemory) count(body io.ReadCloser) *countedBody {
	return &countedBody{ReadCloser: body, memory: m}
}

// Read implements [io.Reader]. Bodies of up to maxBody count, but are never refused.
func (b *countedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.n += int64(n)
	if b.memory.held.Add(bodyCost*int64(n)) > maxBodyMemory && b.n > maxBody {
		return n, errBusy
	}
	return n, err
}

func (b *countedBody) release() { b.memory.held.Add(-bodyCost * b.n) }
