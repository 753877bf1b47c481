package lease_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/understudy-ha/understudy/lease"
)

// wait starts to acquire and tells when it is done.
func (r *running) wait(t *testing.T, want lease.AcquireRequest) <-chan *lease.HeldLease {
	t.Helper()
	got := make(chan *lease.HeldLease, 1)
	go func() {
		h, err := r.Acquire(t.Context(), want)
		if err != nil && t.Context().Err() == nil {
			t.Errorf("Acquire for %s: %v", r.Instance().Name, err)
		}
		got <- h
	}()
	return got
}

var wantRole = lease.AcquireRequest{Leases: []lease.ID{role}}

func TestReleaseWakesTheStandby(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newSpy()
		a, b := keep(t, store, "a"), keep(t, store, "b")
		h := a.acquire(t, time.Second)
		got := b.wait(t, wantRole)
		time.Sleep(30 * time.Second)
		began := time.Now()
		if err := h.Release(t.Context(), "", "test"); err != nil {
			t.Fatal(err)
		}
		next := <-got
		if took := time.Since(began); took > 5*time.Millisecond {
			t.Errorf("the standby has the lease after %v", took)
		}
		if next.Term <= h.Term || next.Holder.Name != "b" {
			t.Errorf("after term %d: %+v", h.Term, next.Lease)
		}
	})
}

// A standby sleeps until the holder could lapse; it does not poll.
func TestStandbySleepsUntilTheLapse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newSpy()
		a, b := keep(t, store, "a"), keep(t, store, "b")
		a.acquire(t, time.Second)
		got := b.wait(t, wantRole)
		time.Sleep(30 * time.Second)
		store.reset()
		time.Sleep(100 * time.Second)
		if n := store.count("get") + store.count("acquire"); n > 100/4+2 {
			t.Errorf("the standby asked %d times in 100 s, want about once per T", n)
		}
		a.die(store)
		died := time.Now()
		<-got
		if took := time.Since(died); took > timing.Timeout+100*time.Millisecond || took < timing.Timeout-timing.Interval {
			t.Errorf("the takeover came %v after the death, want T after the last renewal", took)
		}
	})
}

// die makes this keeper's session stop moving, without a word to the store.
func (r *running) die(store *spy) {
	id := ""
	if live, err := r.Session(context.Background()); err == nil {
		id = live.ID()
	}
	store.mu.Lock()
	defer store.mu.Unlock()
	store.dead[id] = true
}

func TestStandbyThatComesLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newSpy()
		a, b := keep(t, store, "a"), keep(t, store, "b")
		a.acquire(t, time.Second)
		time.Sleep(10*time.Second + 300*time.Millisecond)
		a.die(store)
		began := time.Now()
		<-b.wait(t, wantRole)
		// Nothing vouches for what the store says of a session that never moves.
		if took := time.Since(began); took > timing.WorstTakeover() || took < timing.Timeout-timing.Interval {
			t.Errorf("the takeover took %v", took)
		}
		time.Sleep(10 * time.Second)
		c := keep(t, store, "c")
		b.die(store)
		time.Sleep(time.Minute) // long lapsed when first seen
		began = time.Now()
		<-c.wait(t, wantRole)
		if took := time.Since(began); took < timing.Timeout || took > timing.WorstTakeover() {
			t.Errorf("a session first seen lapsed was taken from after %v, want T", took)
		}
	})
}

// An acquisition whose answer was lost is read back, not repeated.
func TestUnknownOutcomeIsReadBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newSpy()
		a := keep(t, store, "a")
		lost := false
		store.intercept(func(_ context.Context, call string) error {
			if call == "acquired" && !lost {
				lost = true
				return lease.ErrUnknown
			}
			return nil
		})
		h := a.acquire(t, 10*time.Second)
		if n := store.count("acquire"); n != 1 {
			t.Errorf("%d claims", n)
		}
		if l, _ := store.Store.Get(t.Context(), role); l.Term != h.Term || l.Session != h.Session {
			t.Errorf("held is %+v, in the store %+v", h.Lease, l)
		}
	})
}

