package clientgo_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"

	"github.com/understudy-ha/understudy/adapters/clientgo"
	"github.com/understudy-ha/understudy/elect"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/lease/leasetest"
	"github.com/understudy-ha/understudy/store/memory"
	"github.com/understudy-ha/understudy/store/open"
)

// durations of a test's locks and electors: client-go's own unless in real time.
type durations struct{ lease, renew, retry time.Duration }

var (
	defaults = durations{15 * time.Second, 10 * time.Second, 2 * time.Second}
	quick    = durations{4 * time.Second, 2 * time.Second, 500 * time.Millisecond}
)

// judge sees who leads.
type judge struct {
	mu      sync.Mutex
	leading map[string]context.Context
	terms   []int64
	leaders []string
	faults  []string
}

func (j *judge) lead(ctx context.Context, name string, lock *clientgo.Lock) {
	term := lock.Term()
	j.mu.Lock()
	for other, its := range j.leading {
		if its.Err() == nil {
			j.faults = append(j.faults, fmt.Sprintf("%s leads beside %s", name, other))
		}
	}
	// Term is 0 if the lock was lost before the callback came to run: then it has nothing to send along.
	if n := len(j.terms); term != 0 && n > 0 && term <= j.terms[n-1] {
		j.faults = append(j.faults, fmt.Sprintf("term %d after %d", term, j.terms[n-1]))
	}
	if term != 0 {
		j.terms = append(j.terms, term)
	}
	j.leading[name], j.leaders = ctx, append(j.leaders, name)
	j.mu.Unlock()
	for ctx.Err() == nil {
		if now := lock.Term(); now != 0 && now != term {
			j.mu.Lock()
			j.faults = append(j.faults, fmt.Sprintf("%s leads on under term %d instead of %d", name, now, term))
			j.mu.Unlock()
		}
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func (j *judge) last() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.leaders) == 0 {
		return ""
	}
	return j.leaders[len(j.leaders)-1]
}

func (j *judge) found() (faults []string, terms int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return append([]string(nil), j.faults...), len(j.terms)
}

// candidate is a program with client-go's leader election, which it starts again whenever it has stopped leading.
type candidate struct {
	lock *clientgo.Lock
	link *leasetest.Faulty
	stop func()
}

func (c candidate) network(n leasetest.Network) {
	c.link.Change(func(l *leasetest.Network) { *l = n })
}

var cut = leasetest.Network{CutRequests: true, CutAnswers: true}

// start starts a candidate; wrap may put something between client-go and the lock.
func start(t *testing.T, store leasetest.Target, identity string, d durations, j *judge, clock lease.Clock, wrap func(*clientgo.Lock) resourcelock.Interface, release bool) candidate {
	t.Helper()
	link := leasetest.NewFaulty(store, rand.Uint64())
	lock, err := clientgo.NewLock(clientgo.Config{
		Store: link, Role: "controller", Identity: identity, Clock: clock,
		LeaseDuration: d.lease, RenewDeadline: d.renew, RetryPeriod: d.retry,
	})
	if err != nil {
		t.Fatal(err)
	}
	between := resourcelock.Interface(lock)
	if wrap != nil {
		between = wrap(lock)
	}
	ctx, cancel := context.WithCancel(klog.NewContext(context.Background(), logr.Discard()))
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			var work sync.WaitGroup
			leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{
				Lock: between, LeaseDuration: d.lease, RenewDeadline: d.renew, RetryPeriod: d.retry, ReleaseOnCancel: release,
				Callbacks: leaderelection.LeaderCallbacks{
					OnStartedLeading: func(ctx context.Context) { work.Go(func() { j.lead(ctx, identity, lock) }) },
					OnStoppedLeading: func() {},
				},
			})
			work.Wait()
		}
	}()
	c := candidate{lock, link, sync.OnceFunc(func() { cancel(); <-done; link.Wait() })}
	t.Cleanup(c.stop)
	return c
}

