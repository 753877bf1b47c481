package claim_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/understudy-ha/understudy/claim"
	"github.com/understudy-ha/understudy/internal/memstore/claims"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/lease/leasetest"
	"github.com/understudy-ha/understudy/store/memory"
)

// vault is where several instances hold keys, in a bubble.
type vault struct {
	t     *testing.T
	store *claims.Memory

	mu   sync.Mutex
	held map[string][]claim.Claim // by instance, as each was told last
	cut  map[string]error         // instances whose requests fail
	took int                      // keys, together
	last *slot                    // of the instance that was started last
}

func newVault(t *testing.T, keys int) *vault {
	h := &vault{t: t, store: claims.NewMemory(memory.New(nil), nil), held: map[string][]claim.Claim{}, cut: map[string]error{}}
	var names []string
	for i := range keys {
		names = append(names, string(rune('a'+i/26))+string(rune('a'+i%26)))
	}
	if err := h.store.Claims().Offer(t.Context(), "part/things", names, 0); err != nil {
		t.Fatal(err)
	}
	return h
}

// slot is an instance's way to the store.
type slot struct {
	name string
	h    *vault
	lose bool // the next answer that gives it keys is lost
}

func (s *slot) fails() error {
	s.h.mu.Lock()
	defer s.h.mu.Unlock()
	return s.h.cut[s.name]
}

type sessionSlot struct {
	lease.Store
	*slot
}

func (s sessionSlot) RenewSession(ctx context.Context, id string) (lease.Renewal, error) {
	if err := s.fails(); err != nil {
		return lease.Renewal{}, err
	}
	return s.Store.RenewSession(ctx, id)
}

type claimSlot struct {
	claim.KeyTable
	*slot
}

func (s claimSlot) Join(ctx context.Context, m claim.Member) (claim.Share, error) {
	if err := s.fails(); err != nil {
		return claim.Share{}, err
	}
	return s.KeyTable.Join(ctx, m)
}

func (s claimSlot) ClaimKeys(ctx context.Context, w claim.ClaimRequest) ([]claim.Claim, error) {
	got, err := s.KeyTable.ClaimKeys(ctx, w)
	s.h.mu.Lock()
	defer s.h.mu.Unlock()
	s.h.took += len(got)
	if s.lose && len(got) > 0 {
		s.lose = false
		return nil, lease.ErrUnknown
	}
	return got, err
}

func (h *vault) start(name string, lose bool) (stop func()) {
	h.t.Helper()
	windows := claim.Windows{First: 5 * time.Second, Second: 5 * time.Second}
	s := &slot{name: name, h: h, lose: lose}
	h.last = s
	k, err := lease.NewKeeper(lease.KeeperConfig{Store: sessionSlot{h.store, s}, Instance: lease.NewInstance(name, ""), Timing: windows.Timing(), Clock: &leasetest.BubbleClock{}})
	if err != nil {
		h.t.Fatal(err)
	}
	keeping, end := context.WithCancel(context.Background())
	running, halt := context.WithCancel(keeping)
	var kept, ran sync.WaitGroup
	kept.Go(func() { _ = k.Run(keeping) })
	ran.Go(func() {
		err := claim.Hold(running, claim.HoldConfig{Space: "part/things", Keeper: k, Table: claimSlot{h.store.Claims(), s}, Windows: windows}, func(session string, held []claim.Claim) {
			h.mu.Lock()
			defer h.mu.Unlock()
			if session == "" {
				h.t.Error("no session is named")
			}
			h.held[name] = slices.Clone(held)
		})
		if err != nil {
			h.t.Error(err)
		}
	})
	stop = sync.OnceFunc(func() { halt(); ran.Wait(); end(); kept.Wait() })
	h.t.Cleanup(stop)
	return stop
}

// counts tells how many keys each instance believes to hold, after checking that
// it is what the store says.
func (h *vault) counts(names ...string) (out []int) {
	h.t.Helper()
	rows, err := h.store.Claims().List(h.t.Context(), claim.Query{Space: "part/things"})
	if err != nil {
		h.t.Fatal(err)
	}
	for _, name := range names {
		h.mu.Lock()
		held := h.held[name]
		h.mu.Unlock()
		var stored []string
		for _, r := range rows {
			if r.Holder.Name == name && !r.Lapsed {
				stored = append(stored, r.Key)
			}
		}
		var told []string
		for _, c := range held {
			told = append(told, c.Key)
		}
		if !slices.Equal(stored, told) {
			h.t.Errorf("%s was told %v; the store says %v", name, told, stored)
		}
		out = append(out, len(held))
	}
	return out
}

func (h *vault) want(names string, counts ...int) {
	h.t.Helper()
	if got := h.counts(strings.Fields(names)...); !slices.Equal(got, counts) {
		h.t.Errorf("%s hold %v, not %v", names, got, counts)
	}
}

func TestHoldDivides(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newVault(t, 65)
		h.start("a", false)
		time.Sleep(100 * time.Millisecond)
		h.want("a", 65)
		stop := h.start("b", false)
		time.Sleep(5 * time.Second)
		if got := h.counts("a", "b"); got[0]+got[1] != 65 || got[0] < 32 || got[1] < 32 {
			t.Errorf("%v", got)
		}
		stop()
		h.want("b", 0)
		time.Sleep(500 * time.Millisecond) // at once, but for what is left to those who have less
		h.want("a", 65)
	})
}

