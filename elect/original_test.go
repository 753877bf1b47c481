package elect_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/understudy-ha/understudy/elect"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/lease/leasetest"
	"github.com/understudy-ha/understudy/store/memory"
)

// The scenarios by which the algorithm that this package grew from was tested,
// with its parameters, and with what it never asserted: that there are not two
// primaries. Its tables were set by hand; here the store is brought there by what
// instances do. Its other scenarios are in tests of other names:
//
//	RunningAsPrimary 1, 2         TestResolve, TestWatch: looking makes nobody primary
//	RunningAsPrimary 3            TestHandOver
//	RunningAsPrimary 4, 5         TestResolve; of package lease TestStoreDown and TestTrust, the boundary
//	RunningAsPrimary 8            TestResolve; of leasetest testIndependent
//	AffinityAsPrimary 1           TestTakeoverAfterDeath
//	AffinityAsPrimary 2, 3, 4     TestWithFollowsAMove
//	AffinityAsPrimary 5           TestWithLosesItsCompanion
//	GetPrimary 1                  TestRunCampaignsAgainAfterALoss
//	GetPrimary 2                  of package lease TestSessionWaits
//	GetPrimary 3                  TestHandOver
//	GetPrimary 4                  TestTakeoverAfterDeath
//	witness 1, 7                  of leasetest testFirstClaim
//	witness 2, 3                  testTakeover
//	witness 4, 5, 9 (two claims)  testSeen
//	witness 6                     testHeldIsShown
//	witness 8, 11                 testHeldIsShown, testFirstClaim
//	witness 9 (a late renewal)    testSessionLapse
//	witness 10                    testIndependent
//	end to end, basic and chaos   TestSimulation of package sim

// its timing: I = 0.5 s, T = 1.5 s. Nothing is left for a grace, which it had none of.
var original = lease.Timing{Interval: 500 * time.Millisecond, Timeout: 1500*time.Millisecond + time.Microsecond}

const noGrace = time.Microsecond

func originalNode(t *testing.T, store leasetest.Target, name string) *node {
	t.Helper()
	return startNode(t, store, name, original)
}

func TestOriginalRunningAsPrimary(t *testing.T) {
	for name, scenario := range map[string]func(t *testing.T, store *memory.Store, c1 *node){
		"6 an older answer arrives late": func(t *testing.T, store *memory.Store, c1 *node) {
			h := c1.take(t, "A")
			c1.link.Change(func(n *leasetest.Network) { n.MaxDelay, n.Duplicate, n.Late = original.Interval/4, 0.3, 0.05 })
			began := time.Now()
			until, _ := h.Active.Until()
			for time.Since(began) < time.Minute && h.Active.Valid() {
				time.Sleep(time.Millisecond)
				next, _ := h.Active.Until()
				if next != 0 && next < until {
					t.Fatalf("trust fell from %v to %v", until, next)
				}
				until = next
			}
		},
		"7 own fresh row, never checked": func(t *testing.T, store *memory.Store, c1 *node) {
			live, err := c1.Session(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := store.Acquire(t.Context(), lease.Expectation{Lease: elect.Leases("A", 1)[0], Session: live.ID()}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute)
			mustResolve(t, store, "A", "c1")
			h := c1.take(t, "A") // and asked, it learns what it has
			if !h.Active.Valid() {
				t.Error("not primary")
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := memory.New(nil)
				scenario(t, store, originalNode(t, store, "c1"))
			})
		})
	}
}

// take acquires a role and keeps it for the rest of the test.
func (n *node) take(t *testing.T, role string) *lease.HeldLease {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	h, err := n.Acquire(ctx, lease.AcquireRequest{Leases: elect.Leases(role, 1)})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func TestOriginalGetPrimary(t *testing.T) {
	cfg := elect.Config{Role: "A", StopGrace: noGrace}
	for name, scenario := range map[string]func(t *testing.T, store *memory.Store, s *stage, c1 *node){
		"5 rows blanked": func(t *testing.T, store *memory.Store, s *stage, c1 *node) {
			run := c1.run(t, elect.Campaign, cfg, s.work(0))
			time.Sleep(time.Second)
			store.Restore(memory.New(nil).Snapshot())
			until(t, original.Timeout, "the campaign ends", run.ended)
			if err := run.result(); !errors.Is(err, lease.ErrLost) {
				t.Errorf("returned %v, want ErrLost", err)
			}
		},
		"6 rows blanked while keeping": func(t *testing.T, store *memory.Store, s *stage, c1 *node) {
			c1.run(t, elect.Run, cfg, s.work(0))
			time.Sleep(time.Second)
			store.Restore(memory.New(nil).Snapshot())
			until(t, original.WorstTakeover(), "a new and larger term", func() bool { return s.terms("A") == 2 })
		},
		"7 the first query fails": func(t *testing.T, store *memory.Store, s *stage, c1 *node) {
			c1.link.Change(func(n *leasetest.Network) { n.Refuse = 1 }) // there it died of this
			c1.run(t, elect.Run, cfg, s.work(0))
			time.Sleep(time.Minute)
			c1.mend()
			until(t, 2*time.Second, "c1 plays", func() bool { return s.who("A") == "c1" })
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := memory.New(nil)
				scenario(t, store, newStage(t), originalNode(t, store, "c1"))
			})
		})
	}
}

func TestOriginalGetPrimaryWithAffinity(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, s := memory.New(nil), newStage(t)
		a, b := elect.Config{Role: "A", StopGrace: noGrace}, elect.Config{Role: "B", With: "A", StopGrace: noGrace}
		c1, c2, c3 := originalNode(t, store, "1"), originalNode(t, store, "2"), originalNode(t, store, "1")
		c3.run(t, elect.Run, b, s.work(0))
		time.Sleep(10 * time.Second)
		if s.who("B") != "" {
			t.Error("1: c3 alone is primary")
		}
		run2 := c2.run(t, elect.Run, a, s.work(0))
		time.Sleep(10 * time.Second)
		if s.who("A") != "2" || s.who("B") != "" {
			t.Errorf("3: A is played by %q, B by %q", s.who("A"), s.who("B"))
		}
		run1 := c1.run(t, elect.Run, a, s.work(0))
		time.Sleep(10 * time.Second)
		if err := run2.result(); !errors.Is(err, errStop) {
			t.Error(err)
		}
		until(t, original.Interval, "4: c1 takes over", func() bool { return s.who("A") == "1" })
		until(t, 2*original.Interval, "2: c3 follows", func() bool { return s.who("B") == "1" })
		if err := run1.result(); !errors.Is(err, errStop) {
			t.Error(err)
		}
		until(t, 2*original.Timeout, "c3 stops after c1", func() bool { return s.who("B") == "" })
	})
}

func TestOriginalKeepPrimaryOnASlowStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, s := memory.New(nil), newStage(t)
		c1 := originalNode(t, store, "c1")
		delay := original.Interval * 9 / 10
		c1.run(t, elect.Run, elect.Config{Role: "A", StopGrace: noGrace}, s.work(0))
		until(t, 2*time.Second, "c1 plays", func() bool { return s.who("A") == "c1" })
		c1.link.Change(func(n *leasetest.Network) { n.MinDelay, n.MaxDelay = delay/2, delay/2 })
		time.Sleep(3 * original.Timeout)
		if s.who("A") != "c1" || s.terms("A") != 1 {
			t.Errorf("with replies delayed by 0.9·I, %q plays, after %d terms", s.who("A"), s.terms("A"))
		}
	})
}
