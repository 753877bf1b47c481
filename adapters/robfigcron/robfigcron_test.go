package robfigcron_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/understudy-ha/understudy/adapters/robfigcron"
	"github.com/understudy-ha/understudy/elect"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/lease/leasetest"
	"github.com/understudy-ha/understudy/store/memory"
	"github.com/understudy-ha/understudy/store/open"
)

// instance is one program: a keeper and its link to the store.
type instance struct {
	*lease.Keeper
	link *leasetest.Faulty
}

func (i instance) cut() {
	i.link.Change(func(n *leasetest.Network) { n.CutRequests, n.CutAnswers = true, true })
}

func keep(t *testing.T, store leasetest.Target, name string, clock lease.Clock, timing lease.Timing) instance {
	t.Helper()
	link := leasetest.NewFaulty(store, rand.Uint64())
	k, err := lease.NewKeeper(lease.KeeperConfig{Store: link, Roster: link, Instance: lease.NewInstance(name, ""), Timing: timing, Clock: clock})
	if err != nil {
		t.Fatal(err)
	}
	background(t, k.Run)
	return instance{k, link}
}

func background(t *testing.T, run func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
}

func candidate(t *testing.T, i instance) *elect.Candidate {
	t.Helper()
	c, err := elect.NewCandidate(elect.Config{Keeper: i.Keeper, Role: "cron"})
	if err != nil {
		t.Fatal(err)
	}
	background(t, c.Run)
	return c
}

func startCron(t *testing.T, c *cron.Cron, spec string, j cron.Job) {
	t.Helper()
	if _, err := c.AddJob(spec, j); err != nil {
		t.Fatal(err)
	}
	c.Start()
	t.Cleanup(func() { <-c.Stop().Done() })
}

type start struct {
	name string
	at   time.Duration
	term int64
}

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

var bubbleTiming = lease.Timing{Interval: time.Second, Timeout: 5 * time.Second}

// Three crons with the same line; the clock of each is two seconds behind the one before. The job takes no time; the instance that runs
// the third time dies in it.
func TestOnceStartsEachTimeOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const times = 8
		store, began, s := memory.New(nil), time.Now(), &starts{}
		for n, name := range []string{"a", "b", "c"} {
			i := keep(t, store, name, &leasetest.BubbleClock{}, bubbleTiming)
			report := func(ctx context.Context, term elect.Term) error {
				at := time.Since(began).Truncate(time.Minute)
				s.add(start{name, at, term.Number})
				if at == 3*time.Minute {
					i.cut()
					<-ctx.Done()
					if l, err := store.Get(context.Background(), term.Lease); err != nil || !l.Held() || l.Term != term.Number {
						t.Errorf("when the work was told, the lock was %+v, %v", l, err)
					}
				}
				return nil
			}
			cfg := elect.OnceConfig{Keeper: i.Keeper, Job: "report", Every: 30 * time.Second}
			time.AfterFunc(time.Duration(n)*2*time.Second, func() {
				startCron(t, cron.New(), "@every 1m", robfigcron.Once(t.Context(), cfg, report))
			})
		}
		time.Sleep(times*time.Minute + 30*time.Second)
		all := s.get()
		if len(all) != times {
			t.Fatalf("%d starts of %d times: %v", len(all), times, all)
		}
		for i, one := range all {
			want := "a"
			if i >= 3 {
				want = "b"
			}
			if one.name != want || one.at != time.Duration(i+1)*time.Minute {
				t.Errorf("start %d: %+v, want %s", i, one, want)
			}
			if i > 0 && one.term <= all[i-1].term {
				t.Errorf("term %d after %d", one.term, all[i-1].term)
			}
		}
	})
}

