//go:build linux

package fault_test

import (
	"os"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/fault"
)

// TestSoak has all parts at work at once, in three servers, under random faults, for as long as UNDERSTUDY_SOAK says ("make soak": two hours). What the
// server that is never killed takes of the machine has to be level.
func TestSoak(t *testing.T) {
	length, err := time.ParseDuration(os.Getenv("UNDERSTUDY_SOAK"))
	if err != nil {
		t.Skip("it takes hours: set UNDERSTUDY_SOAK to a duration")
	}
	seed := givenSeed()
	t.Logf("UNDERSTUDY_SEED=%d", seed)
	s := fault.NewSoak(t, fault.Build(t), fault.Postgres(t, false), seed)
	users := &fault.SoakUsers{Soak: s, Seed: seed}
	chaos := fault.SoakChaos{Users: users, Seed: seed, For: length}
	did, uses := chaos.Run()
	t.Logf("did %v", did)
	tried(t, did)
	users.Judge()
	for i := 0; i < len(uses); i += max(1, len(uses)/12) {
		t.Logf("after %v the witness took %v", uses[i].At.Sub(uses[0].At).Round(time.Second), uses[i])
	}
	if err := fault.Level(uses); err != nil {
		t.Errorf("the server that was never killed is not level: %v", err)
	}
	if s.Servers[0].Lives != 1 {
		t.Error("the witness was started again")
	}
}

// TestLevel shows leaks to the judge of what a process takes.
func TestLevel(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		takes func(i int) fault.Uses
		leaks bool
	}{
		{"level, with waves", func(i int) fault.Uses { return fault.Uses{KiB: 60000 + i%7*2000, Descriptors: 60 + i%5, Tasks: 12} }, false},
		{"fills at first", func(i int) fault.Uses { return fault.Uses{KiB: min(60000, 20000+i*2000), Descriptors: 60, Tasks: 12} }, false},
		{"leaks memory", func(i int) fault.Uses { return fault.Uses{KiB: 60000 + i*400, Descriptors: 60, Tasks: 12} }, true},
		{"leaks a descriptor now and then", func(i int) fault.Uses { return fault.Uses{KiB: 60000, Descriptors: 60 + i/4, Tasks: 12} }, true},
		{"leaks threads", func(i int) fault.Uses { return fault.Uses{KiB: 60000, Descriptors: 60, Tasks: 12 + i/4} }, true},
	} {
		var uses []fault.Uses
		for i := range 100 {
			uses = append(uses, c.takes(i))
		}
		if err := fault.Level(uses); (err != nil) != c.leaks {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	if fault.Level(make([]fault.Uses, 3)) == nil {
		t.Error("three samples are enough")
	}
}
