// Package syncbuffer has a buffer that is read while it is written, such as the log of something that runs. It is for tests alone.
package syncbuffer

import (
	"bytes"
	"sync"
)

// Buffer keeps what is written to it. The zero Buffer is empty; all methods may be called at once.
type Buffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements [io.Writer] and does not fail.
func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

// String returns what has been written so far.
func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}
