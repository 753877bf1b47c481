//go:build linux

package fault_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/fault"
)

// givenSeed is that of what is random: UNDERSTUDY_SEED, or one drawn.
func givenSeed() uint64 {
	if given, err := strconv.ParseUint(os.Getenv("UNDERSTUDY_SEED"), 10, 64); err == nil {
		return given
	}
	return rand.Uint64N(1 << 32)
}

// cacheChaos kills, pauses, stops and starts peers at random, while clients ask and
// remove.
func cacheChaos(t *testing.T, programs fault.Programs) {
	seed := givenSeed()
	length := 10 * time.Second
	if prove {
		length = 3 * time.Minute
	}
	for _, c := range []struct {
		n    int
		keep bool
	}{{3, false}, {3, true}, {5, true}} {
		if c.n > 3 && !prove {
			continue
		}
		t.Run(fmt.Sprintf("%d peers, kept %t", c.n, c.keep), func(t *testing.T) {
			t.Parallel()
			t.Logf("UNDERSTUDY_SEED=%d", seed)
			peers := fault.NewPeers(t, fault.PeersConfig{Programs: programs, Origin: fault.NewOrigin(t, "127.0.0.1:0"), N: c.n, Keep: c.keep,
				Announce: time.Second, TTL: time.Second, Fetch: 5 * time.Second})
			// One has a program for its source, which must die with it.
			peers.Named("p2").Options = fault.Curl()
			load := &fault.CacheLoad{Peers: peers, Seed: seed}
			if c.keep {
				// Who forgets that a key was removed forgets in which term, and such terms
				// are ahead of the clock.
				load.Removals = 300 * time.Millisecond
			}
			chaos := fault.CacheChaos{Peers: peers, Load: load, Seed: seed, For: length}
			did, v := chaos.Run()
			chaosJudged(t, peers, did, v)
		})
	}
}

func chaosJudged(t *testing.T, peers *fault.Peers, did map[string]int, v fault.CacheVerdict) {
	t.Helper()
	t.Logf("did %v", did)
	tried(t, did)
	t.Logf("%d calls of the source, %d answers, %d refusals, the slowest answer took %v, %d overlaps apart", v.Calls, v.Answered, v.Refused, v.Slowest, v.Apart)
	for _, violation := range v.Violations {
		t.Errorf("VIOLATION %s", violation)
	}
	if paused := did["paused"] + peers.Origin.Standstills(); v.Apart > 8*paused {
		t.Errorf("%d overlaps with peers that were paused, with the whole machine or alone, which happened %d times", v.Apart, paused)
	}
	if v.Answered < 50 || v.Calls < 10 {
		t.Error("nothing was tried")
	}
}