// trouble lets three candidates compete for half an hour on networks that lose, delay, cut and repeat, and returns what the judge saw.
func trouble(t *testing.T, seed uint64, wrap func(*clientgo.Lock) resourcelock.Interface) (faults []string, terms int) {
	synctest.Test(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(seed, 1))
		store, j := memory.New(nil), &judge{leading: map[string]context.Context{}}
		var all []candidate
		for _, name := range []string{"a", "b", "c"} {
			all = append(all, start(t, store, name, defaults, j, &leasetest.BubbleClock{}, wrap, rng.IntN(2) == 0))
		}
		for range 60 {
			time.Sleep(time.Duration(rng.Int64N(int64(time.Minute))))
			one := all[rng.IntN(len(all))]
			switch rng.IntN(4) {
			case 0:
				one.network(leasetest.Network{})
			case 1:
				one.network(leasetest.Network{CutRequests: rng.IntN(2) == 0, CutAnswers: true})
			case 2:
				one.network(leasetest.Network{MaxDelay: time.Duration(rng.Int64N(int64(3 * time.Second)))})
			case 3:
				one.network(leasetest.Network{Lose: rng.Float64() / 2, Refuse: rng.Float64() / 4, Duplicate: 0.1, Late: rng.Float64() / 4, MaxDelay: time.Second})
			}
		}
		faults, terms = j.found()
	})
	return faults, terms
}

func TestNeverTwoLeaders(t *testing.T) {
	total := 0
	for seed := range uint64(40) {
		faults, terms := trouble(t, seed, nil)
		if total += terms; len(faults) > 0 {
			t.Fatalf("seed %d: %s", seed, strings.Join(faults, "\n"))
		}
	}
	if total < 200 {
		t.Errorf("only %d terms in all: too little happened", total)
	}
}

// credulous takes an outcome that is not known for a success.
type credulous struct{ *clientgo.Lock }

func (c credulous) Update(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	if err := c.Lock.Update(ctx, r); !errors.Is(err, lease.ErrUnknown) {
		return err
	}
	return nil
}

// TestJudgeCatches: a lock that is wrong is found.
func TestJudgeCatches(t *testing.T) {
	for seed := range uint64(20) {
		if faults, _ := trouble(t, seed, func(l *clientgo.Lock) resourcelock.Interface { return credulous{l} }); len(faults) > 0 {
			return
		}
	}
	t.Error("in 20 seeds the judge saw nothing wrong")
}

// until waits in a bubble and returns how long it took.
func until(t *testing.T, within time.Duration, what string, so func() bool) time.Duration {
	t.Helper()
	began := time.Now()
	for ; !so(); time.Sleep(10 * time.Millisecond) {
		if time.Since(began) > within {
			t.Fatalf("not within %v: %s", within, what)
		}
	}
	return time.Since(began)
}

func TestTakeover(t *testing.T) {
	for _, release := range []bool{true, false} {
		t.Run(fmt.Sprint("release ", release), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, j := memory.New(nil), &judge{leading: map[string]context.Context{}}
				all := map[string]candidate{}
				for _, name := range []string{"a", "b", "c"} {
					all[name] = start(t, store, name, defaults, j, &leasetest.BubbleClock{}, nil, release)
				}
				polls := defaults.retry*22/10 + time.Second // client-go's jitter
				until(t, polls, "a leader", func() bool { return j.last() != "" })
				time.Sleep(time.Minute)
				first := j.last()
				if p, err := elect.Resolve(t.Context(), store, "controller"); err != nil || p.Name != first || p.Term != all[first].lock.Term() {
					t.Errorf("the role's primary is %+v, %v; want %s", p, err, first)
				}
				record, _, err := all[first].lock.Get(t.Context())
				if err != nil || record.HolderIdentity != first || record.LeaseDurationSeconds != 15 || time.Since(record.RenewTime.Time) > 2*defaults.retry {
					t.Errorf("the record is %+v, %v", record, err)
				}

				all[first].network(cut)
				until(t, defaults.lease+polls, "a takeover", func() bool { return j.last() != first })
				if all[first].lock.Term() != 0 {
					t.Error("the leader that was cut off still has a term")
				}
				all[first].network(leasetest.Network{})

				second := j.last()
				time.Sleep(time.Minute)
				all[second].stop()
				within := polls
				if !release {
					within += defaults.lease
				}
				until(t, within, "the next leader", func() bool { return j.last() != second })
				if faults, terms := j.found(); len(faults) > 0 || terms != 3 {
					t.Errorf("%d terms; %v", terms, faults)
				}
			})
		})
	}
}

