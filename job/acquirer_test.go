package job_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/understudy-ha/understudy/job"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/lease/leasetest"
	"github.com/understudy-ha/understudy/store/memory"
)

// wholeLink is an instance's way to a store that changes a job and its lease together.
type wholeLink struct {
	*link
	both     job.CombinedStore
	acquired atomic.Pointer[func()] // called when a run was claimed
	refuse   atomic.Int64           // releases that fail from now on
}

func (l *wholeLink) AcquireAndChange(ctx context.Context, e lease.Expectation, name string, decide func(lease.Lease) job.Decision) (lease.Lease, job.Job, error) {
	if l.cut.Load() {
		return lease.Lease{}, job.Job{}, lease.ErrUnavailable
	}
	got, j, err := l.both.AcquireAndChange(ctx, e, name, decide)
	if acquired := l.acquired.Load(); err == nil && acquired != nil {
		(*acquired)()
	}
	if l.lose.Add(-1) >= 0 {
		return lease.Lease{}, job.Job{}, lease.ErrUnknown
	}
	return got, j, err
}

func (l *wholeLink) ChangeAndRelease(ctx context.Context, name string, decide job.Decision, r lease.ReleaseRequest) error {
	if l.cut.Load() || l.refuse.Add(-1) >= 0 {
		return lease.ErrUnavailable
	}
	err := l.both.ChangeAndRelease(ctx, name, decide, r)
	if l.lose.Add(-1) >= 0 {
		return lease.ErrUnknown
	}
	return err
}

// whole makes the nodes of a stage, from then on, use such a store.
func (s *stage) whole() *stage {
	s.way = func(l *link) job.Store { return &wholeLink{link: l, both: l.Store.(job.CombinedStore)} }
	return s
}

func (n *node) whole() *wholeLink { return n.way.(*wholeLink) }

// Answers that are lost, to an acquisition that claims as to a release with the result, make neither a second start nor another result.
func TestLostAnswersOfBoth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, quick).whole()
		n := s.node("a", every("1m"))
		time.Sleep(time.Minute - time.Second)
		n.jobs.lose.Store(1)
		time.Sleep(10 * time.Second)
		if starts := s.started(); len(starts) != 1 {
			t.Fatalf("%d starts after the answer to the claim was lost", len(starts))
		}
		s.want(job.Succeeded)
		time.Sleep(50*time.Second + 500*time.Millisecond)
		n.jobs.lose.Store(1)
		time.Sleep(10 * time.Second)
		if starts := s.started(); len(starts) != 2 {
			t.Errorf("%d starts after the answer to the result was lost", len(starts))
		}
		s.want(job.Succeeded, job.Succeeded)
	})
}

// An instance that is stopped after a claim, and before the start, gives the run back: another starts it. It need not know that
// the claim was applied.
func TestClaimedIsGivenBack(t *testing.T) {
	for name, c := range map[string]struct{ both, lost bool }{
		"together": {true, false}, "apart": {false, false}, "together, the answer is lost": {true, true}, "apart, the answer is lost": {false, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t, quick)
				if c.both {
					s.whole()
				}
				a := s.node("a", every("1h"))
				stop := func() {
					if c.lost {
						a.jobs.lose.Store(1)
					}
					go a.stop()
					synctest.Wait()
				}
				if c.both {
					a.whole().acquired.Store(&stop)
				} else {
					changed := func(j job.Job) {
						if _, on := j.Running(); on {
							stop()
						}
					}
					a.jobs.changed.Store(&changed)
				}
				time.Sleep(time.Hour + 500*time.Millisecond)
				s.want(job.Queued)
				s.node("b", every("1h"))
				time.Sleep(5 * time.Second)
				if starts := s.started(); len(starts) != 1 || starts[0].node != "b" || starts[0].Attempt != 1 {
					t.Errorf("starts: %+v", starts)
				}
				s.want(job.Succeeded)
			})
		})
	}
}

// A claim that reaches the store when its instance has stopped, and its lease is released, is refused: nobody would start that run.
func TestClaimComesLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, quick)
		a := s.node("a", every("1h"))
		time.Sleep(time.Hour - time.Second)
		var apply func() error
		late := func(f func() error) {
			apply = f
			go a.stop()
			synctest.Wait()
		}
		a.jobs.late.Store(&late)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if err := apply(); !errors.Is(err, job.ErrStale) {
			t.Errorf("a claim of a term that is over: %v", err)
		}
		s.node("b", every("1h"))
		time.Sleep(5 * time.Second)
		if starts := s.started(); len(starts) != 1 || starts[0].node != "b" {
			t.Errorf("starts: %+v", starts)
		}
		s.want(job.Succeeded)
	})
}

