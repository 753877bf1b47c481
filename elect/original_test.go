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
// primaries. docs/elect.md maps its words to ours. Its tables were set by hand;
// here the store is brought there by what instances do.

// its timing: I = 0.5 s, T = 1.5 s. Nothing is left for a grace, which it had none of.
var original = lease.Timing{Interval: 500 * time.Millisecond, Timeout: 1500*time.Millisecond + time.Microsecond}

const noGrace = time.Microsecond

func originalNode(t *testing.T, store leasetest.Target, name string) *node {
	t.Helper()
	return startNode(t, store, name, original)
}

func TestOriginalRunningAsPrimary(t *testing.T) {
	for name, scenario := range map[string]func(t *testing.T, store *memory.Store, c1 *node){
		"1 empty table, never checked": func(t *testing.T, store *memory.Store, c1 *node) {
			mustResolve(t, store, "A", "")
		},
		"2 empty table, checked": func(t *testing.T, store *memory.Store, c1 *node) {
			mustResolve(t, store, "A", "")
			time.Sleep(time.Minute)
			mustResolve(t, store, "A", "") // looking makes nobody primary
		},
		"3 own fresh row, checked now": func(t *testing.T, store *memory.Store, c1 *node) {
			if h := c1.take(t, "A"); !h.Active.Valid() {
				t.Error("not primary")
			}
		},
		"4 own row aged T": func(t *testing.T, store *memory.Store, c1 *node) {
			h := c1.take(t, "A")
			c1.cut()
			time.Sleep(original.Timeout)
			mustResolve(t, store, "A", "")
			if h.Active.Valid() {
				t.Error("still primary")
			}
		},
		"5 own row, checked at now - T + I": func(t *testing.T, store *memory.Store, c1 *node) {
			h := c1.take(t, "A")
			c1.cut()
			sent, _ := h.Active.Until()
			time.Sleep(sent - c1.clock.Now() - 1)
			if !h.Active.Valid() {
				t.Error("lost before T - I")
			}
			time.Sleep(time.Nanosecond) // the boundary is strict
			if h.Active.Valid() {
				t.Error("still primary at T - I")
			}
		},
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
		"8 another type sees nothing of it": func(t *testing.T, store *memory.Store, c1 *node) {
			c1.take(t, "A")
			mustResolve(t, store, "B", "")
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

func TestOriginalAffinityAsPrimary(t *testing.T) {
	for name, c := range map[string]struct {
		with   string
		holder string // of A
		lost   bool   // the link of the holder, T ago
		want   bool
	}{
		"1 no affinity":         {"", "", false, true},
		"2 affinity, no row":    {"A", "", false, false},
		"3 on the same machine": {"A", "1", false, true},
		"4 on another machine":  {"A", "2", false, false},
		"5 checked T ago":       {"A", "1", true, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, s := memory.New(nil), newStage(t)
				if c.holder != "" {
					holder := originalNode(t, store, c.holder)
					holder.take(t, "A")
					if c.lost {
						holder.cut()
						time.Sleep(original.Timeout)
					}
				}
				originalNode(t, store, "1").run(t, elect.Run, elect.Config{Role: "B", With: c.with, StopGrace: noGrace}, s.work(0))
				time.Sleep(20 * time.Second)
				if got := s.who("B") == "1"; got != c.want {
					t.Errorf("primary: %t, want %t", got, c.want)
				}
			})
		})
	}
}