// Answers that take so long that client-go would lead on beyond the session: they are failures, wherever the leader is cut off then.
func TestSlowAnswers(t *testing.T) {
	for phase := range 20 {
		synctest.Test(t, func(t *testing.T) {
			store, j := memory.New(nil), &judge{leading: map[string]context.Context{}}
			all := map[string]candidate{}
			for _, name := range []string{"a", "b", "c"} {
				all[name] = start(t, store, name, defaults, j, &leasetest.BubbleClock{}, nil, true)
			}
			until(t, time.Minute, "a leader", func() bool { return j.last() != "" })
			first := j.last()
			all[first].network(leasetest.Network{MinDelay: 2400 * time.Millisecond, MaxDelay: 2400 * time.Millisecond})
			time.Sleep(time.Duration(phase) * time.Second)
			all[first].network(cut)
			until(t, time.Minute, "a takeover", func() bool { return j.last() != first })
			if faults, _ := j.found(); len(faults) > 0 {
				t.Errorf("cut off after %d s: %v", phase, faults)
			}
		})
	}
}

// deaf is a store that renews nothing any more once it is told so.
type deaf struct {
	*memory.Store
	renewsNot atomic.Bool
}

func (d *deaf) RenewSession(ctx context.Context, id string) (lease.Renewal, error) {
	if d.renewsNot.Load() {
		return lease.Renewal{}, lease.ErrUnavailable
	}
	return d.Store.RenewSession(ctx, id)
}

// A leader that gives up because it cannot renew, while the store answers all else: client-go asks to release before it tells the work.
func TestNoReleaseBeforeTheWorkIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, j := memory.New(nil), &judge{leading: map[string]context.Context{}}
		own := &deaf{Store: store}
		a := start(t, own, "a", defaults, j, &leasetest.BubbleClock{}, nil, true)
		until(t, time.Minute, "a leader", func() bool { return j.last() != "" })
		for i := range 30 {
			start(t, store, fmt.Sprint("standby ", i), defaults, j, &leasetest.BubbleClock{}, nil, true)
		}
		time.Sleep(time.Minute)
		a.network(leasetest.Network{MinDelay: 200 * time.Millisecond, MaxDelay: 200 * time.Millisecond})
		own.renewsNot.Store(true)
		until(t, time.Minute, "a takeover", func() bool { return j.last() != "a" })
		if faults, _ := j.found(); len(faults) > 0 {
			t.Error(faults)
		}
	})
}

// A term that ends under a leader, as when its session is ended by hand, is not followed by another before its work was told.
func TestALostTermEndsTheLeadership(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, j := memory.New(nil), &judge{leading: map[string]context.Context{}}
		a := start(t, store, "a", defaults, j, &leasetest.BubbleClock{}, nil, true)
		until(t, time.Minute, "a leader", func() bool { return a.lock.Term() != 0 })
		before := a.lock.Term()
		l, err := store.Get(t.Context(), lease.ID{Space: elect.Space, Key: "controller"})
		if err == nil {
			err = store.EndSession(t.Context(), l.Session, "by hand")
		}
		if err != nil {
			t.Fatal(err)
		}
		until(t, time.Minute, "the next term", func() bool { return a.lock.Term() > before })
		synctest.Wait() // client-go calls OnStartedLeading in a goroutine of its own
		if faults, terms := j.found(); len(faults) > 0 || terms != 2 {
			t.Errorf("%d terms; %v", terms, faults)
		}
	})
}

