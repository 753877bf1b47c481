package dispatch

import (
	"fmt"
	"testing"
	"time"
)

// What is remembered of lost messages is bounded, and keys that went on elsewhere do not keep others out for ever.
func TestLossesAreForgotten(t *testing.T) {
	l := counters{}
	lost := func(now time.Duration, key string) int {
		return l.count(now, Assignment{Message: Message{Key: key}, Seq: 1})
	}
	for i := range maxRemembered {
		lost(0, fmt.Sprint(i))
	}
	if n := lost(0, "0"); n != 2 {
		t.Errorf("lost %d times, want 2", n)
	}
	lost(time.Minute, "new")
	if n := lost(time.Minute, "new"); n != 1 || len(l) > maxRemembered {
		t.Errorf("%d are remembered, and one beyond was lost %d times", len(l), n)
	}
	later := rememberedFor + time.Second
	lost(later, "new")
	if n := lost(later, "new"); n != 2 {
		t.Errorf("after the others were last lost long ago: lost %d times, want 2", n)
	}
}