func TestOriginalGetPrimary(t *testing.T) {
	cfg := elect.Config{Role: "A", StopGrace: noGrace}
	for name, scenario := range map[string]func(t *testing.T, store *memory.Store, s *stage, c1, c2 *node){
		"1 alone, within 2 s": func(t *testing.T, store *memory.Store, s *stage, c1, _ *node) {
			c1.run(t, elect.Run, cfg, s.work(0))
			until(t, 2*time.Second, "c1 plays", func() bool { return s.who("A") == "c1" })
		},
		"2 stopped right away": func(t *testing.T, store *memory.Store, s *stage, c1, _ *node) {
			c1.cut()
			if err := c1.run(t, elect.Run, cfg, s.work(0)).result(); !errors.Is(err, errStop) || s.terms("A") != 0 {
				t.Errorf("returned %v after %d terms", err, s.terms("A"))
			}
		},
		"3 c1 keeps, c2 tries": func(t *testing.T, store *memory.Store, s *stage, c1, c2 *node) {
			c1.run(t, elect.Run, cfg, s.work(0))
			time.Sleep(time.Second)
			c2.run(t, elect.Run, cfg, s.work(0))
			time.Sleep(time.Minute)
			if s.who("A") != "c1" || s.terms("A") != 1 {
				t.Errorf("%s plays, after %d terms", s.who("A"), s.terms("A"))
			}
		},
		"4 c1 does not keep": func(t *testing.T, store *memory.Store, s *stage, c1, c2 *node) {
			c1.run(t, elect.Run, cfg, s.work(0))
			time.Sleep(time.Second)
			c2.run(t, elect.Run, cfg, s.work(0))
			time.Sleep(time.Second)
			c1.cut()
			until(t, original.WorstTakeover(), "c2 plays", func() bool { return s.who("A") == "c2" })
		},
		"5 rows blanked": func(t *testing.T, store *memory.Store, s *stage, c1, _ *node) {
			run := c1.run(t, elect.Campaign, cfg, s.work(0))
			time.Sleep(time.Second)
			store.Restore(memory.New(nil).Snapshot())
			until(t, original.Timeout, "the campaign ends", run.ended)
			if err := run.result(); !errors.Is(err, lease.ErrLost) {
				t.Errorf("returned %v, want ErrLost", err)
			}
		},
		"6 rows blanked while keeping": func(t *testing.T, store *memory.Store, s *stage, c1, _ *node) {
			c1.run(t, elect.Run, cfg, s.work(0))
			time.Sleep(time.Second)
			store.Restore(memory.New(nil).Snapshot())
			until(t, original.WorstTakeover(), "a new and larger term", func() bool { return s.terms("A") == 2 })
		},
		"7 the first query fails": func(t *testing.T, store *memory.Store, s *stage, c1, _ *node) {
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
				scenario(t, store, newStage(t), originalNode(t, store, "c1"), originalNode(t, store, "c2"))
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

// Its witness decided by uuid and time stamp of what was last seen; ours decides
// by term, session and renewal.
func TestOriginalWitness(t *testing.T) {
	now := time.Date(2019, 7, 11, 12, 0, 0, 0, time.UTC)
	store := memory.New(func() time.Time { return now })
	ctx, id := t.Context(), elect.Leases("A", 1)[0]
	session := func(name string) string {
		s := lease.Session{ID: lease.NewID(), Instance: lease.NewInstance(name, ""), Timing: original}
		if _, err := store.StartSession(ctx, s); err != nil {
			t.Fatal(err)
		}
		return s.ID
	}
	seen := func() lease.Seen { l, _ := store.Get(ctx, id); return l.Seen() }
	claim := func(scenario, who string, seen lease.Seen, want bool) {
		t.Helper()
		_, err := store.Acquire(ctx, lease.Expectation{Lease: id, Session: who, Seen: seen})
		if (err == nil) != want || err != nil && !errors.Is(err, lease.ErrHeld) {
			t.Errorf("%s: %v", scenario, err)
		}
	}
	c1, c2 := session("c1"), session("c2")
	vacancy := seen()
	claim("1 first heartbeat on an empty table", c1, vacancy, true)
	claim("7 two first heartbeats at the same time", c2, vacancy, false)
	claim("8 a live row, two with the same token", c2, seen(), false)
	token := seen()
	if _, err := store.RenewSession(ctx, c1); err != nil {
		t.Errorf("6 renewal: %v", err)
	}
	now = now.Add(original.Timeout - 200*time.Millisecond)
	c2 = session("c2")
	claim("3 c1 at now - T + 200 ms", c2, seen(), false)
	now = now.Add(200 * time.Millisecond)
	claim("4 expired, nothing seen", c2, lease.Seen{}, false)
	claim("5 expired, a wrong time stamp", c2, token, false)
	if _, err := store.RenewSession(ctx, c1); !errors.Is(err, lease.ErrLapsed) {
		t.Errorf("9 a renewal after the expiry: %v", err)
	}
	gone := seen()
	claim("2 c1 at now - T", c2, gone, true)
	claim("9 c1 with the same vacancy token", session("c1"), gone, false)
	claim("11 a live row, default token", session("c1"), lease.Seen{}, false)
	if l, err := store.Get(ctx, elect.Leases("B", 1)[0]); err != nil || l.Term != 0 {
		t.Errorf("10 types are independent: %+v, %v", l, err)
	}
}