// pausing stops client-go once for a while when an Update has succeeded, as a pause of the process does.
type pausing struct {
	*clientgo.Lock
	pause atomic.Int64
}

func (p *pausing) Update(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	err := p.Lock.Update(ctx, r)
	time.Sleep(time.Duration(p.pause.Swap(0)))
	return err
}

// client-go leads on after a pause, because its RenewDeadline begins when it runs again. The lock's contexts have ended by then, also
// on a host that was suspended: there, no timer fires in time.
func TestAPauseEndsTheContext(t *testing.T) {
	for _, suspended := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			store, j, clock := memory.New(nil), &judge{leading: map[string]context.Context{}}, &leasetest.BubbleClock{}
			p := &pausing{}
			a := start(t, store, "a", defaults, j, clock, func(l *clientgo.Lock) resourcelock.Interface { p.Lock = l; return p }, true)
			all := map[string]context.Context{"made before the term": a.lock.Context(t.Context())}
			until(t, time.Minute, "a leader", func() bool { return j.last() == "a" })
			all["made under the term"] = a.lock.Context(t.Context())
			if suspended {
				clock.Delay(time.Hour)
			}
			time.Sleep(time.Minute)
			for made, ctx := range all {
				if ctx.Err() != nil {
					t.Errorf("the context %s ended while a led: %v", made, context.Cause(ctx))
				}
			}
			p.pause.Store(int64(20 * time.Second))
			b := start(t, store, "b", defaults, j, &leasetest.BubbleClock{}, nil, true)
			until(t, time.Minute, "a takeover", func() bool { return b.lock.Term() != 0 })
			for made, ctx := range all {
				select {
				case <-ctx.Done():
				default:
					if !suspended {
						t.Errorf("the context %s: Done is open while b leads", made)
					}
				}
				if ctx.Err() == nil || !errors.Is(context.Cause(ctx), lease.ErrLost) {
					t.Errorf("suspended %v: the context %s while b leads: %v, want ErrLost", suspended, made, context.Cause(ctx))
				}
			}
			time.Sleep(time.Minute)
			b.stop()
			until(t, time.Minute, "the next term", func() bool { return a.lock.Term() != 0 })
			if ctx := a.lock.Context(t.Context()); ctx.Err() != nil {
				t.Errorf("a context of the next term: %v", context.Cause(ctx))
			}
		})
	}
}

// tardy is a store that answers late, and not by the deadline of the call.
type tardy struct {
	*memory.Store
	by atomic.Int64
}

func (s *tardy) WriteState(ctx context.Context, id lease.ID, term int64, data []byte) error {
	err := s.Store.WriteState(ctx, id, term, data)
	time.Sleep(time.Duration(s.by.Load()))
	return err
}

// A renewal that succeeds when the work has already been told to end would let client-go lead without it.
func TestALostTermIsNotRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &tardy{Store: memory.New(nil)}
		lock, err := clientgo.NewLock(clientgo.Config{Store: store, Role: "r", Identity: "a", Clock: &leasetest.BubbleClock{}})
		if err != nil {
			t.Fatal(err)
		}
		record := resourcelock.LeaderElectionRecord{HolderIdentity: "a", LeaseDurationSeconds: 15}
		if err := lock.Create(t.Context(), record); err != nil {
			t.Fatal(err)
		}
		ctx := lock.Context(t.Context())
		time.Sleep(12500 * time.Millisecond) // of 13 s
		store.by.Store(int64(800 * time.Millisecond))
		if err := lock.Update(t.Context(), record); !errors.Is(err, lease.ErrLost) || ctx.Err() == nil || lock.Term() != 0 {
			t.Errorf("%v, want ErrLost; the context: %v; term %d", err, ctx.Err(), lock.Term())
		}
	})
}