// A result that could not be stored makes the run a lost one, also for the instance that has run it: it does not run again.
func TestResultThatIsNotStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, quick).whole()
		n := s.node("a", every("1h"))
		time.Sleep(time.Hour - time.Second)
		n.whole().refuse.Store(1 << 30)
		time.Sleep(time.Minute)
		if starts := s.started(); len(starts) != 1 {
			t.Errorf("%d starts", len(starts))
		}
		s.want(job.Lost)
	})
}

// slowLink is a way on which each call takes a while.
type slowLink struct {
	job.Store
	now, most *atomic.Int64
}

func (l slowLink) Get(ctx context.Context, name string) (job.Job, time.Time, error) {
	n := l.now.Add(1)
	defer l.now.Add(-1)
	for most := l.most.Load(); n > most && !l.most.CompareAndSwap(most, n); most = l.most.Load() {
	}
	time.Sleep(10 * time.Millisecond)
	return l.Store.Get(ctx, name)
}

// Of many jobs that are late an instance claims a few at a time: all instances that try for all of them would keep the store from
// those that succeed.
func TestFewClaimsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const jobs = 200
		s := newStage(t, nil)
		var busy, most, runs atomic.Int64
		var offers []job.Offer
		for i := range jobs {
			name := fmt.Sprint("j", i)
			if _, err := s.store.Jobs().Change(t.Context(), name, job.Define(name, every("1h"))); err != nil {
				t.Fatal(err)
			}
			offers = append(offers, job.Offer{Name: name, Definition: every("1h"), Work: func(ctx context.Context, _ job.Task) error {
				runs.Add(1)
				time.Sleep(time.Minute) // a run that is on keeps no other from being claimed
				return ctx.Err()
			}})
		}
		time.Sleep(time.Hour)
		k, err := lease.NewKeeper(lease.KeeperConfig{
			Store: s.store, Roster: s.store, Instance: lease.NewInstance("a", ""), Timing: timing, Clock: &leasetest.BubbleClock{},
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		all.Go(func() { _ = k.Run(ctx) })
		all.Go(func() {
			_ = job.Serve(ctx, job.Config{Keeper: k, Store: slowLink{s.store.Jobs(), &busy, &most}, Offers: offers})
		})
		time.Sleep(8 * time.Second) // less than after which runs look for their next time
		if runs.Load() != jobs || most.Load() > 4 {
			t.Errorf("%d of %d jobs run, and up to %d were read at once", runs.Load(), jobs, most.Load())
		}
		cancel()
		all.Wait()
	})
}

// listing counts how what is due is read.
type listing struct {
	job.Store
	gets, lists *atomic.Int64
}

func (l listing) Get(ctx context.Context, name string) (job.Job, time.Time, error) {
	l.gets.Add(1)
	return l.Store.Get(ctx, name)
}

func (l listing) List(ctx context.Context, q job.Query) ([]job.Job, time.Time, error) {
	l.lists.Add(1)
	return l.Store.List(ctx, q)
}

// Where other instances are faster, many jobs of one moment cost an instance a few lists, and not a read of each.
func TestOthersWereFaster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const jobs = 50
		store := memory.New(nil)
		var all sync.WaitGroup
		ctx, cancel := context.WithCancel(t.Context())
		var gets, lists, runs atomic.Int64
		for n := range 10 {
			k, err := lease.NewKeeper(lease.KeeperConfig{Store: store, Roster: store, Instance: lease.NewInstance(fmt.Sprint("i", n), ""), Timing: timing, Clock: &leasetest.BubbleClock{}})
			if err != nil {
				t.Fatal(err)
			}
			cfg := job.Config{Keeper: k, Store: listing{store.Jobs(), &gets, &lists}}
			for i := range jobs {
				cfg.Offers = append(cfg.Offers, job.Offer{Name: fmt.Sprint("j", i), Definition: every("1m"), Work: func(context.Context, job.Task) error {
					runs.Add(1)
					return nil
				}})
			}
			all.Go(func() { _ = k.Run(ctx) })
			all.Go(func() { _ = job.Serve(ctx, cfg) })
		}
		time.Sleep(50 * time.Second)
		gets.Store(0)
		lists.Store(0)
		time.Sleep(20 * time.Second)
		// Each look is a list of each instance; a read of each by each were ten times the jobs.
		if runs.Load() != jobs || gets.Load() > 6*jobs || lists.Load() > 10*(21+8) {
			t.Errorf("%d runs took %d reads and %d lists", runs.Load(), gets.Load(), lists.Load())
		}
		cancel()
		all.Wait()
	})
}
