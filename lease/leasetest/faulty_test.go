package leasetest

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/store/memory"
)

// behind is a store in memory behind a network, with one session.
func behind(t *testing.T, n Network) (*memory.Store, *Faulty, func() (lease.Renewal, error)) {
	t.Helper()
	store := memory.New(nil)
	s := lease.Session{ID: "s", Instance: lease.NewInstance("n", ""), Timing: lease.Timing{Interval: time.Hour, Timeout: 10 * time.Hour}}
	if _, err := store.StartSession(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	f := NewFaulty(store, 1)
	f.Change(func(now *Network) { *now = n })
	t.Cleanup(f.Wait)
	return store, f, func() (lease.Renewal, error) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		return f.RenewSession(ctx, s.ID)
	}
}

// seq is how often the session was started and renewed.
func seq(t *testing.T, store *memory.Store) int64 {
	t.Helper()
	all, err := store.Sessions(t.Context())
	if err != nil || len(all) != 1 {
		t.Fatalf("%d sessions, %v", len(all), err)
	}
	return all[0].Seq
}

func TestFaulty(t *testing.T) {
	for name, c := range map[string]struct {
		network Network
		err     error
		took    time.Duration
		applied int64 // when the call has returned
		later   int64 // when all has arrived
	}{
		"perfect":   {Network{}, nil, 0, 1, 1},
		"slow":      {Network{MinDelay: 200 * time.Millisecond, MaxDelay: 200 * time.Millisecond}, nil, 400 * time.Millisecond, 1, 1},
		"too slow":  {Network{MinDelay: 600 * time.Millisecond, MaxDelay: 600 * time.Millisecond}, lease.ErrUnknown, time.Second, 1, 1},
		"refused":   {Network{Refuse: 1}, lease.ErrUnavailable, 0, 0, 0},
		"lost":      {Network{Lose: 1}, lease.ErrUnknown, time.Second, 0, 0},
		"late":      {Network{Late: 1}, lease.ErrUnknown, time.Second, 0, 1},
		"twice":     {Network{Duplicate: 1}, nil, 0, 1, 2},
		"cut there": {Network{CutRequests: true}, lease.ErrUnknown, time.Second, 0, 0},
		"cut back":  {Network{CutAnswers: true}, lease.ErrUnknown, time.Second, 1, 1},
		"cut both":  {Network{CutRequests: true, CutAnswers: true}, lease.ErrUnknown, time.Second, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, f, renew := behind(t, c.network)
				began := time.Now()
				_, err := renew()
				if !errors.Is(err, c.err) || err != nil && c.err == nil {
					t.Errorf("the answer is %v, want %v", err, c.err)
				}
				if took := time.Since(began); took != c.took {
					t.Errorf("it took %v, want %v", took, c.took)
				}
				if got := seq(t, store) - 1; got != c.applied {
					t.Errorf("applied %d times when it returned, want %d", got, c.applied)
				}
				f.Wait()
				if got := seq(t, store) - 1; got != c.later {
					t.Errorf("applied %d times in the end, want %d", got, c.later)
				}
			})
		})
	}
}

func TestFaultyDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, f, _ := behind(t, Network{})
		if _, err := f.RenewSession(context.Background(), "s"); !errors.Is(err, lease.ErrInvalid) {
			t.Errorf("a call without a deadline: %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		cancel()
		if _, err := f.RenewSession(ctx, "s"); !errors.Is(err, lease.ErrUnavailable) {
			t.Errorf("a call whose context has ended: %v", err)
		}
		if seq(t, store) != 1 {
			t.Error("a request that was not sent was applied")
		}
	})
}

func TestFaultyChance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, _, renew := behind(t, Network{Lose: 0.1})
		failed := 0
		for range 1000 {
			if _, err := renew(); err != nil {
				failed++
			}
		}
		if failed < 140 || failed > 240 {
			t.Errorf("%d of 1000 calls failed at a loss of 10 %% each way, want about 190", failed)
		}
	})
}

func TestFaultyReorders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, f, _ := behind(t, Network{MaxDelay: 500 * time.Millisecond})
		before := 0
		for range 50 {
			order := make(chan int, 2)
			for i := range 2 {
				go func() {
					ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
					defer cancel()
					if _, err := f.Get(ctx, lease.ID{Space: "role", Key: "r"}); err != nil {
						t.Error(err)
					}
					order <- i
				}()
				synctest.Wait()
			}
			if first := <-order; first == 1 {
				before++
			}
			<-order
		}
		if _ = store; before == 0 || before == 50 {
			t.Errorf("the second request overtook the first %d times in 50", before)
		}
	})
}

func TestFaultyWatch(t *testing.T) {
	for name, c := range map[string]struct {
		network Network
		want    int
	}{"perfect": {Network{}, 11}, "lost": {Network{LoseWake: 1}, 0}, "cut": {Network{CutAnswers: true}, 0}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, f, _ := behind(t, c.network)
				ctx, cancel := context.WithCancel(t.Context())
				woken, done := make(chan lease.Change, 100), make(chan error, 1)
				go func() { done <- f.Watch(ctx, func(c lease.Change) { woken <- c }) }()
				synctest.Wait()
				for i := range 10 {
					id := lease.ID{Space: "role", Key: string(rune('a' + i))}
					if _, err := store.Acquire(ctx, lease.Expectation{Lease: id, Session: "s"}); err != nil {
						t.Fatal(err)
					}
				}
				time.Sleep(time.Second)
				if len(woken) != c.want {
					t.Errorf("%d wake-ups, want %d", len(woken), c.want)
				}
				cancel()
				if err := <-done; err != nil {
					t.Error(err)
				}
			})
		})
	}
}