// When the caller gives up before it knows what became of a claim that was applied, the lease
// is given back: whenever that is, and though the store is down for a while.
func TestAbandonedClaimIsGivenBack(t *testing.T) {
	second := lease.ID{Space: "role", Key: "r#2"}
	for name, c := range map[string]struct {
		giveUp func(cancel func(), calls []string) // after the claim without an answer, with the calls since
		want   lease.AcquireRequest
	}{
		"in the claim":          {func(cancel func(), calls []string) { cancel() }, wantRole},
		"in the pause after it": {func(cancel func(), calls []string) { time.AfterFunc(timing.Interval/16, cancel) }, wantRole},
		"in the read after it": {func(cancel func(), calls []string) {
			if len(calls) > 0 {
				cancel()
			}
		}, wantRole},
		"with another lease to wait for": {func(cancel func(), calls []string) { cancel() }, lease.AcquireRequest{Leases: []lease.ID{role, second}}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newSpy()
				a := keep(t, store, "a")
				ctx, cancel := context.WithCancelCause(t.Context())
				enough := errors.New("enough")
				var mu sync.Mutex
				var lost time.Time
				var calls []string
				store.intercept(func(_ context.Context, call string) error {
					mu.Lock()
					defer mu.Unlock()
					switch {
					case lost.IsZero() && call == "acquired":
						lost = time.Now()
					case lost.IsZero() || call == "renew":
						return nil
					case time.Since(lost) > timing.Timeout+timing.Interval:
						return nil
					default:
						calls = append(calls, call)
					}
					c.giveUp(func() { cancel(enough) }, calls)
					return lease.ErrUnknown
				})
				if _, err := a.Acquire(ctx, c.want); !errors.Is(err, enough) {
					t.Errorf("Acquire: %v, want the cause", err)
				}
				if l, _ := store.Store.Get(t.Context(), role); l.Session != "" || l.Term == 0 {
					t.Errorf("the lease was left as %+v", l)
				}
			})
		})
	}
}

func TestStoreThatIsDownIsAskedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newSpy()
		a := keep(t, store, "a")
		a.session(t)
		store.fail(unavailable, "get", "acquire")
		got := a.wait(t, wantRole)
		time.Sleep(time.Minute)
		if n := store.count("get"); n < 30 || n > 90 {
			t.Errorf("%d attempts in a minute at an interval of a second", n)
		}
		store.intercept(nil)
		began := time.Now()
		<-got
		if took := time.Since(began); took > 2*timing.Interval {
			t.Errorf("the lease was had %v after the store came up", took)
		}
	})
}

func TestAnyOfSeveral(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newSpy()
		second := lease.ID{Space: "role", Key: "r#2"}
		want := lease.AcquireRequest{Leases: []lease.ID{role, second}}
		a, b, c := keep(t, store, "a"), keep(t, store, "b"), keep(t, store, "c")
		first := a.acquire(t, time.Second, want.Leases...)
		other := b.acquire(t, time.Second, want.Leases...)
		if first.ID == other.ID {
			t.Fatalf("both hold %s", first.ID)
		}
		got := c.wait(t, want)
		time.Sleep(20 * time.Second)
		select {
		case h := <-got:
			t.Fatalf("a third holds %s", h.ID)
		default:
		}
		if err := other.Release(t.Context(), "", "test"); err != nil {
			t.Fatal(err)
		}
		if h := <-got; h.ID != other.ID {
			t.Errorf("%s was released, %s taken", other.ID, h.ID)
		}
	})
}

// A lease that may be taken once per period is, whoever takes it, however soon
// it is given back.
func TestEvery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newSpy()
		want := lease.AcquireRequest{Leases: []lease.ID{role}, Every: time.Hour}
		runs := make(chan time.Time, 100)
		for _, name := range []string{"a", "b", "c"} {
			k := keep(t, store, name)
			go func() {
				for {
					h, err := k.Acquire(t.Context(), want)
					if err != nil {
						return
					}
					runs <- time.Now()
					_ = h.Release(t.Context(), "", "done")
				}
			}()
		}
		last := <-runs
		for range 5 {
			next := <-runs
			if took := next.Sub(last); took < time.Hour || took > time.Hour+2*time.Second {
				t.Errorf("the next run came after %v, want the period", took)
			}
			last = next
		}
	})
}

