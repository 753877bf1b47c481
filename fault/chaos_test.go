//go:build linux

package fault_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/fault"
)

// chaosRuns are random troubles: a short run usually, several long ones under
// UNDERSTUDY_PROVE=1, from UNDERSTUDY_SEED if that is set.
func chaosRuns() []scenario {
	seed := givenSeed()
	runs, length := 1, 12*time.Second
	if prove {
		runs, length = 5, 3*time.Minute
	}
	var scenarios []scenario
	for run := range uint64(runs) {
		scenarios = append(scenarios, scenario{
			name: fmt.Sprintf("chaos %d", run+1), server: true, steps: true,
			outage: time.Hour, // its own waits are the bound
			run: func(t *testing.T, c *fault.Cluster) {
				t.Logf("UNDERSTUDY_SEED=%d", seed+run)
				chaos := fault.Chaos{Cluster: c, Seed: seed + run, For: length}
				did := chaos.Run()
				t.Logf("did: %v", did)
				tried(t, did)
			},
		})
	}
	return scenarios
}
