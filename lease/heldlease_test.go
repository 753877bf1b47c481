package lease_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/store/memory"
)

func TestAcquireRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := keep(t, newSpy(), "a")
		for name, want := range map[string]lease.AcquireRequest{
			"nothing":     {},
			"a bad lease": {Leases: []lease.ID{role, {Space: "role", Key: "a\nb"}}},
		} {
			if _, err := k.Acquire(t.Context(), want); !errors.Is(err, lease.ErrInvalid) {
				t.Errorf("%s: %v, want ErrInvalid", name, err)
			}
		}
		h := k.acquire(t, time.Second)
		if _, err := k.Acquire(t.Context(), wantRole); !errors.Is(err, lease.ErrInvalid) {
			t.Errorf("the same lease twice: %v, want ErrInvalid", err)
		}
		if err := h.Release(t.Context(), "", "test"); err != nil {
			t.Fatal(err)
		}
		again := k.acquire(t, time.Second)
		if again.Term <= h.Term {
			t.Errorf("term %d after %d", again.Term, h.Term)
		}
	})
}

// A lease under which this process works is not given away by another call that waits for it.
func TestAcquireWhatThisProcessHolds(t *testing.T) {
	second := lease.ID{Space: "role", Key: "r#2"}
	refused := func(t *testing.T, store *spy, k *running, h *lease.HeldLease, want ...lease.ID) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := k.Acquire(ctx, lease.AcquireRequest{Leases: want}); !errors.Is(err, lease.ErrInvalid) {
			t.Errorf("acquiring %v while %s is held here: %v, want ErrInvalid", want, h.ID, err)
		}
		if l, err := store.Store.Get(t.Context(), h.ID); err != nil || l.Session != h.Session || l.Term != h.Term {
			t.Errorf("what was held is %+v, %v", l, err)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		store := newSpy()
		a, b := keep(t, store, "a"), keep(t, store, "b")
		b.acquire(t, time.Second)
		h := a.acquire(t, time.Second, role, second)
		if h.ID != second {
			t.Fatalf("held: %s", h.ID)
		}
		refused(t, store, a, h, second)
		refused(t, store, a, h, lease.ID{Space: "role", Key: "other"}, second)
		a.acquire(t, time.Second, lease.ID{Space: "role", Key: "other"}) // the refused call has left it

		// A release that is called again is of its own term.
		first := h
		for range 2 {
			if err := first.Release(t.Context(), "", "test"); err != nil {
				t.Fatal(err)
			}
			if h == first {
				h = a.acquire(t, time.Second, second)
			}
		}
		refused(t, store, a, h, second)
	})
}

func TestAcquireEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newSpy()
		a, b := keep(t, store, "a"), keep(t, store, "b")
		a.acquire(t, time.Second)
		enough := errors.New("enough")
		ctx, cancel := context.WithTimeoutCause(t.Context(), 12*time.Second, enough)
		defer cancel()
		if _, err := b.Acquire(ctx, wantRole); !errors.Is(err, enough) {
			t.Errorf("Acquire: %v, want the cause of its context", err)
		}
		if ws, _ := store.Waiters(t.Context(), "role"); len(ws) != 0 {
			t.Errorf("who gave up is still on the waiting list: %+v", ws)
		}
		if _, err := b.Acquire(ctx, wantRole); !errors.Is(err, enough) {
			t.Errorf("a second Acquire: %v", err)
		}
	})
}

// TestAcquireOnce: whoever tries once takes what is free, joins no line, and is told at once that another holds it.
func TestAcquireOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newSpy()
		a, b := keep(t, store, "a"), keep(t, store, "b")
		once := lease.AcquireRequest{Leases: wantRole.Leases, Once: true}
		h, err := a.Acquire(t.Context(), once)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if _, err := b.Acquire(t.Context(), once); !errors.Is(err, lease.ErrHeld) {
				t.Errorf("while another holds it: %v, want ErrHeld", err)
			}
		}
		if ws, _ := store.Waiters(t.Context(), "role"); len(ws) != 0 {
			t.Errorf("it waits in line: %+v", ws)
		}
		if err := h.Release(t.Context(), "a", "test"); err != nil { // reserved for the one who released it
			t.Fatal(err)
		}
		if _, err := b.Acquire(t.Context(), once); !errors.Is(err, lease.ErrHeld) {
			t.Errorf("while it is kept for another: %v, want ErrHeld", err)
		}
		again, err := a.Acquire(t.Context(), once)
		if err != nil || again.Term <= h.Term {
			t.Errorf("%+v, %v", again, err)
		}
	})
}

