package elect_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/understudy-ha/understudy/elect"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/lease/leasetest"
	"github.com/understudy-ha/understudy/store/memory"
)

func TestConfigRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New(nil)
		n := start(t, store, "a")
		tight := startNode(t, store, "tight", lease.Timing{Interval: time.Second, Timeout: 3 * time.Second})
		for name, c := range map[string]struct {
			cfg  elect.Config
			want error
		}{
			"no keeper":        {elect.Config{Role: "r"}, lease.ErrInvalid},
			"no role":          {elect.Config{Keeper: n.Keeper}, lease.ErrInvalid},
			"a place":          {elect.Config{Keeper: n.Keeper, Role: "r#2"}, lease.ErrInvalid},
			"control":          {elect.Config{Keeper: n.Keeper, Role: "r\x1b[2J"}, lease.ErrInvalid},
			"too long":         {elect.Config{Keeper: n.Keeper, Role: strings.Repeat("r", lease.MaxKey)}, lease.ErrInvalid},
			"too many":         {elect.Config{Keeper: n.Keeper, Role: "r", Holders: elect.MaxHolders + 1}, lease.ErrInvalid},
			"less than none":   {elect.Config{Keeper: n.Keeper, Role: "r", Holders: -1}, lease.ErrInvalid},
			"with itself":      {elect.Config{Keeper: n.Keeper, Role: "r", With: "r"}, lease.ErrInvalid},
			"with a bad role":  {elect.Config{Keeper: n.Keeper, Role: "r", With: "a\nb"}, lease.ErrInvalid},
			"too long a grace": {elect.Config{Keeper: n.Keeper, Role: "r", StopGrace: 2001 * time.Millisecond}, lease.ErrUnsafeTiming},
			"negative grace":   {elect.Config{Keeper: n.Keeper, Role: "r", StopGrace: -1}, lease.ErrUnsafeTiming},
			"no room at all":   {elect.Config{Keeper: tight.Keeper, Role: "r"}, lease.ErrUnsafeTiming},
		} {
			err := elect.Campaign(t.Context(), c.cfg, func(context.Context, elect.Term) error {
				t.Errorf("%s: the work was run", name)
				return nil
			})
			if !errors.Is(err, c.want) {
				t.Errorf("%s: %v, want %v", name, err, c.want)
			}
		}
	})
}

func TestHandOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New(nil)
		s := newStage(t)
		a, b := start(t, store, "a"), start(t, store, "b")
		ca := a.run(t, elect.Campaign, elect.Config{Role: "r"}, s.work(0))
		time.Sleep(3 * time.Second)
		b.run(t, elect.Campaign, elect.Config{Role: "r"}, s.work(0))
		time.Sleep(30 * time.Second)
		mustResolve(t, store, "r", "a")
		began := time.Now()
		if err := ca.result(); !errors.Is(err, errStop) {
			t.Errorf("the stopped campaign returned %v", err)
		}
		until(t, time.Second, "b plays", func() bool { return s.who("r") == "b" })
		if took := time.Since(began); took > 10*time.Millisecond {
			t.Errorf("the hand-over took %v", took)
		}
	})
}

func TestTakeoverAfterDeath(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New(nil)
		s := newStage(t)
		a, b := start(t, store, "a"), start(t, store, "b")
		a.run(t, elect.Run, elect.Config{Role: "r"}, s.work(time.Second))
		time.Sleep(time.Second)
		b.run(t, elect.Run, elect.Config{Role: "r"}, s.work(time.Second))
		worst := time.Duration(0)
		// Deaths at every moment of an interval; who died comes back as a standby.
		for i := range 20 {
			time.Sleep(30*time.Second + time.Duration(i)*50*time.Millisecond)
			victim, heir := a, "b"
			if s.who("r") == "b" {
				victim, heir = b, "a"
			}
			victim.cut()
			took := until(t, timing.WorstTakeover(), "takeover by "+heir, func() bool { return s.who("r") == heir })
			worst = max(worst, took)
			victim.mend()
		}
		t.Logf("the longest of 20 takeovers took %v after the cut", worst)
		if worst > timing.Timeout+100*time.Millisecond {
			t.Errorf("a takeover took %v after the last renewal could be made", worst)
		}
	})
}

func TestLossStopsTheWorkInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New(nil)
		a := start(t, store, "a")
		var told, cause = time.Time{}, error(nil)
		c := a.run(t, elect.Campaign, elect.Config{Role: "r", StopGrace: 500 * time.Millisecond}, func(ctx context.Context, term elect.Term) error {
			<-ctx.Done()
			told, cause = time.Now(), context.Cause(ctx)
			if !term.Session.Valid() {
				t.Error("trust was over when the work was told")
			}
			return nil
		})
		time.Sleep(10*time.Second + 10*time.Millisecond)
		cut := time.Now()
		a.cut()
		until(t, time.Minute, "the campaign ends", c.ended)
		if err := c.result(); !errors.Is(err, lease.ErrLost) || !errors.Is(cause, lease.ErrLost) {
			t.Errorf("the campaign returned %v, the cause was %v", err, cause)
		}
		if after, most := told.Sub(cut), timing.Timeout-timing.Interval-500*time.Millisecond; after > most || after < most-timing.Interval {
			t.Errorf("the work was told %v after the link was cut, want at most %v", after, most)
		}
	})
}

func TestRunCampaignsAgainAfterALoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New(nil)
		s := newStage(t)
		a := start(t, store, "a")
		c := a.run(t, elect.Run, elect.Config{Role: "r"}, s.work(0))
		until(t, time.Second, "a plays", func() bool { return s.who("r") == "a" })
		a.cut()
		until(t, time.Minute, "a stops", func() bool { return s.who("r") == "" })
		time.Sleep(time.Minute)
		a.mend()
		until(t, 2*timing.Timeout, "a plays again", func() bool { return s.who("r") == "a" })
		if err := c.result(); !errors.Is(err, errStop) {
			t.Errorf("Run returned %v", err)
		}
	})
}

// Work that loses the role by itself, under a session that stays good, is not started again without a pause.
func TestRunPausesAfterALossUnderAValidSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := start(t, memory.New(nil), "a")
		terms := 0
		c := a.run(t, elect.Run, elect.Config{Role: "r"}, func(context.Context, elect.Term) error {
			if terms++; terms > 100 {
				return errStop
			}
			return fmt.Errorf("%w: its watcher was killed", lease.ErrLost)
		})
		time.Sleep(10*timing.Interval + timing.Interval/2)
		if err := c.result(); !errors.Is(err, errStop) {
			t.Errorf("Run returned %v", err)
		}
		if terms != 11 {
			t.Errorf("%d terms in ten intervals, want 11", terms)
		}
	})
}

func TestWorkEndsByItself(t *testing.T) {
	failed := errors.New("disk on fire")
	for name, c := range map[string]struct {
		err    error
		reason string
	}{"done": {nil, "work done"}, "failed": {failed, "work failed: disk on fire"}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := memory.New(nil)
				a := start(t, store, "a")
				run := a.run(t, elect.Run, elect.Config{Role: "r"}, func(context.Context, elect.Term) error { return c.err })
				until(t, time.Second, "Run ends", run.ended)
				if err := <-run.done; !errors.Is(err, c.err) || err != nil && c.err == nil {
					t.Errorf("Run returned %v, want %v", err, c.err)
				} else {
					run.done <- err
				}
				mustResolve(t, store, "r", "")
				if got := lastReason(t, store); got != c.reason {
					t.Errorf("the history says %q", got)
				}
			})
		})
	}
}

