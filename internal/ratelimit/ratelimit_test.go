package ratelimit_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/internal/ratelimit"
)

// TestTake steps the clock of a limiter whose buckets get 2 a second and hold 3.
func TestTake(t *testing.T) {
	now := time.Unix(1000, 0)
	l := ratelimit.New[string](2)
	take := func(key string) (time.Duration, int) { return l.Take(key, 2, 3, now) }
	expect := func(key string, want int) {
		t.Helper()
		for n := 0; ; n++ {
			empty := l.IsEmpty(key, 2, 3, now)
			wait, _ := take(key)
			if empty != (wait > 0) {
				t.Errorf("%s after %d: empty is %v, and the next waits %v", key, n, empty, wait)
			}
			if wait > 0 {
				if n != want {
					t.Errorf("%s: %d were taken, want %d", key, n, want)
				}
				return
			}
		}
	}
	expect("one", 3)
	if wait, denied := take("one"); wait != 500*time.Millisecond || denied != 2 {
		t.Errorf("again in %v after %d denials, want 500ms after 2", wait, denied)
	}
	expect("other", 3)
	now = now.Add(500 * time.Millisecond)
	expect("one", 1)
	now = now.Add(time.Hour)
	expect("one", 3)
	now = now.Add(-time.Hour) // a clock that goes back gives nothing, and takes nothing
	expect("one", 0)
	expect("third", 3) // in the place of the one that was asked for longest ago
	expect("one", 0)
	expect("other", 3) // it was forgotten
}

func TestNetwork(t *testing.T) {
	for addr, want := range map[string]string{"192.0.2.1": "192.0.2.1/32", "2001:db8::1": "2001:db8::/64", "2001:db8:0:1::2": "2001:db8:0:1::/64"} {
		if got := ratelimit.Network(netip.MustParseAddr(addr)); got.String() != want {
			t.Errorf("%s is of %v, want %s", addr, got, want)
		}
	}
	if got := ratelimit.Network(netip.Addr{}); got.IsValid() {
		t.Errorf("no address is of %v", got)
	}
}