// A released lease that is kept for a successor goes to that one at once, to
// somebody else only when the reservation has ended.
func TestReservedForASuccessor(t *testing.T) {
	for name, c := range map[string]struct {
		successor   string
		to          string
		least, most time.Duration
	}{
		"who waits":  {"c", "c", 0, 5 * time.Millisecond},
		"who is not": {"nobody", "", timing.Timeout, timing.WorstTakeover()},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newSpy()
				a := keep(t, store, "a")
				h := a.acquire(t, time.Second)
				gotB, gotC := keep(t, store, "b").wait(t, wantRole), keep(t, store, "c").wait(t, wantRole)
				time.Sleep(20 * time.Second)
				began := time.Now()
				if err := h.Release(t.Context(), c.successor, "test"); err != nil {
					t.Fatal(err)
				}
				var next *lease.HeldLease
				select {
				case next = <-gotB:
				case next = <-gotC:
				}
				took := time.Since(began)
				if took < c.least || took > c.most || c.to != "" && next.Holder.Name != c.to {
					t.Errorf("%s has it after %v", next.Holder.Name, took)
				}
			})
		})
	}
}

// A contender must not believe that a session of another boot has ended while it
// is seen to move: then two hosts use the file.
func TestForeignSessionThatMoves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newSpy()
		a, b := keep(t, store, "a"), keep(t, store, "b")
		a.acquire(t, time.Second)
		store.mu.Lock()
		store.shown = func(l lease.Lease) lease.Lease { l.Foreign = l.Session != ""; return l }
		store.mu.Unlock()
		_, err := b.Acquire(t.Context(), wantRole)
		if !errors.Is(err, lease.ErrTwoHosts) {
			t.Errorf("Acquire: %v, want ErrTwoHosts", err)
		}
	})
}

func TestForeignSessionThatIsDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newSpy()
		a, b := keep(t, store, "a"), keep(t, store, "b")
		a.acquire(t, time.Second)
		a.die(store)
		store.mu.Lock()
		store.shown = func(l lease.Lease) lease.Lease {
			l.Foreign = l.Session != "" && l.Holder.Name == "a"
			if l.Foreign {
				l.Remaining = time.Hour
			}
			return l
		}
		store.mu.Unlock()
		began := time.Now()
		<-b.wait(t, wantRole)
		if took := time.Since(began); took < timing.Timeout || took > timing.WorstTakeover() {
			t.Errorf("taken after %v, want T on the newcomer's own clock", took)
		}
	})
}

// A hundred standbys wait where every watcher slows the others down: three of them listen, and a release costs one
// attempt and next to no reads, also later: the renewals of the others show who has the lease.
func TestNoStampede(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const standbys = 100
		store := newSpy()
		crowd := crowdedSpy{store}
		h := keep(t, crowd, "holder").acquire(t, time.Second)
		synctest.Wait()
		store.reset() // the holder may have listened while it waited
		got := make(chan *lease.HeldLease, standbys)
		for i := range standbys {
			k := keep(t, crowd, fmt.Sprint("s", i))
			go func() {
				if h, err := k.Acquire(t.Context(), wantRole); err == nil {
					got <- h
				}
			}()
		}
		time.Sleep(3 * timing.Timeout) // they wait
		if n := store.count("watch"); n != 3 {
			t.Errorf("%d of %d standbys listen", n, standbys)
		}
		store.intercept(func(_ context.Context, call string) error {
			if call == "acquire" || call == "acquired" {
				time.Sleep(time.Millisecond / 2) // a round trip of a millisecond
			}
			return nil
		})
		store.reset()
		began := time.Now()
		if err := h.Release(t.Context(), "", "test"); err != nil {
			t.Fatal(err)
		}
		<-got
		took := time.Since(began)
		claims := store.count("acquire")
		time.Sleep(3 * timing.Timeout)
		claims2, reads := store.count("acquire"), store.count("get")
		t.Logf("taken after %v; %d claims until then, %d within an interval, %d reads", took, claims, claims2, reads)
		if took > 20*time.Millisecond {
			t.Errorf("the hand-over took %v", took)
		}
		if claims2 > 3 {
			t.Errorf("%d standbys claimed one lease", claims2)
		}
		if reads > 20 {
			t.Errorf("%d reads by %d standbys", reads, standbys)
		}
	})
}