// Work that panics, or leaves its goroutine, under a caller that goes on has ended: the role is free, also for its process.
func TestWorkThatDoesNotReturn(t *testing.T) {
	for name, leave := range map[string]func(){"panic": func() { panic("no") }, "Goexit": runtime.Goexit} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := memory.New(nil)
				a := start(t, store, "a")
				cfg := elect.Config{Keeper: a.Keeper, Role: "r"}
				ended := make(chan any, 1)
				var told context.Context
				go func() {
					defer func() { ended <- recover() }()
					_ = elect.Campaign(t.Context(), cfg, func(ctx context.Context, _ elect.Term) error {
						told = ctx
						leave()
						return nil
					})
				}()
				if got := <-ended; (got == "no") != (name == "panic") {
					t.Errorf("the caller recovers %v", got)
				}
				if told.Err() == nil {
					t.Error("the context of the work has not ended")
				}
				mustResolve(t, store, "r", "a") // the process may be about to end, and what the work has started with it
				time.Sleep(2 * timing.Interval)
				mustResolve(t, store, "r", "")
				if got := lastReason(t, store); got != "work panicked" {
					t.Errorf("the history says %q", got)
				}
				again := a.run(t, elect.Campaign, cfg, func(context.Context, elect.Term) error { return nil })
				until(t, time.Second, "it holds the role again", again.ended)
				if err := again.result(); err != nil {
					t.Errorf("the second campaign returned %v", err)
				}
				began := time.Now()
				a.stop()
				if took := time.Since(began); took > timing.Interval {
					t.Errorf("the keeper stopped after %v", took)
				}
			})
		})
	}
}

func TestWorkFailsWhileItIsStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New(nil)
		failed := errors.New("could not flush")
		a := start(t, store, "a")
		c := a.run(t, elect.Campaign, elect.Config{Role: "r"}, func(ctx context.Context, _ elect.Term) error {
			<-ctx.Done()
			return failed
		})
		time.Sleep(time.Second)
		if err := c.result(); !errors.Is(err, failed) || !errors.Is(err, errStop) {
			t.Errorf("the campaign returned %v, want both the failure and the cause", err)
		}
	})
}

// Work must not begin when trust ran out while the lease was being taken.
func TestNoWorkWithoutTrust(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New(nil)
		late := &lateAcquire{Store: store}
		a := start(t, late, "a")
		late.hook = func() { a.cut(); time.Sleep(timing.Timeout); a.mend() }
		began := atomic.Int32{}
		a.run(t, elect.Campaign, elect.Config{Role: "r"}, func(ctx context.Context, term elect.Term) error {
			if began.Add(1); ctx.Err() != nil || !term.Session.Valid() {
				t.Error("the work begins without trust")
			}
			<-ctx.Done()
			return nil
		})
		time.Sleep(time.Minute)
		synctest.Wait()
		if late.hook != nil {
			t.Error("nothing was late: this test tests nothing")
		}
	})
}

// lateAcquire calls a hook after the first acquisition, before it is answered.
type lateAcquire struct {
	*memory.Store
	hook func()
}

func (s *lateAcquire) Acquire(ctx context.Context, c lease.Expectation) (lease.Lease, error) {
	l, err := s.Store.Acquire(ctx, c)
	if hook := s.hook; hook != nil {
		s.hook = nil
		go hook()
	}
	return l, err
}

func TestOverrun(t *testing.T) {
	for name, c := range map[string]struct {
		deaf time.Duration // after being told, the work continues for so long
		want int32
	}{"obeys": {time.Second - time.Millisecond, 0}, "ignores": {time.Minute, 1}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := memory.New(nil)
				a := start(t, store, "a")
				var called atomic.Int32
				var after time.Duration
				cut := time.Time{}
				cfg := elect.Config{Role: "r", StopGrace: time.Second, Overrun: func() { called.Add(1); after = time.Since(cut) }}
				run := a.run(t, elect.Campaign, cfg, func(ctx context.Context, _ elect.Term) error {
					<-ctx.Done()
					time.Sleep(c.deaf)
					return nil
				})
				time.Sleep(10*time.Second + 10*time.Millisecond)
				cut = time.Now()
				a.cut()
				until(t, 2*time.Minute, "the campaign ends", run.ended)
				if got := called.Load(); got != c.want {
					t.Errorf("Overrun was called %d times, want %d", got, c.want)
				}
				if c.want > 0 && after > timing.Timeout-timing.Interval {
					t.Errorf("Overrun was called %v after the cut, when trust was over", after)
				}
			})
		})
	}
}

