package lru_test

import (
	"fmt"
	"testing"

	"github.com/understudy-ha/understudy/internal/lru"
)

func TestLRU(t *testing.T) {
	l := lru.New[int, string](2)
	add := func(k int) { l.GetOrAdd(k, func() string { return fmt.Sprint(k) }) }
	add(1)
	add(2)
	l.Get(1)
	add(3)
	if _, ok := l.Get(2); ok {
		t.Error("the one that was asked for longest ago is still there")
	}
	for _, k := range []int{1, 3} {
		if v, ok := l.Get(k); !ok || v != fmt.Sprint(k) {
			t.Errorf("%d is %q, %t", k, v, ok)
		}
	}
	l.Drop(1)
	if _, ok := l.Get(1); ok || l.Len() != 1 {
		t.Error("dropped and still there")
	}
}
