package monitor

import (
	"fmt"
	"runtime"
	"testing"
	"time"
)

// heap is what is in use once the garbage is gone.
func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func TestIDsAreSmall(t *testing.T) {
	const sources = 1_000_000
	before := heap()
	k := newIDCache(maxIDs)
	for i := range sources {
		k.remember(0, SourceRef{Check: "Heartbeat_edgeRouter", Source: fmt.Sprintf("source-%07d", i)}, ResolvedSource{ID: int64(i + 1)})
	}
	after := heap()
	each := float64(after-before) / sources
	t.Logf("%.1f bytes for each source", each)
	if each > 60 {
		t.Errorf("%.1f bytes for each source; 60 at most", each)
	}
	for i := 0; i < sources; i += 97 {
		if f := k.find(0, "Heartbeat_edgeRouter", fmt.Sprintf("source-%07d", i)); f.id != int64(i+1) {
			t.Fatalf("source %d is known as %d", i, f.id)
		}
	}
}

func TestIDsForget(t *testing.T) {
	k := newIDCache(20)
	ref := func(i int) SourceRef { return SourceRef{Check: "E", Source: fmt.Sprint(i)} }
	id := func(i int) int64 { return k.find(0, "E", fmt.Sprint(i)).id }
	for i := range 100 {
		k.remember(0, ref(i), ResolvedSource{ID: int64(i + 1)})
		if id(0) != 1 { // asked for all the time
			t.Fatalf("forgotten at %d", i)
		}
		if k.size() > 20 {
			t.Fatalf("%d ids", k.size())
		}
	}
	if id(50) != 0 || id(99) != 100 {
		t.Errorf("50: %d, 99: %d", id(50), id(99))
	}
	k.drop(k.find(0, "E", "99").key)
	if id(99) != 0 {
		t.Error("dropped, and known")
	}
	if a, b := k.find(0, "a", "b"), k.find(0, "b", "a"); a.key == b.key {
		t.Error("names that are exchanged are the same")
	}
	if a, b := k.find(0, "ab", "c"), k.find(0, "a", "bc"); a.key == b.key {
		t.Error("names that are cut elsewhere are the same")
	}
}

func TestIDsUnknown(t *testing.T) {
	k := newIDCache(20)
	for i := range 2 * maxUnknown {
		k.remember(time.Second, SourceRef{Check: fmt.Sprint(i), Source: "a"}, ResolvedSource{})
	}
	if len(k.unknown) != maxUnknown || len(k.checks) != 0 {
		t.Errorf("%d unknown names and %d events are remembered", len(k.unknown), len(k.checks))
	}
	if k.find(1900*time.Millisecond, "7", "a").unknown != Unknown || k.find(2*time.Second, "7", "a").unknown != 0 {
		t.Error("not for a second")
	}
}