// Standbys to whom renewals show the lease leave the few places of listeners to others.
func TestFarStandbysDoNotListen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const standbys = 10
		few := &fewSpy{spy: newSpy()}
		keep(t, few, "holder").acquire(t, time.Second)
		for i := range standbys {
			keep(t, few, fmt.Sprint("s", i)).wait(t, wantRole)
		}
		synctest.Wait()
		if n := few.listening.Load(); n == 0 {
			t.Error("nobody listened before a renewal showed the lease")
		}
		time.Sleep(3 * timing.Timeout)
		// Who came to be first in line while it listened goes on as it does.
		may, must := int(few.listening.Load()), few.count("watch")
		if may > max(0, 3-must) {
			t.Errorf("%d standbys listen that are not first in line", may-max(0, 3-must))
		}
		if may+must < 3 {
			t.Errorf("%d listen of those who are", may+must)
		}
	})
}

// fewSpy is a store in which few watch.
type fewSpy struct {
	*spy
	listening atomic.Int64 // those who can do without
}

func (s *fewSpy) WatchIfFew(ctx context.Context, wake func(lease.Change)) error {
	s.listening.Add(1)
	defer s.listening.Add(-1)
	return s.Store.Watch(ctx, wake)
}

// The holder dies together with those who are first in line: the takeover takes no longer than that of the first.
func TestTakeoverByTheLastInLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newSpy()
		crowd := crowdedSpy{store}
		holder := keep(t, crowd, "holder")
		holder.acquire(t, time.Second)
		var first []*running
		for i := range 5 {
			k := keep(t, crowd, fmt.Sprint("s", i))
			first = append(first, k)
			go func() { _, _ = k.Acquire(t.Context(), wantRole) }()
			time.Sleep(time.Second)
		}
		last := keep(t, crowd, "last").wait(t, wantRole)
		time.Sleep(20*time.Second + 300*time.Millisecond)
		for _, k := range append(first, holder) {
			k.die(store)
		}
		died := time.Now()
		<-last
		if took := time.Since(died); took > timing.WorstTakeover() || took < timing.Timeout-timing.Interval {
			t.Errorf("the takeover came %v after the death, want T to T+I", took)
		}
	})
}

// Whoever gives up on many leases waits for a store that hangs as long as one call may take, not that long for each lease.
func TestGivingUpOnManyLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newSpy()
		a, b := keep(t, store, "a"), keep(t, store, "b")
		var want lease.AcquireRequest
		for i := range 20 {
			id := lease.ID{Space: "role", Key: fmt.Sprintf("r#%d", i)}
			a.acquire(t, time.Second, id)
			want.Leases = append(want.Leases, id)
		}
		ctx, cancel := context.WithCancel(t.Context())
		gaveUp := make(chan error, 1)
		go func() {
			_, err := b.Acquire(ctx, want)
			gaveUp <- err
		}()
		time.Sleep(10 * time.Second)
		store.intercept(func(ctx context.Context, call string) error {
			if call == "leave" {
				return hang(ctx, call)
			}
			return nil
		})
		began := time.Now()
		cancel()
		if err := <-gaveUp; !errors.Is(err, context.Canceled) {
			t.Errorf("Acquire: %v, want the cause", err)
		}
		if took := time.Since(began); took > timing.CallTimeout() {
			t.Errorf("Acquire returned after %v, want within one call's %v", took, timing.CallTimeout())
		}
		if n := store.count("leave"); n != 1 {
			t.Errorf("a store that hangs was called %d times", n)
		}
	})
}
