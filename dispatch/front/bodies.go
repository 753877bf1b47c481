package front

import (
	"io"
	"sync/atomic"
)

const (
	// bodyMemory is how much memory the bodies that a front holds may take together: those of clients that send slowly, and
	// those of clients that wait.
	bodyMemory = 128 << 20
	// bodyCost is how many bytes of memory a byte of a body takes: in the reader's buffer, which grows, as the batches or IDs
	// of it, and as what the store is given.
	bodyCost = 4
	// smallBody is never refused: a few hostile senders of long bodies must not shut out everyone.
	smallBody = 64 << 10
)

// countedBody is a body whose bytes count, as they arrive, until it is released.
type countedBody struct {
	io.ReadCloser
	held *atomic.Int64
	n    int64
}

// Read implements [io.Reader].
func (b *countedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.n += int64(n)
	if b.held.Add(bodyCost*int64(n)) > bodyMemory && b.n > smallBody {
		return n, faultf(faultBusy, "other requests take all the memory for bodies; nothing was done, try again later")
	}
	return n, err
}

func (b *countedBody) release() { b.held.Add(-bodyCost * b.n) }
