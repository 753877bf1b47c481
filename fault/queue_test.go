//go:build linux

package fault_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/claim"
	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/fault"
	"github.com/understudy-ha/understudy/internal/testkit/realserver"
)

// comparing is the receiver that refuses older terms.
const comparing = "recognises and compares"

// receivers are the targets that queues are tried with. On each store, some are
// tried in every run, and all under UNDERSTUDY_PROVE=1.
var receivers = []struct {
	name, kind string
	semantics  dispatch.Semantics
	always     string // the stores
}{
	{comparing, "webhook", dispatch.Semantics{Resend: true, Deduplicates: true, HasStatus: true, Forgets: true}, "postgres"},
	{"forgets", "webhook", dispatch.Semantics{HasStatus: true, Forgets: true}, ""},
	{"remembers", "webhook", dispatch.Semantics{HasStatus: true}, ""},
	{"cannot be asked", "webhook", dispatch.Semantics{Forgets: true}, "sqlite"},
	{"recognises", "webhook", dispatch.Semantics{Resend: true, Deduplicates: true, Forgets: true}, ""},
	{"sawtooth", "sawtooth", dispatch.Semantics{}, ""},
	{"scabbard", "scabbard", dispatch.Semantics{}, ""},
}

// TestFaultQueue makes trouble for instances that deliver a queue, and judges.
func TestFaultQueue(t *testing.T) {
	seed, length := givenSeed(), 10*time.Second
	if prove {
		length = time.Minute
	}
	programs := fault.Build(t)
	for _, store := range []string{"sqlite", "postgres"} {
		for _, r := range receivers {
			if !prove && !strings.Contains(r.always, store) {
				continue
			}
			// One after the other: each is a small cluster, and what it waits for comes
			// late on a machine that runs several.
			t.Run(store+"/"+r.name, func(t *testing.T) {
				t.Logf("UNDERSTUDY_SEED=%d", seed)
				slow := 1500 * time.Millisecond
				if !r.semantics.Deduplicates && !r.semantics.Forgets {
					slow = 300 * time.Millisecond // what it says it does not have it must not do after the deadline
				}
				target := fault.NewQueueTarget(t, r.kind, r.semantics, seed, slow)
				if r.name == comparing {
					target.CompareTerms()
				}
				cfg := fault.FleetConfig{Programs: programs, Database: database(t, store), Seed: seed, Target: target}
				if r.kind == "scabbard" {
					// All receipts have come when none has come for a second.
					cfg.Submit, cfg.Windows = 2*time.Second, claim.Windows{First: 1500 * time.Millisecond, Second: 6 * time.Second}
				}
				disturb(t, cfg, length)
			})
		}
	}
}

func database(t *testing.T, store string) fault.Database {
	switch store {
	case "sqlite":
		return fault.SQLite(t)
	case "redis":
		return fault.Redis(t, false)
	}
	return fault.Postgres(t, false)
}

func disturb(t *testing.T, cfg fault.FleetConfig, length time.Duration) {
	fleet := fault.NewFleet(t, cfg)
	longest := 2 * fleet.Windows.Second
	if cfg.Target.Kind != "webhook" {
		longest = 2 * fleet.Windows.First // its requests bear no term: nobody could tell who is past the second window
	}
	chaos := fault.QueueChaos{Fleet: fleet, Workers: 4, Seed: cfg.Seed, For: length, Longest: longest,
		Feed: &fault.Feed{Database: cfg.Database, Target: cfg.Target, Users: 3, Keys: 12, Every: 100 * time.Millisecond, Seed: cfg.Seed}}
	did, v := chaos.Run()
	t.Logf("did %v", did)
	tried(t, did)
	t.Logf("%d batches %v, %d requests, %d batches came more than once, %d requests apart, at most %d attempts",
		v.Messages, v.States, v.Arrivals, v.Again, v.Apart, v.Attempts)
	for _, violation := range v.Violations {
		t.Errorf("VIOLATION %s", violation)
	}
	if v.Messages < 20 {
		t.Errorf("only %d messages", v.Messages)
	}
}

// TestFaultQueueCatches has instances that believe what their target is not: that a
// batch may be sent again whatever became of it. The judge must see it.
func TestFaultQueueCatches(t *testing.T) {
	t.Parallel()
	const enough = 150
	target := fault.NewQueueTarget(t, "webhook", dispatch.Semantics{Forgets: true}, 1, 1500*time.Millisecond)
	fleet := fault.NewFleet(t, fault.FleetConfig{Programs: fault.Build(t), Database: fault.SQLite(t), Target: target, Options: []string{"-resend"}})
	fleet.Start("a", "")
	fleet.Start("b", "")
	target.Misbehave(true)
	feeding, stop := context.WithCancel(t.Context())
	defer stop()
	feed := fault.Feed{Database: fleet.Database, Target: target, Users: 3, Keys: 12, Every: 50 * time.Millisecond, Seed: 1}
	fed := make(chan []fault.Sent, 1)
	go func() { fed <- feed.Run(feeding) }()
	realserver.Eventually(t, 3*time.Minute, "the target is asked often enough to be wronged", func() error {
		if n := len(target.Arrivals()); n < enough {
			return fmt.Errorf("%d times so far", n)
		}
		return nil
	})
	stop()
	sent := <-fed
	target.Misbehave(false)
	fleet.Settled(time.Minute)
	fleet.Stop(time.Minute)
	v := fault.JudgeQueue(fault.QueueEvidence{Sent: sent, Records: fleet.Records(), Arrivals: target.Arrivals(),
		Target: target.Semantics, Second: fleet.Windows.Second})
	broken := map[fault.Rule]int{}
	for _, violation := range v.Violations {
		broken[violation.Rule]++
	}
	if t.Logf("of %d arrivals it sees %v", len(target.Arrivals()), broken); broken[fault.Blind] == 0 || broken[fault.Twice] == 0 {
		t.Errorf("the judge sees %v", v.Violations)
	}
}