// Told by the store that its session has ended, work still has its grace: until
// the end of trust nobody else can hold the role.
func TestOverrunLeavesTheGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New(nil)
		a := start(t, store, "a")
		var called atomic.Int32
		cfg := elect.Config{Role: "r", StopGrace: time.Second, Overrun: func() { called.Add(1) }}
		run := a.run(t, elect.Campaign, cfg, func(ctx context.Context, term elect.Term) error {
			if err := store.EndSession(ctx, term.Session.ID(), "by hand"); err != nil {
				t.Error(err)
			}
			<-ctx.Done()
			time.Sleep(900 * time.Millisecond)
			return nil
		})
		until(t, time.Minute, "the campaign ends", run.ended)
		if called.Load() != 0 {
			t.Error("Overrun was called while the work used its grace")
		}
	})
}

func TestSecondCampaignOfOneInstance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New(nil)
		s := newStage(t)
		a := start(t, store, "a")
		a.run(t, elect.Run, elect.Config{Role: "r"}, s.work(0))
		until(t, time.Second, "a plays", func() bool { return s.who("r") == "a" })
		second := a.run(t, elect.Run, elect.Config{Role: "r"}, s.work(0))
		until(t, time.Second, "the second is refused", second.ended)
		if err := <-second.done; !errors.Is(err, lease.ErrInvalid) {
			t.Errorf("the second campaign returned %v, want ErrInvalid", err)
		}
		second.done <- nil
		a.run(t, elect.Run, elect.Config{Role: "other"}, s.work(0))
		until(t, time.Second, "a plays another role", func() bool { return s.who("other") == "a" })
	})
}

func TestHolders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New(nil)
		var playing atomic.Int32
		work := func(ctx context.Context, _ elect.Term) error {
			if n := playing.Add(1); n > 3 {
				t.Errorf("%d hold a role for three", n)
			}
			defer playing.Add(-1)
			<-ctx.Done()
			return nil
		}
		var all []*node
		for i := range 5 {
			n := start(t, store, fmt.Sprint("n", i))
			n.run(t, elect.Run, elect.Config{Role: "r", Holders: 3}, work)
			all = append(all, n)
		}
		until(t, time.Second, "three hold it", func() bool { return playing.Load() == 3 })
		holders, err := elect.Holders(t.Context(), store, "r")
		if err != nil || len(holders) != 3 {
			t.Fatalf("Holders = %s, %v", names(holders), err)
		}
		seen := map[string]bool{}
		for _, h := range holders {
			seen[h.Name] = true
		}
		if len(seen) != 3 {
			t.Errorf("one instance holds two places: %s", names(holders))
		}
		for _, n := range all {
			if seen[n.Instance().Name] {
				n.cut()
			}
		}
		until(t, timing.Timeout, "the cut ones stop", func() bool { return playing.Load() == 0 })
		until(t, timing.WorstTakeover(), "the others hold it", func() bool { return playing.Load() == 2 })
	})
}

func lastReason(t *testing.T, store *memory.Store) string {
	t.Helper()
	es := events(t, store)
	return es[len(es)-1].Reason
}

// The error of a campaign names each cause once, whatever the work returns.
func TestCauseIsNamedOnce(t *testing.T) {
	late := errors.New("saved half")
	for returned, want := range map[error]string{
		nil:              "lease: lost",
		context.Canceled: "lease: lost",
		lease.ErrLost:    "lease: lost",
		late:             "saved half (lease: lost)",
		fmt.Errorf("%w: no watcher", lease.ErrLost): "lease: lost: no watcher",
	} {
		synctest.Test(t, func(t *testing.T) {
			a := start(t, memory.New(nil), "a")
			c := a.run(t, elect.Campaign, elect.Config{Role: "r"}, func(ctx context.Context, _ elect.Term) error {
				<-ctx.Done()
				return returned
			})
			time.Sleep(10 * time.Second)
			a.cut()
			until(t, time.Minute, "the campaign ends", c.ended)
			if err := c.result(); err == nil || err.Error() != want || !errors.Is(err, lease.ErrLost) {
				t.Errorf("work that returned %v: %v, want %q", returned, err, want)
			}
		})
	}
}

