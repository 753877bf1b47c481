package gocron_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-co-op/gocron/v2"

	understudy "github.com/understudy-ha/understudy/adapters/gocron"
	"github.com/understudy-ha/understudy/elect"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/lease/leasetest"
	"github.com/understudy-ha/understudy/store/memory"
	"github.com/understudy-ha/understudy/store/open"
)

var (
	timing = lease.Timing{Interval: time.Second, Timeout: 5 * time.Second}
	// In real time: where a takeover is waited for, and where a busy machine must not make one.
	quick   = lease.Timing{Interval: 300 * time.Millisecond, Timeout: 2 * time.Second}
	patient = lease.Timing{Interval: 2 * time.Second, Timeout: 30 * time.Second}
)

// keep starts an instance. A nil clock is the host's.
func keep(t *testing.T, store leasetest.Target, name string, clock lease.Clock, timing lease.Timing) (k *lease.Keeper, link *leasetest.Faulty) {
	t.Helper()
	link = leasetest.NewFaulty(store, rand.Uint64())
	k, err := lease.NewKeeper(lease.KeeperConfig{Store: link, Roster: link, Instance: lease.NewInstance(name, ""), Timing: timing, Clock: clock})
	if err != nil {
		t.Fatal(err)
	}
	background(t, k.Run)
	return k, link
}

func background(t *testing.T, run func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
}

func elector(t *testing.T, k *lease.Keeper) understudy.Elector {
	t.Helper()
	c, err := elect.NewCandidate(elect.Config{Keeper: k, Role: "scheduler"})
	if err != nil {
		t.Fatal(err)
	}
	background(t, c.Run)
	return understudy.Elector{Candidate: c}
}

func locker(t *testing.T, k *lease.Keeper, every time.Duration) *understudy.Locker {
	t.Helper()
	l, err := understudy.NewLocker(elect.OnceConfig{Keeper: k, Every: every})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// schedule starts a scheduler with one job.
func schedule(t *testing.T, with gocron.SchedulerOption, when gocron.JobDefinition, task func(), more ...gocron.JobOption) {
	t.Helper()
	s, err := gocron.NewScheduler(with)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.NewJob(when, gocron.NewTask(task), append(more, gocron.WithName("report"))...); err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() {
		if err := s.Shutdown(); err != nil {
			t.Error(err)
		}
	})
}

type start struct {
	name string
	at   time.Duration
	term int64
}

// starts are what the jobs of all schedulers did.
type starts struct {
	mu  sync.Mutex
	all []start
}

func (s *starts) add(n start) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, n)
}

func (s *starts) get() []start {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]start(nil), s.all...)
}

// Two schedulers, the clock of one three seconds behind; the job takes no time. The one that runs the third time dies in it.
func TestLockerStartsEachTimeOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const period, times = 20 * time.Second, 8
		store, began, s := memory.New(nil), time.Now(), &starts{}
		for i, name := range []string{"a", "b"} {
			k, link := keep(t, store, name, &leasetest.BubbleClock{}, timing)
			l := locker(t, k, 10*time.Second)
			first := began.Add(period + time.Duration(i)*3*time.Second)
			schedule(t, gocron.WithDistributedLocker(l), gocron.DurationJob(period), func() {
				err := l.RunLocked("report", func(ctx context.Context, term elect.Term) error {
					at := time.Since(began).Truncate(period)
					s.add(start{name, at, term.Number})
					if at == 3*period {
						link.Change(func(n *leasetest.Network) { n.CutRequests, n.CutAnswers = true, true })
						<-ctx.Done() // its end comes before another can have the lock
						if l, err := store.Get(context.Background(), term.Lease); err != nil || !l.Held() || l.Term != term.Number {
							t.Errorf("when the work was told, the lock was %+v, %v", l, err)
						}
					}
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			}, gocron.WithStartAt(gocron.WithStartDateTime(first)))
		}
		time.Sleep(times*period + period/2)
		all := s.get()
		if len(all) != times {
			t.Fatalf("%d starts of %d times: %v", len(all), times, all)
		}
		for i, one := range all {
			want := "a"
			if i >= 3 {
				want = "b"
			}
			if one.name != want || one.at != time.Duration(i+1)*period {
				t.Errorf("start %d: %+v, want %s", i, one, want)
			}
			if i > 0 && one.term <= all[i-1].term {
				t.Errorf("term %d after %d", one.term, all[i-1].term)
			}
		}
	})
}