// Two programs under one identity: client-go by itself would let both lead.
func TestOneIdentityTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, j := memory.New(nil), &judge{leading: map[string]context.Context{}}
		a := start(t, store, "x", defaults, j, &leasetest.BubbleClock{}, nil, true)
		until(t, time.Minute, "a leader", func() bool { return a.lock.Term() != 0 })
		b := start(t, store, "x", defaults, j, &leasetest.BubbleClock{}, nil, true)
		for range 60 {
			time.Sleep(time.Second)
			if b.lock.Term() != 0 {
				t.Fatal("both lead")
			}
		}
		// A lock is its elector's alone: another one looks.
		c, err := clientgo.NewLock(clientgo.Config{Store: store, Role: "controller", Identity: "x", Clock: &leasetest.BubbleClock{}})
		if err != nil {
			t.Fatal(err)
		}
		if record, _, err := c.Get(t.Context()); err != nil || record.HolderIdentity != "x (another process)" {
			t.Errorf("the other sees the holder %q, %v", record.HolderIdentity, err)
		}
		a.stop()
		until(t, time.Minute, "the other", func() bool { return b.lock.Term() != 0 })
	})
}

func TestRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New(nil)
		for name, c := range map[string]struct {
			cfg  clientgo.Config
			want error
		}{
			"no store":         {clientgo.Config{Role: "r", Identity: "a"}, lease.ErrInvalid},
			"no role":          {clientgo.Config{Store: store, Identity: "a"}, lease.ErrInvalid},
			"no identity":      {clientgo.Config{Store: store, Role: "r"}, lease.ErrInvalid},
			"no room":          {clientgo.Config{Store: store, Role: "r", Identity: "a", LeaseDuration: 14 * time.Second}, lease.ErrUnsafeTiming},
			"parts of seconds": {clientgo.Config{Store: store, Role: "r", Identity: "a", LeaseDuration: 15500 * time.Millisecond}, lease.ErrInvalid},
		} {
			if _, err := clientgo.NewLock(c.cfg); !errors.Is(err, c.want) {
				t.Errorf("%s: %v, want %v", name, err, c.want)
			}
		}
		lock, err := clientgo.NewLock(clientgo.Config{Store: store, Role: "r", Identity: "a", Clock: &leasetest.BubbleClock{}})
		if err != nil {
			t.Fatal(err)
		}
		record := resourcelock.LeaderElectionRecord{HolderIdentity: "a", LeaseDurationSeconds: 30}
		if err := lock.Update(t.Context(), record); !errors.Is(err, lease.ErrInvalid) {
			t.Errorf("another LeaseDuration: %v, want ErrInvalid", err)
		}
		record.LeaseDurationSeconds = 15
		if err := lock.Create(t.Context(), record); err != nil || lock.Term() == 0 {
			t.Fatalf("the first: %v, term %d", err, lock.Term())
		}
		long, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := lock.Update(long, record); !errors.Is(err, lease.ErrInvalid) {
			t.Errorf("another RenewDeadline: %v, want ErrInvalid", err)
		}
	})
}

// In real time, each candidate with a store of its own.
func TestOnSQLite(t *testing.T) {
	url, j, all := "sqlite:"+filepath.Join(t.TempDir(), "u.db"), &judge{leading: map[string]context.Context{}}, map[string]candidate{}
	for _, name := range []string{"a", "b"} {
		st, err := open.Open(t.Context(), url, open.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = st.Close() })
		all[name] = start(t, st, name, quick, j, nil, nil, true)
	}
	until(t, time.Minute, "a leader", func() bool { return j.last() != "" })
	first := j.last()
	all[first].network(cut)
	until(t, time.Minute, "a takeover", func() bool { return j.last() != first })
	if faults, terms := j.found(); terms < 2 {
		t.Errorf("%d terms; %v", terms, faults)
	}
}