// What is given back goes to whoever lacks it, and not back to who gave it: about as many
// keys move when one joins as it is to have. A few move twice when two look in the same
// moment, as all do in a bubble, so that is judged over many joins.
func TestHoldGivesAway(t *testing.T) {
	const joins, spare = 100, 3 // spare keys for each join; a little over 1 was seen
	rng := rand.New(rand.NewPCG(1, 2))
	moved, needed := 0, 0
	for range joins {
		synctest.Test(t, func(t *testing.T) {
			h := newVault(t, 65)
			names := "a b c d e f"[:2*(2+rng.IntN(4))+1]
			all := strings.Fields(names)
			for _, name := range all[:len(all)-1] {
				h.start(name, false)
				time.Sleep(time.Duration(rng.IntN(1000)) * time.Millisecond)
			}
			time.Sleep(5 * time.Second)
			h.mu.Lock()
			before := h.took
			h.mu.Unlock()
			h.start(all[len(all)-1], false)
			time.Sleep(4 * time.Second)
			if got := h.counts(all...); slices.Max(got)-slices.Min(got) > 1 {
				t.Errorf("%v", got)
			}
			h.mu.Lock()
			defer h.mu.Unlock()
			moved += h.took - before
			needed += 65 / len(all)
		})
	}
	if moved > needed+spare*joins {
		t.Errorf("%d keys moved in %d joins that needed %d", moved, joins, needed)
	}
}

func TestHoldTakesOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newVault(t, 20)
		h.start("a", false)
		h.start("b", false)
		time.Sleep(5 * time.Second)
		h.want("a b", 10, 10)
		h.mu.Lock()
		h.cut["a"] = lease.ErrUnavailable
		h.mu.Unlock()
		idle, _ := claim.Windows{First: 5 * time.Second, Second: 5 * time.Second}.WorstTakeover()
		time.Sleep(idle)
		if got := h.counts("b"); got[0] != 20 {
			t.Errorf("b holds %d keys after %v", got[0], idle)
		}
		h.mu.Lock()
		delete(h.cut, "a")
		h.mu.Unlock()
		time.Sleep(2 * claim.Windows{First: 5 * time.Second}.Timing().Interval) // it has asked to be renewed
		synctest.Wait()
		if got := h.counts("a"); got[0] > 10 { // its old session has ended, and it knows
			t.Errorf("a holds %d keys", got[0])
		}
		time.Sleep(5 * time.Second)
		h.want("a b", 10, 10)
	})
}

// Keys that the store gave in an answer that never came are given back, and taken
// again; those that were taken away are not held any more.
func TestHoldComparesWithTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newVault(t, 20)
		h.start("a", true)
		time.Sleep(4 * time.Second)
		h.want("a", 20)
		if err := h.store.Claims().Withdraw(t.Context(), "part/things", []string{"aa", "ab"}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(4 * time.Second)
		h.want("a", 18)
	})
}

// The same when the counts are equal: one key was taken away, and the answer that gave
// another was lost.
func TestHoldComparesEqualCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newVault(t, 20)
		h.start("a", false)
		time.Sleep(4 * time.Second)
		h.want("a", 20)
		h.mu.Lock()
		h.last.lose = true
		h.mu.Unlock()
		if err := h.store.Claims().Withdraw(t.Context(), "part/things", []string{"aa"}); err != nil {
			t.Fatal(err)
		}
		if err := h.store.Claims().Offer(t.Context(), "part/things", []string{"zz"}, 0); err != nil {
			t.Fatal(err)
		}
		time.Sleep(6 * time.Second)
		h.want("a", 20)
	})
}

// The same when it holds more keys than one answer of the store can name.
func TestHoldComparesManyKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newVault(t, 0)
		names := make([]string, claim.MaxKeys+20)
		for i := range names {
			names[i] = fmt.Sprintf("key %04d", i)
		}
		for part := range slices.Chunk(names, claim.MaxKeys) {
			if err := h.store.Claims().Offer(t.Context(), "part/things", part, 0); err != nil {
				t.Fatal(err)
			}
		}
		holds := func(want []string) {
			t.Helper()
			h.mu.Lock()
			defer h.mu.Unlock()
			var got []string
			for _, c := range h.held["a"] {
				got = append(got, c.Key)
			}
			if !slices.Equal(got, want) {
				t.Errorf("it holds %d keys, not the %d that there are", len(got), len(want))
			}
		}
		h.start("a", false)
		time.Sleep(4 * time.Second)
		holds(names)
		if err := h.store.Claims().Withdraw(t.Context(), "part/things", []string{names[0], names[len(names)-1]}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(4 * time.Second)
		holds(names[1 : len(names)-1])
	})
}

func TestHoldRefuses(t *testing.T) {
	if err := claim.Hold(t.Context(), claim.HoldConfig{Space: "x"}, nil); err == nil {
		t.Error("nothing to hold by")
	}
	if err := claim.Hold(t.Context(), claim.HoldConfig{Space: "/x"}, nil); err == nil {
		t.Error("no space")
	}
}
