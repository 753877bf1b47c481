//go:build linux

package fault_test

import (
	"fmt"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/fault"
	"github.com/understudy-ha/understudy/internal/testkit/realserver"
)

// TestFaultQueueTakeover measures how long the keys of an instance that ends wait
// for the next one. The figures are told; only what would be a hang fails. The
// simulation holds the bounds.
func TestFaultQueueTakeover(t *testing.T) {
	t.Parallel()
	asked := dispatch.Semantics{Resend: true, Deduplicates: true, HasStatus: true}
	rounds := 1
	if prove {
		rounds = 15
	}
	programs := fault.Build(t)
	for _, store := range []string{"sqlite", "postgres"} {
		for _, c := range []struct {
			name   string
			target dispatch.Semantics
			signal syscall.Signal
		}{
			{"killed", dispatch.Semantics{Forgets: true, Resend: true}, syscall.SIGKILL},
			{"killed, and the target can be asked", asked, syscall.SIGKILL},
			{"stopped", asked, syscall.SIGTERM},
		} {
			t.Run(store+"/"+c.name, func(t *testing.T) {
				t.Parallel()
				var waiting, under []time.Duration
				for range rounds {
					target := fault.NewQueueTarget(t, "webhook", c.target, 1, time.Second)
					fleet := fault.NewFleet(t, fault.FleetConfig{Programs: programs, Database: database(t, store), Target: target})
					a, b := takeover(t, fleet, c.signal)
					waiting, under = append(waiting, a), append(under, b)
				}
				slices.Sort(waiting)
				slices.Sort(under)
				t.Logf("windows 1.5 s and 4 s: keys that wait: median %v, at most %v; the one under way: median %v, at most %v",
					waiting[rounds/2].Round(time.Millisecond), waiting[rounds-1].Round(time.Millisecond),
					under[rounds/2].Round(time.Millisecond), under[rounds-1].Round(time.Millisecond))
			})
		}
	}
}

// takeover ends an instance that hangs in the middle of a submission, and returns
// how long it takes the next one to send what waited, and what was under way.
func takeover(t *testing.T, fleet *fault.Fleet, signal syscall.Signal) (waiting, under time.Duration) {
	const keys = 6
	arrived, release := make(chan struct{}), make(chan struct{})
	defer sync.OnceFunc(func() { close(release) })()
	fleet.Target.OnArrival("a", func() { close(arrived); <-release })
	a := fleet.Start("a", "", "-concurrency", "1", "-grace", "1ms")
	for i := range keys {
		fleet.Add(i, fmt.Sprint("b", i))
	}
	<-arrived
	fleet.Holds("a", keys)
	fleet.Start("b", "")
	fleet.Holds("b", 0)
	ended := time.Now()
	a.Signal(signal)
	// One of the batches reached the target before, and was not carried out.
	realserver.Eventually(t, time.Minute, "all are sent", func() error {
		var times []time.Duration
		for _, r := range fleet.Target.Arrivals() {
			times = append(times, r.At.Sub(ended))
		}
		if len(times) < keys {
			return fmt.Errorf("%d of %d", len(times), keys)
		}
		slices.Sort(times)
		waiting, under = times[keys-2], times[keys-1]
		return nil
	})
	fleet.Stop(time.Minute)
	return waiting, under
}
