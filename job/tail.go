package job

import (
	"slices"
	"sync"
)

// tail keeps the end of what is written to it. Writes never fail and never wait.
type tail struct {
	mu    sync.Mutex
	total int64
	last  []byte // up to twice MaxTail
	saved int64  // total, when it was stored last
}

// Write implements [io.Writer].
func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := len(p)
	t.total += int64(n)
	p = p[max(0, n-MaxTail):]
	if len(t.last)+len(p) > 2*MaxTail {
		t.last = append(t.last[:0], t.last[len(t.last)-MaxTail:]...)
	}
	t.last = append(t.last, p...)
	return n, nil
}

// unsaved returns what is to be stored, and whether it has changed since it was.
func (t *tail) unsaved() (Output, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return Output{Total: t.total, Tail: slices.Clone(t.last[max(0, len(t.last)-MaxTail):])}, t.total > t.saved
}

// save notes that the store has what unsaved returned.
func (t *tail) save(o Output) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.saved = o.Total
}
