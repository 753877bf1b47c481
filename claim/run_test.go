package claim_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/understudy-ha/understudy/claim"
	"github.com/understudy-ha/understudy/internal/memstore/claims"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/lease/leasetest"
	"github.com/understudy-ha/understudy/store/memory"
)

// floor is where several instances work, in a bubble. It notices two of them on
// one key.
type floor struct {
	t     *testing.T
	store *claims.Memory
	table claim.KeyTable
	takes time.Duration
	most  time.Duration // the deadline of a step; 0: the default
	next  claim.NextStep

	mu    sync.Mutex
	on    map[string]string // who works on the key
	steps map[string]int    // by instance
	per   map[string]int    // by key
	terms map[string]int64
}

func newFloor(t *testing.T) *floor {
	store := claims.NewMemory(memory.New(nil), nil)
	return &floor{t: t, store: store, table: store.Claims(), takes: 10 * time.Millisecond, next: claim.NextStep{In: time.Second},
		on: map[string]string{}, steps: map[string]int{}, per: map[string]int{}, terms: map[string]int64{}}
}

func (f *floor) offer(n int) {
	f.t.Helper()
	var keys []string
	for i := range n {
		keys = append(keys, fmt.Sprintf("key%03d", i))
	}
	if err := f.store.Claims().Offer(f.t.Context(), "work", keys, 0); err != nil {
		f.t.Fatal(err)
	}
}

func (f *floor) work(name string) claim.StepFunc {
	return func(ctx context.Context, c claim.Claim) (claim.NextStep, error) {
		f.mu.Lock()
		if other := f.on[c.Key]; other != "" {
			f.t.Errorf("%s works on %s while %s does", name, c.Key, other)
		}
		if c.Term < f.terms[c.Key] {
			f.t.Errorf("the term of %s fell from %d to %d", c.Key, f.terms[c.Key], c.Term)
		}
		f.on[c.Key], f.terms[c.Key] = name, c.Term
		f.steps[name]++
		f.per[c.Key]++
		f.mu.Unlock()
		select {
		case <-ctx.Done():
		case <-time.After(f.takes):
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		f.on[c.Key] = ""
		return f.next, ctx.Err()
	}
}

func (f *floor) start(name string, work claim.StepFunc) (stop func()) {
	f.t.Helper()
	windows := claim.Windows{}.WithDefaults()
	k, err := lease.NewKeeper(lease.KeeperConfig{Store: f.store, Instance: lease.NewInstance(name, ""), Timing: windows.Timing(), Clock: &leasetest.BubbleClock{}})
	if err != nil {
		f.t.Fatal(err)
	}
	keeping, end := context.WithCancel(context.Background())
	running, halt := context.WithCancel(keeping)
	kept, ran := make(chan struct{}), make(chan struct{})
	go func() { defer close(kept); _ = k.Run(keeping) }()
	go func() {
		defer close(ran)
		if err := claim.Run(running, claim.Config{Space: "work", Keeper: k, Table: f.table, StepTimeout: f.most}, work); err != nil {
			f.t.Error(err)
		}
	}()
	stop = func() { halt(); <-ran; end(); <-kept }
	f.t.Cleanup(stop)
	return stop
}

// counts are the steps so far, by key.
func (f *floor) counts() map[string]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.per)
}

// held counts the keys of each instance, by its name.
func (f *floor) held() map[string]int {
	f.t.Helper()
	rows, err := f.store.Claims().List(f.t.Context(), claim.Query{Space: "work"})
	if err != nil {
		f.t.Fatal(err)
	}
	out := map[string]int{}
	for _, r := range rows {
		if r.Session != "" && !r.Lapsed {
			out[r.Holder.Name]++
		}
	}
	return out
}

func TestRunDividesKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFloor(t)
		f.offer(90)
		f.start("a", f.work("a"))
		time.Sleep(3 * time.Second)
		stopB := f.start("b", f.work("b"))
		f.start("c", f.work("c"))
		time.Sleep(20 * time.Second) // a few keys are given away in each second
		for _, name := range []string{"a", "b", "c"} {
			if n := f.held()[name]; n < 29 || n > 31 {
				t.Errorf("%s holds %d of 90 keys: %v", name, n, f.held())
			}
		}
		stopB()
		time.Sleep(10 * time.Second)
		if got := f.held(); got["a"]+got["c"] != 90 || got["a"] < 44 || got["a"] > 46 {
			t.Errorf("after one has left: %v", got)
		}
		for key, n := range f.counts() {
			if n < 20 || n > 35 {
				t.Errorf("%d steps on %s in 33 s", n, key)
			}
		}
		if len(f.counts()) != 90 {
			t.Errorf("steps on %d keys", len(f.counts()))
		}
	})
}

func TestRunStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFloor(t)
		f.takes = time.Hour // longer than the deadline and the grace
		f.offer(20)
		stop := f.start("a", f.work("a"))
		time.Sleep(time.Second)
		began := time.Now()
		go func() {
			time.Sleep(50 * time.Millisecond)
			if n := f.held()["a"]; n != 8 {
				t.Errorf("%d keys are held while stopping; 8 are in a step", n)
			}
		}()
		stop()
		if took := time.Since(began); took > 6*time.Second {
			t.Errorf("stopping took %v", took)
		}
		if got := f.held(); len(got) != 0 {
			t.Errorf("held after the stop: %v", got)
		}
	})
}

// hungTable is the table of a store that accepts requests and answers none, from a moment on.
type hungTable struct {
	claim.KeyTable
	hung *atomic.Bool
}

func (h hungTable) hang(ctx context.Context) error {
	if !h.hung.Load() {
		return nil
	}
	<-ctx.Done()
	return errors.Join(ctx.Err(), lease.ErrUnknown)
}

func (h hungTable) Join(ctx context.Context, m claim.Member) (claim.Share, error) {
	if err := h.hang(ctx); err != nil {
		return claim.Share{}, err
	}
	return h.KeyTable.Join(ctx, m)
}

func (h hungTable) ClaimKeys(ctx context.Context, r claim.ClaimRequest) ([]claim.Claim, error) {
	if err := h.hang(ctx); err != nil {
		return nil, err
	}
	return h.KeyTable.ClaimKeys(ctx, r)
}

func (h hungTable) FinishSteps(ctx context.Context, space, session string, done []claim.StepResult) ([]string, error) {
	if err := h.hang(ctx); err != nil {
		return nil, err
	}
	return h.KeyTable.FinishSteps(ctx, space, session, done)
}

func (h hungTable) Release(ctx context.Context, space, session string, c []claim.Claim) error {
	if err := h.hang(ctx); err != nil {
		return err
	}
	return h.KeyTable.Release(ctx, space, session, c)
}

// A store that does not answer holds up the end of a process no longer than StopGrace and five seconds, and its steps no
// longer than StopGrace: whatever Run is waiting for when it is stopped.
func TestRunStopsWithoutTheStore(t *testing.T) {
	for _, before := range []time.Duration{0, 500 * time.Millisecond, 2 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			f := newFloor(t)
			f.offer(20)
			var hung atomic.Bool
			f.table = hungTable{f.store.Claims(), &hung}
			var told sync.Map
			stop := f.start("a", func(ctx context.Context, c claim.Claim) (claim.NextStep, error) {
				<-ctx.Done()
				told.Store(c.Key, time.Now())
				return claim.NextStep{}, ctx.Err()
			})
			time.Sleep(3*time.Second + 100*time.Millisecond)
			hung.Store(true)
			time.Sleep(before)
			began := time.Now()
			stop()
			if took := time.Since(began); took > 10*time.Second+10*time.Millisecond {
				t.Errorf("stopped %v after the store hung, Run returned after %v", before, took)
			}
			n := 0
			told.Range(func(key, at any) bool {
				if n++; at.(time.Time).Sub(began) != 5*time.Second {
					t.Errorf("the step on %s was told after %v", key, at.(time.Time).Sub(began))
				}
				return true
			})
			if n != 8 {
				t.Errorf("%d steps were told", n)
			}
		})
	}
}

func TestRunIdleAndOffered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFloor(t)
		f.next = claim.NextStep{Idle: true}
		f.start("a", f.work("a"))
		f.start("b", f.work("b"))
		time.Sleep(5*time.Second + 300*time.Millisecond)
		for n := range 3 {
			f.offer(1)
			time.Sleep(50 * time.Millisecond)
			if f.counts()["key000"] != n+1 {
				t.Fatalf("%d steps 50 ms after offer %d", f.counts()["key000"], n+1)
			}
			time.Sleep(time.Second)
		}
		if got := f.held(); len(got) != 0 {
			t.Errorf("idle keys are held: %v", got)
		}
	})
}

func TestRunFailingWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFloor(t)
		f.offer(2)
		var times atomic.Int64
		f.start("a", func(_ context.Context, c claim.Claim) (claim.NextStep, error) {
			if c.Key == "key000" {
				if times.Add(1) == 2 {
					panic("no")
				}
				return claim.NextStep{}, errors.New("not now")
			}
			return claim.NextStep{In: time.Minute}, nil
		})
		time.Sleep(time.Minute)
		if n := times.Load(); n < 4 || n > 7 { // after 2, 4, 8, 16 s, or half of that, and what it takes to claim the key again
			t.Errorf("failing work was tried %d times in a minute", n)
		}
	})
}

// awayTable is the table of a store that refuses at once to start steps and to release keys.
type awayTable struct {
	claim.KeyTable
	calls *atomic.Int64
	away  *atomic.Bool
}

func (a awayTable) refuse() error {
	if !a.away.Load() {
		return nil
	}
	if a.calls.Add(1) > 1000 {
		time.Sleep(time.Second) // so that the time of the bubble goes on
	}
	return lease.ErrUnavailable
}

func (a awayTable) StartSteps(ctx context.Context, space, session string, hold time.Duration, c []claim.Claim) ([]claim.Claim, error) {
	if err := a.refuse(); err != nil {
		return nil, err
	}
	return a.KeyTable.StartSteps(ctx, space, session, hold, c)
}

func (a awayTable) Release(ctx context.Context, space, session string, c []claim.Claim) error {
	if err := a.refuse(); err != nil {
		return err
	}
	return a.KeyTable.Release(ctx, space, session, c)
}

// However many keys are ready, a store that refuses is called once in PollInterval to start their steps, and once to release them.
func TestRunPausesWhileStoreRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFloor(t)
		f.offer(100)
		var calls atomic.Int64
		var away atomic.Bool
		f.table = awayTable{f.store.Claims(), &calls, &away}
		f.start("a", f.work("a"))
		time.Sleep(5500 * time.Millisecond)
		away.Store(true)
		time.Sleep(10 * time.Second)
		if n := calls.Load(); n < 10 || n > 24 {
			t.Errorf("a store that refuses was called %d times in 10 s", n)
		}
		away.Store(false)
		before := len(f.counts())
		f.mu.Lock()
		clear(f.per)
		f.mu.Unlock()
		time.Sleep(3 * time.Second)
		if n := len(f.counts()); n != before || n != 100 {
			t.Errorf("steps on %d of %d keys after the store is back", n, before)
		}
	})
}

// slowTable starts steps at once, and says so late.
type slowTable struct {
	claim.KeyTable
	slow time.Duration

	released atomic.Int64

	mu      sync.Mutex
	started time.Time
}

func (s *slowTable) Release(ctx context.Context, space, session string, c []claim.Claim) error {
	s.released.Add(int64(len(c)))
	return s.KeyTable.Release(ctx, space, session, c)
}

func (s *slowTable) StartSteps(ctx context.Context, space, session string, hold time.Duration, c []claim.Claim) ([]claim.Claim, error) {
	s.mu.Lock()
	s.started = time.Now()
	s.mu.Unlock()
	begun, err := s.KeyTable.StartSteps(ctx, space, session, hold, c)
	time.Sleep(s.slow)
	return begun, err
}

// The second window counts from when the store started the step, and so does the deadline of the step.
func TestRunCountsDeadlineFromTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFloor(t)
		f.offer(1)
		slow := &slowTable{KeyTable: f.store.Claims(), slow: 9 * time.Second}
		f.table, f.most = slow, 30*time.Second
		var steps atomic.Int64
		stop := f.start("a", func(ctx context.Context, _ claim.Claim) (claim.NextStep, error) {
			steps.Add(1)
			deadline, _ := ctx.Deadline()
			slow.mu.Lock()
			defer slow.mu.Unlock()
			if got := deadline.Sub(slow.started); got > f.most {
				t.Errorf("the deadline is %v after the start, want at most %v", got, f.most)
			}
			return claim.NextStep{In: time.Hour}, nil
		})
		time.Sleep(20 * time.Second)
		if n := steps.Load(); n != 1 {
			t.Errorf("%d steps", n)
		}
		stop()
	})
	synctest.Test(t, func(t *testing.T) {
		f := newFloor(t)
		f.offer(1)
		slow := &slowTable{KeyTable: f.store.Claims(), slow: 9 * time.Second}
		f.table, f.most = slow, 9*time.Second
		f.start("a", func(context.Context, claim.Claim) (claim.NextStep, error) {
			t.Error("a step starts past its deadline")
			return claim.NextStep{}, nil
		})
		// It is released when the answer comes, and may be claimed again at once.
		time.Sleep(15 * time.Second)
		if slow.released.Load() == 0 {
			t.Error("a key whose step cannot be started is held")
		}
	})
}

func TestRunTakesOverFromTheDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFloor(t)
		f.offer(10)
		// An instance that claimed, began on two keys, and was never heard of again.
		dead := lease.Session{ID: lease.NewID(), Instance: lease.NewInstance("dead", ""), Timing: claim.Windows{}.WithDefaults().Timing()}
		if _, err := f.store.StartSession(t.Context(), dead); err != nil {
			t.Fatal(err)
		}
		table := f.store.Claims()
		if _, err := table.Join(t.Context(), claim.Member{Space: "work", Session: dead.ID}); err != nil {
			t.Fatal(err)
		}
		claims, err := table.ClaimKeys(t.Context(), claim.ClaimRequest{Space: "work", Session: dead.ID, Limit: 10, Fresh: 10})
		if err != nil || len(claims) != 10 {
			t.Fatal(claims, err)
		}
		if _, err := table.StartSteps(t.Context(), "work", dead.ID, claim.DefaultSecond, claims[:2]); err != nil {
			t.Fatal(err)
		}
		interrupted := map[string]bool{}
		work := f.work("a")
		f.start("a", func(ctx context.Context, c claim.Claim) (claim.NextStep, error) {
			f.mu.Lock()
			interrupted[c.Key] = interrupted[c.Key] || c.Interrupted
			f.mu.Unlock()
			return work(ctx, c)
		})
		time.Sleep(31 * time.Second)
		if len(f.counts()) != 8 {
			t.Errorf("%d keys were taken over past the first window, not 8", len(f.counts()))
		}
		time.Sleep(150 * time.Second)
		if len(f.counts()) != 10 {
			t.Errorf("%d keys were taken over past the second window", len(f.counts()))
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		for _, c := range claims {
			if want := slices.ContainsFunc(claims[:2], func(b claim.Claim) bool { return b.Key == c.Key }); interrupted[c.Key] != want {
				t.Errorf("%s: interrupted %t", c.Key, interrupted[c.Key])
			}
		}
	})
}

func TestRunRefuses(t *testing.T) {
	f := newFloor(t)
	k, err := lease.NewKeeper(lease.KeeperConfig{Store: f.store, Instance: lease.NewInstance("a", ""), Timing: claim.Windows{}.WithDefaults().Timing()})
	if err != nil {
		t.Fatal(err)
	}
	changes := map[string]func(*claim.Config){
		"keeper and a table": func(c *claim.Config) { c.Table = nil },
		"steps at once":      func(c *claim.Config) { c.Concurrency = -1 },
		"windows need":       func(c *claim.Config) { c.Windows.First = time.Minute },
		"must be longer":     func(c *claim.Config) { c.StepTimeout = time.Hour },
		"space":              func(c *claim.Config) { c.Space = "No" },
	}
	for _, want := range slices.Sorted(maps.Keys(changes)) {
		c := claim.Config{Space: "work", Keeper: k, Table: f.store.Claims()}
		changes[want](&c)
		if err := claim.Run(t.Context(), c, f.work("a")); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in: %v", want, err)
		}
	}
}

// Without a session that can ever be had again there is nothing to wait for.
func TestKeeperThatCannotContinue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFloor(t)
		f.offer(1)
		k := leasetest.NewDamagedKeeper(t, f.store, claim.Windows{}.WithDefaults().Timing())
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := claim.Run(ctx, claim.Config{Space: "work", Keeper: k, Table: f.table}, f.work("a")); !errors.Is(err, lease.ErrDamaged) {
			t.Errorf("Run returned %v", err)
		}
		if err := claim.Hold(ctx, claim.HoldConfig{Space: "work", Keeper: k, Table: f.table}, func(string, []claim.Claim) {}); !errors.Is(err, lease.ErrDamaged) {
			t.Errorf("Hold returned %v", err)
		}
	})
}
