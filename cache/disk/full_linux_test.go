package disk

import (
	"fmt"
	"strings"
	"testing"

	"github.com/understudy-ha/understudy/cache"
	"github.com/understudy-ha/understudy/internal/testkit/realserver"
)

// TestDiskFull fills a real disk: every call either is applied or fails whole,
// what was acknowledged stays, also for the next process, and with room again all
// goes on.
func TestDiskFull(t *testing.T) {
	dir := realserver.SmallDisk(t, "16m")
	s := open(t, dir)
	saved, ceiling, failures := -1, int64(0), 0
	try := func(i int) {
		value := strings.Repeat("v", 10_000)
		err := s.Save(t.Context(), []cache.Record{record(fmt.Sprint("a", i), value), record(fmt.Sprint("b", i), value)})
		if err == nil {
			saved = i
		}
		if raised := s.Raise(t.Context(), int64(i)); raised == nil {
			ceiling = int64(i)
		} else if err != nil {
			failures++
			if !strings.Contains(err.Error(), "free space") && !strings.Contains(err.Error(), "full") {
				t.Errorf("a full disk: %v", err)
			}
		}
	}
	i := 0
	for round := range 4 {
		free := realserver.FillDisk(t, dir)
		for range 100 {
			i++
			try(i)
		}
		left := t.TempDir() // what a process that is killed on the full disk leaves
		if err := copyFiles(dir, left); err != nil {
			t.Fatal(err)
		}
		for what, from := range map[string]*Storage{"here": s, "after a kill": open(t, left)} {
			found, state := load(t, from)
			if state.Ceiling < ceiling {
				t.Fatalf("round %d, %s: the ceiling %d is gone: %d", round, what, ceiling, state.Ceiling)
			}
			if _, there := found[fmt.Sprint("a", saved)]; saved >= 0 && !there {
				t.Fatalf("round %d, %s: save %d is gone", round, what, saved)
			}
			for j := range i + 1 {
				if found[fmt.Sprint("a", j)] != found[fmt.Sprint("b", j)] {
					t.Fatalf("round %d, %s: save %d is half there", round, what, j)
				}
			}
		}
		free()
		i++
		if try(i); saved != i || ceiling != int64(i) {
			t.Fatalf("round %d: with room again, saved %d and raised to %d; want %d", round, saved, ceiling, i)
		}
	}
	t.Logf("%d saves failed", failures)
	if failures == 0 {
		t.Error("the disk was never full")
	}
}