func TestLockerRefusesAndReleases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New(nil)
		k, _ := keep(t, store, "a", &leasetest.BubbleClock{}, timing)
		if _, err := understudy.NewLocker(elect.OnceConfig{Keeper: k, Every: time.Second}); !errors.Is(err, lease.ErrInvalid) {
			t.Errorf("a period below the timeout: %v, want ErrInvalid", err)
		}
		l := locker(t, k, 10*time.Second)
		none := func(context.Context, elect.Term) error { t.Error("it ran without a lock"); return nil }
		if err := l.RunLocked("j", none); !errors.Is(err, lease.ErrNotHeld) {
			t.Errorf("without a lock: %v, want ErrNotHeld", err)
		}
		held, err := l.Lock(t.Context(), "j")
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(held.Unlock(t.Context()), held.Unlock(t.Context())); err != nil {
			t.Errorf("Unlock: %v", err)
		}
		if err := l.RunLocked("j", none); !errors.Is(err, lease.ErrNotHeld) {
			t.Errorf("after Unlock: %v, want ErrNotHeld", err)
		}
		if _, err := l.Lock(t.Context(), "j"); !errors.Is(err, elect.ErrNotDue) {
			t.Errorf("at once again: %v, want ErrNotDue", err)
		}
		if _, err := l.Lock(t.Context(), "a\x00"); !errors.Is(err, lease.ErrInvalid) {
			t.Errorf("a hostile name: %v, want ErrInvalid", err)
		}
		time.Sleep(10 * time.Second)
		if held, err = l.Lock(t.Context(), "j"); err != nil {
			t.Fatalf("after the period: %v", err)
		}
		_ = held.Unlock(t.Context())
	})
}

// One of two runs every second; when it is cut off, the other does within T + I.
func TestElectorHasOneScheduler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, began, s := memory.New(nil), time.Now(), &starts{}
		links := map[string]*leasetest.Faulty{}
		for _, name := range []string{"a", "b"} {
			k, link := keep(t, store, name, &leasetest.BubbleClock{}, timing)
			links[name] = link
			e := elector(t, k)
			schedule(t, gocron.WithDistributedElector(e), gocron.DurationJob(time.Second), func() {
				_ = e.RunIfPrimary(func(_ context.Context, term elect.Term) error {
					s.add(start{name, time.Since(began), term.Number})
					return nil
				})
			})
		}
		time.Sleep(10 * time.Second)
		before := s.get()
		if len(before) < 9 {
			t.Fatalf("starts in ten seconds: %v", before)
		}
		first := before[0]
		links[first.name].Change(func(n *leasetest.Network) { n.CutRequests, n.CutAnswers = true, true })
		time.Sleep(20 * time.Second)
		var after []start
		for _, one := range s.get() {
			switch {
			case one.name == first.name && one.term == first.term && len(after) == 0:
			case one.name != first.name && one.term > first.term:
				after = append(after, one)
			default:
				t.Errorf("start out of turn: %+v", one)
			}
		}
		if limit := 10*time.Second + timing.WorstTakeover() + time.Second; len(after) == 0 || after[0].at > limit {
			t.Errorf("the other ran %v, want it from %v on", after, limit)
		}
	})
}

// await polls, on a machine that may be busy, until something is so.
func await(t *testing.T, what string, so func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !so(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within a minute: %s", what)
		}
	}
}

// openSQLite starts two instances on one file, each with a store of its own.
func openSQLite(t *testing.T, timing lease.Timing, run func(k *lease.Keeper)) map[string]*leasetest.Faulty {
	t.Helper()
	links := map[string]*leasetest.Faulty{}
	url := "sqlite:" + filepath.Join(t.TempDir(), "u.db")
	for _, name := range []string{"a", "b"} {
		st, err := open.Open(t.Context(), url, open.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = st.Close() })
		k, link := keep(t, st, name, nil, timing)
		links[name] = link
		run(k)
	}
	return links
}

func TestLockerOnSQLite(t *testing.T) {
	t.Parallel()
	s := &starts{}
	var lockers []*understudy.Locker
	openSQLite(t, patient, func(k *lease.Keeper) {
		l := locker(t, k, time.Hour)
		lockers = append(lockers, l)
		schedule(t, gocron.WithDistributedLocker(l), gocron.OneTimeJob(gocron.OneTimeJobStartImmediately()), func() {
			_ = l.RunLocked("report", func(_ context.Context, term elect.Term) error {
				s.add(start{k.Instance().Name, 0, term.Number})
				return nil
			})
		})
	})
	await(t, "a start", func() bool { return len(s.get()) > 0 })
	for _, l := range lockers { // until gocron's own attempt has ended there, the name is in use
		await(t, "a refusal", func() bool {
			_, err := l.Lock(t.Context(), "report")
			return errors.Is(err, elect.ErrNotDue)
		})
	}
	if all := s.get(); len(all) != 1 || all[0].term == 0 {
		t.Fatalf("starts: %v, want one", all)
	}
}

func TestElectorOnSQLite(t *testing.T) {
	t.Parallel()
	s := &starts{}
	links := openSQLite(t, quick, func(k *lease.Keeper) {
		e := elector(t, k)
		schedule(t, gocron.WithDistributedElector(e), gocron.DurationJob(100*time.Millisecond), func() {
			_ = e.RunIfPrimary(func(_ context.Context, term elect.Term) error {
				s.add(start{k.Instance().Name, 0, term.Number})
				return nil
			})
		})
	})
	last := func() start { all := s.get(); return all[len(all)-1] }
	await(t, "a start", func() bool { return len(s.get()) > 0 })
	first := last()
	links[first.name].Change(func(n *leasetest.Network) { n.CutRequests, n.CutAnswers = true, true })
	await(t, "a start by the other", func() bool { return last().name != first.name })
	if next := last(); next.term <= first.term {
		t.Errorf("%+v after %+v", next, first)
	}
}