// A session that was refused, because the store's clock went ahead, say, may be trusted by a holder who has not heard of it. So its
// lease is not free for whoever tries once.
func TestAcquireOnceFromOneThatWasRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newSpy()
		var ahead atomic.Int64
		store.Store = memory.New(func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) })
		a, b := keep(t, store, "a"), keep(t, store, "b")
		h := a.acquire(t, time.Second)
		store.mu.Lock()
		store.dead[h.Session] = true
		store.mu.Unlock()
		ahead.Store(int64(timing.Timeout))
		if _, err := store.Store.RenewSession(t.Context(), h.Session); !errors.Is(err, lease.ErrLapsed) {
			t.Fatal(err) // the answer is lost
		}
		for time.Sleep(10 * time.Millisecond); h.Active.Valid(); time.Sleep(timing.Interval / 10) {
			_, err := b.Acquire(t.Context(), lease.AcquireRequest{Leases: wantRole.Leases, Once: true})
			if err == nil || !errors.Is(err, lease.ErrHeld) && !errors.Is(err, lease.ErrLapsed) {
				t.Fatalf("while its holder trusts its session: %v", err)
			}
		}
	})
}

// Without trust beyond the margin there is nothing to hold a lease for.
func TestAcquireWaitsForTrust(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newSpy()
		a := keep(t, store, "a")
		a.session(t)
		store.fail(unavailable, "renew")
		time.Sleep(timing.Timeout - timing.Interval - 500*time.Millisecond)
		got := a.wait(t, lease.AcquireRequest{Leases: []lease.ID{role}, Margin: time.Second})
		time.Sleep(400 * time.Millisecond)
		if n := store.count("acquire"); n != 0 {
			t.Errorf("%d claims with less trust than the margin", n)
		}
		store.intercept(nil)
		if h := <-got; h.Active.Remaining() <= time.Second {
			t.Errorf("held with %v of trust", h.Active.Remaining())
		}
	})
}

func TestReleaseTriesAgain(t *testing.T) {
	for name, c := range map[string]struct {
		call string
		err  error
	}{
		"not applied":              {"release", unavailable},
		"applied, the answer lost": {"released", lease.ErrUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newSpy()
				a := keep(t, store, "a")
				h := a.acquire(t, time.Second)
				tries := 0
				store.intercept(func(_ context.Context, call string) error {
					if call == c.call {
						if tries++; tries <= 3 {
							return c.err
						}
					}
					return nil
				})
				ended, cancel := context.WithCancel(t.Context())
				cancel() // a lease is given back though the caller has ended
				if err := h.Release(ended, "", "test"); err != nil {
					t.Errorf("Release: %v", err)
				}
				if l, _ := store.Store.Get(t.Context(), role); l.Session != "" {
					t.Errorf("after Release: %+v", l)
				}
			})
		})
	}
}

func TestReleaseGivesUpAfterTwoT(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newSpy()
		a := keep(t, store, "a")
		h := a.acquire(t, time.Second)
		store.intercept(hang)
		began := time.Now()
		if err := h.Release(t.Context(), "", "test"); err == nil {
			t.Error("a release that never reached the store succeeds")
		}
		if took := time.Since(began); took > 2*timing.Timeout {
			t.Errorf("Release tried for %v", took)
		}
	})
}

// A release that never reached the store does not make its term usable again.
func TestTermIsUsedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newSpy()
		a := keep(t, store, "a")
		h := a.acquire(t, time.Second)
		store.fail(unavailable, "release")
		if err := h.Release(t.Context(), "", "test"); err == nil {
			t.Fatal("the release succeeded")
		}
		store.intercept(nil)
		again := a.acquire(t, 10*time.Second)
		if again.Session != h.Session || again.Term <= h.Term {
			t.Errorf("after term %d, which was not given back: %+v", h.Term, again.Lease)
		}
	})
}
