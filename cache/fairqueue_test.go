package cache

import (
	"fmt"
	"testing"

	"github.com/understudy-ha/understudy/cache/protocol"
)

func TestTurns(t *testing.T) {
	lined := newFairQueue()
	add := func(client any, key string) *call {
		c := &call{StartFetch: protocol.StartFetch{Key: key}, client: client}
		lined.add(c)
		return c
	}
	for i := range 1000 {
		add("many", fmt.Sprint("many ", i))
	}
	blocked := add("few", "blocked")
	add("few", "few")
	lined.remove(add("few", "ended"))
	lined.remove(add("gone", "ended"))
	lined.remove(&call{client: "many"})
	add(nil, "local")
	mayStart := func(c *call) bool { return c.Key != blocked.Key }
	var got []string
	for range 5 {
		got = append(got, lined.next(mayStart).Key)
	}
	if want := "[many 0 few local many 1 many 2]"; fmt.Sprint(got) != want {
		t.Errorf("started %v, want %v", got, want)
	}
	for range 997 {
		lined.next(mayStart)
	}
	if c := lined.next(mayStart); c != nil {
		t.Errorf("started %q, which may not start", c.Key)
	}
	if c := lined.next(func(*call) bool { return true }); c != blocked {
		t.Errorf("started %v, want the call that was blocked", c)
	}
	if c := lined.next(mayStart); c != nil || len(lined.order) != 0 || len(lined.calls) != 0 {
		t.Errorf("%v, and %d clients are remembered", c, len(lined.order))
	}
}