// One of two runs every second; when it is cut off, the other does within T + I. Nobody starts while the old one's last job runs.
func TestIfPrimaryHasOneCron(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, began, s := memory.New(nil), time.Now(), &starts{}
		instances := map[string]instance{}
		for _, name := range []string{"a", "b"} {
			i := keep(t, store, name, &leasetest.BubbleClock{}, bubbleTiming)
			instances[name] = i
			c := candidate(t, i)
			startCron(t, cron.New(cron.WithChain(robfigcron.IfPrimary(c, nil))), "@every 1s", cron.FuncJob(func() {
				err := c.RunIfPrimary(func(_ context.Context, term elect.Term) error {
					s.add(start{name, time.Since(began), term.Number})
					return nil
				})
				if err != nil {
					t.Errorf("a job ran on a standby: %v", err)
				}
			}))
		}
		time.Sleep(10 * time.Second)
		before := s.get()
		if len(before) < 9 {
			t.Fatalf("starts in ten seconds: %v", before)
		}
		first := before[0]
		instances[first.name].cut()
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
		if limit := 10*time.Second + bubbleTiming.WorstTakeover() + time.Second; len(after) == 0 || after[0].at > limit {
			t.Errorf("the other ran %v, want it from %v on", after, limit)
		}
	})
}

func TestWhatIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := keep(t, memory.New(nil), "a", &leasetest.BubbleClock{}, bubbleTiming)
		var out bytes.Buffer
		cfg := elect.OnceConfig{Keeper: i.Keeper, Job: "report", Every: time.Minute, Logger: slog.New(slog.NewTextHandler(&out, nil))}
		job := robfigcron.Once(t.Context(), cfg, func(context.Context, elect.Term) error { return errors.New("no paper") })
		job.Run()
		job.Run()                                                     // within the minute: left out, and not worth a line
		if got := strings.Count(out.String(), "no paper"); got != 2 { // that the job failed, and why its lease was released
			t.Errorf("%d lines tell the error:\n%s", got, out.String())
		}
		defer func() {
			if recover() == nil {
				t.Error("a job without a name was accepted")
			}
		}()
		cfg.Job = ""
		robfigcron.Once(t.Context(), cfg, nil)
	})
}

// openSQLite starts two instances on one file, each with a store of its own.
func openSQLite(t *testing.T, timing lease.Timing, run func(i instance)) map[string]instance {
	t.Helper()
	instances := map[string]instance{}
	url := "sqlite:" + filepath.Join(t.TempDir(), "u.db")
	for _, name := range []string{"a", "b"} {
		st, err := open.Open(t.Context(), url, open.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = st.Close() })
		instances[name] = keep(t, st, name, nil, timing)
		run(instances[name])
	}
	return instances
}

// In real time, and with a timeout that no busy machine misses: both try every second, one starts once.
func TestOnceOnSQLite(t *testing.T) {
	t.Parallel()
	s, ran := &starts{}, make(chan string, 100)
	openSQLite(t, lease.Timing{Interval: 2 * time.Second, Timeout: 30 * time.Second}, func(i instance) {
		cfg := elect.OnceConfig{Keeper: i.Keeper, Job: "report", Every: time.Hour}
		job := robfigcron.Once(t.Context(), cfg, func(_ context.Context, term elect.Term) error {
			s.add(start{i.Instance().Name, 0, term.Number})
			return nil
		})
		startCron(t, cron.New(), "@every 1s", cron.FuncJob(func() { job.Run(); ran <- i.Instance().Name }))
	})
	tried := map[string]int{}
	await(t, "two attempts of each", func() bool {
		select {
		case name := <-ran:
			tried[name]++
		default:
		}
		return tried["a"] > 1 && tried["b"] > 1
	})
	if all := s.get(); len(all) != 1 || all[0].term == 0 {
		t.Errorf("starts within the hour: %v, want one", all)
	}
}

func TestIfPrimaryOnSQLite(t *testing.T) {
	t.Parallel()
	s := &starts{}
	instances := openSQLite(t, lease.Timing{Interval: 300 * time.Millisecond, Timeout: 2 * time.Second}, func(i instance) {
		c := candidate(t, i)
		startCron(t, cron.New(cron.WithChain(robfigcron.IfPrimary(c, nil))), "@every 1s", cron.FuncJob(func() {
			_ = c.RunIfPrimary(func(_ context.Context, term elect.Term) error {
				s.add(start{i.Instance().Name, 0, term.Number})
				return nil
			})
		}))
	})
	last := func() start { all := s.get(); return all[len(all)-1] }
	await(t, "a start", func() bool { return len(s.get()) > 0 })
	first := last()
	instances[first.name].cut()
	await(t, "a start by the other", func() bool { return last().name != first.name })
	if next := last(); next.term <= first.term {
		t.Errorf("%+v after %+v", next, first)
	}
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
