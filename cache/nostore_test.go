package cache

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
)

// A value that may not be kept answers every request, is fetched for each peer that asks, and leaves no copy; one that
// was kept before is gone everywhere.
func TestNoStore(t *testing.T) {
	var private atomic.Bool
	var calls atomic.Int64
	c := newCluster(t, 3, func(context.Context, Fetch) (Value, error) {
		return Value{Data: fmt.Appendf(nil, "value %d", calls.Add(1)), NoStore: private.Load()}, nil
	}, nil).settled()
	c.get(0, "key", "value 1")
	eventually(t, "every peer has a copy", func() bool { return c.copies("key") == 3 })
	private.Store(true)
	for i := range 3 {
		item, err := c.peers[i].Get(c.ctx(), "key", GetOptions{Refresh: i == 0})
		if want := fmt.Sprintf("value %d", i+2); err != nil || string(item.Value) != want {
			t.Errorf("peer %d: %q, %v, want %q", i, item.Value, err, want)
		}
		if i == 0 {
			eventually(t, "no peer has a copy", func() bool { return c.copies("key") == 0 })
		}
	}
	if n := c.copies("key"); n != 0 {
		t.Errorf("%d peers keep a copy", n)
	}
}

func (c *cluster) copies(key string) (n int) {
	for _, p := range c.peers {
		if _, ok := p.Peek(key); ok {
			n++
		}
	}
	return n
}