// An instance that allows another number of holders than the one that holds the role is told both numbers.
func TestHoldersDiffer(t *testing.T) {
	for _, holders := range []int{1, 3} {
		synctest.Test(t, func(t *testing.T) {
			store := memory.New(nil)
			idle := func(ctx context.Context, _ elect.Term) error { <-ctx.Done(); return nil }
			start(t, store, "a").run(t, elect.Run, elect.Config{Role: "r", Holders: holders}, idle)
			time.Sleep(time.Second)
			for _, other := range []int{holders - 1, holders + 1} {
				err := elect.Run(t.Context(), elect.Config{Keeper: start(t, store, "b").Keeper, Role: "r", Holders: max(2, other)}, idle)
				if want := fmt.Sprintf("may have %d here, but a allows %d", max(2, other), holders); !errors.Is(err, elect.ErrHolders) || !strings.Contains(err.Error(), want) {
					t.Errorf("%d beside %d: %v", other, holders, err)
				}
			}
			c := start(t, store, "c").run(t, elect.Run, elect.Config{Role: "r", Holders: holders}, idle)
			time.Sleep(time.Second)
			if c.ended() {
				t.Error("an instance that allows the same number was refused")
			}
		})
	}
}

// A campaign of an instance that can never have a session again does not wait for one.
func TestKeeperThatCannotContinue(t *testing.T) {
	for _, with := range []string{"", "other"} {
		synctest.Test(t, func(t *testing.T) {
			k := leasetest.NewDamagedKeeper(t, memory.New(nil), timing)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			err := elect.Run(ctx, elect.Config{Keeper: k, Role: "r", With: with}, func(ctx context.Context, _ elect.Term) error {
				<-ctx.Done()
				return ctx.Err()
			})
			if !errors.Is(err, lease.ErrDamaged) {
				t.Errorf("with %q, Run returned %v", with, err)
			}
		})
	}
}

// silent is a store without notifications, whose renewals count no changes.
type silent struct{ *memory.Store }

func (silent) Watch(context.Context, func(lease.Change)) error { return errors.ErrUnsupported }

func (s silent) RenewSession(ctx context.Context, id string) (lease.Renewal, error) {
	r, err := s.Store.RenewSession(ctx, id)
	r.Changes = 0
	return r, err
}

// A failover of the store that loses an acquisition makes two primaries. The first finds out at its next renewal.
func TestLostAcquisition(t *testing.T) {
	for name, c := range map[string]struct {
		held time.Duration // before the failover
		down time.Duration
	}{
		"with renewals":    {2200 * time.Millisecond, 0},
		"without renewals": {100 * time.Millisecond, 1500 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := memory.New(nil)
				a, b := start(t, silent{store}, "a"), start(t, silent{store}, "b")
				time.Sleep(10*time.Second + 500*time.Millisecond) // between two renewals
				before := store.Snapshot()
				ended := make(chan error, 1)
				first := a.run(t, elect.Campaign, elect.Config{Role: "r"}, func(ctx context.Context, _ elect.Term) error {
					<-ctx.Done()
					ended <- context.Cause(ctx)
					return nil
				})
				time.Sleep(c.held)
				mustResolve(t, store, "r", "a")
				store.Restore(before)
				if c.down > 0 {
					a.link.Change(func(l *leasetest.Network) { l.Refuse = 1 })
				}
				b.run(t, elect.Campaign, elect.Config{Role: "r"}, func(ctx context.Context, _ elect.Term) error { <-ctx.Done(); return nil })
				time.Sleep(max(c.down, 10*time.Millisecond))
				mustResolve(t, store, "r", "b")
				a.mend()
				until(t, timing.Timeout-c.down, "the work of a ends", first.ended)
				if err := <-ended; !errors.Is(err, lease.ErrLost) {
					t.Errorf("it ended with %v, want ErrLost", err)
				}
			})
		})
	}
}
