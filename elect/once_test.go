package elect_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/understudy-ha/understudy/elect"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/store/memory"
)

func TestOnceRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New(nil)
		n := start(t, store, "a")
		for name, cfg := range map[string]elect.OnceConfig{
			"no keeper":      {Job: "j", Every: time.Hour},
			"a period below": {Keeper: n.Keeper, Job: "j", Every: timing.Timeout - 1},
			"a period above": {Keeper: n.Keeper, Job: "j", Every: 367 * 24 * time.Hour},
			"a hostile job":  {Keeper: n.Keeper, Job: "a\x00", Every: time.Hour},
		} {
			if err := elect.Once(t.Context(), cfg, nil); !errors.Is(err, lease.ErrInvalid) {
				t.Errorf("%s: %v, want ErrInvalid", name, err)
			}
		}
	})
}

// Five instances, each ready all the time, one run per period: also when the
// runner dies in the middle.
func TestOncePerPeriod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New(nil)
		const every = 10 * time.Minute
		var mu sync.Mutex
		var runs []time.Time
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		defer all.Wait()
		defer cancel()
		for i := range 5 {
			n := start(t, store, fmt.Sprint("n", i))
			all.Go(func() {
				for ctx.Err() == nil {
					err := elect.Once(ctx, elect.OnceConfig{Keeper: n.Keeper, Job: "j", Every: every}, func(ctx context.Context, _ elect.Term) error {
						mu.Lock()
						runs = append(runs, time.Now())
						lost := len(runs)%3 == 0
						mu.Unlock()
						if lost {
							n.cut()
							defer n.mend()
							<-ctx.Done()
							return nil
						}
						time.Sleep(time.Second)
						return nil
					})
					if err != nil && ctx.Err() == nil && !errors.Is(err, lease.ErrLost) {
						t.Errorf("Once: %v", err)
					}
				}
			})
		}
		time.Sleep(2 * time.Hour)
		cancel()
		mu.Lock()
		defer mu.Unlock()
		if len(runs) < 11 || len(runs) > 13 {
			t.Errorf("%d runs in 12 periods", len(runs))
		}
		for i := 1; i < len(runs); i++ {
			if apart := runs[i].Sub(runs[i-1]); apart < every-time.Millisecond || apart > every+2*time.Second {
				t.Errorf("run %d came %v after the one before", i, apart)
			}
		}
	})
}

func TestOnceReturnsWhatTheJobReturned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New(nil)
		n, failed := start(t, store, "a"), errors.New("failed")
		err := elect.Once(t.Context(), elect.OnceConfig{Keeper: n.Keeper, Job: "j", Every: time.Hour}, func(context.Context, elect.Term) error { return failed })
		if !errors.Is(err, failed) {
			t.Errorf("Once returned %v", err)
		}
	})
}

// Three schedulers of their own, whose clocks differ, call at about the same times: one run per time, and when the
// instance that runs dies, another takes the next.
func TestOnceWithoutWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New(nil)
		const period, every = 10 * time.Minute, 5 * time.Minute
		began := time.Now()
		var mu sync.Mutex
		runs, refused, last := map[time.Duration][]string{}, 0, int64(0)
		var all sync.WaitGroup
		for i := range 3 {
			n := start(t, store, fmt.Sprint("n", i))
			all.Go(func() {
				for k := range 6 {
					time.Sleep(time.Until(began.Add(time.Duration(k+1)*period + time.Duration(i)*time.Minute)))
					asked := time.Now()
					err := elect.Once(t.Context(), elect.OnceConfig{Keeper: n.Keeper, Job: "j", Every: every, NoWait: true}, func(ctx context.Context, term elect.Term) error {
						at := time.Since(began).Truncate(period)
						mu.Lock()
						runs[at] = append(runs[at], n.Instance().Name)
						if term.Number <= last {
							t.Errorf("term %d after %d", term.Number, last)
						}
						last = term.Number
						mu.Unlock()
						if at == 2*period && n.Instance().Name == "n0" { // dies, and is back for the time after the next
							n.cut()
							time.AfterFunc(15*time.Minute, n.mend)
							<-ctx.Done()
						}
						return nil
					})
					mu.Lock()
					if errors.Is(err, elect.ErrNotDue) {
						refused++
						if cutOff := i == 0 && k == 2; !cutOff && time.Since(asked) > timing.Interval {
							t.Errorf("refused only after %v", time.Since(asked))
						}
					} else if err != nil && !errors.Is(err, lease.ErrLost) {
						t.Errorf("%s: %v", n.Instance().Name, err)
					}
					mu.Unlock()
				}
			})
		}
		all.Wait()
		for k := range 6 {
			at := time.Duration(k+1) * period
			if len(runs[at]) != 1 {
				t.Errorf("the run of %v was started by %v", at, runs[at])
			}
		}
		if got := fmt.Sprint(runs[2*period], runs[3*period]); got != "[n0] [n1]" {
			t.Errorf("around the death: %s", got)
		}
		if refused != 3*6-6 {
			t.Errorf("%d calls were refused, want 12", refused)
		}
	})
}

// A run that is still on is waited for only so long.
func TestOnceWithoutWaitingWhileARunIsOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New(nil)
		a, b := start(t, store, "a"), start(t, store, "b")
		once := func(n *node, work elect.Work) error {
			return elect.Once(t.Context(), elect.OnceConfig{Keeper: n.Keeper, Job: "j", Every: timing.Timeout, NoWait: true}, work)
		}
		done := make(chan error, 1)
		go func() {
			done <- once(a, func(context.Context, elect.Term) error { time.Sleep(time.Minute); return nil })
		}()
		time.Sleep(30 * time.Second)
		began := time.Now()
		err := once(b, func(context.Context, elect.Term) error { t.Error("it ran beside the other"); return nil })
		if took := time.Since(began); !errors.Is(err, elect.ErrNotDue) || took > 2*timing.Timeout {
			t.Errorf("after %v: %v, want ErrNotDue", took, err)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// An outage of the store that covers the due time, and after which it accepts an acquisition before a renewal, costs the job some
// seconds and no period.
func TestOnceAfterAnOutage(t *testing.T) {
	const every = 10 * time.Minute
	for offset := time.Duration(0); offset < timing.Interval; offset += 50 * time.Millisecond {
		synctest.Test(t, func(t *testing.T) {
			store := &refusing{Store: memory.New(nil)}
			n := start(t, store, "a")
			var runs []time.Time
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan struct{})
			go func() {
				defer close(done)
				for ctx.Err() == nil {
					err := elect.Once(ctx, elect.OnceConfig{Keeper: n.Keeper, Job: "j", Every: every}, func(ctx context.Context, _ elect.Term) error {
						runs = append(runs, time.Now())
						return ctx.Err()
					})
					if err != nil && ctx.Err() == nil {
						t.Errorf("outage at %v: Once: %v", offset, err)
					}
				}
			}()
			time.Sleep(every - time.Second + offset) // a renewal comes each second: the outage begins at any moment between two
			began := time.Now()
			store.refuse(began.Add(500*time.Millisecond), began.Add(3900*time.Millisecond), began.Add(3500*time.Millisecond))
			time.Sleep(every / 2)
			cancel()
			<-done
			if len(runs) != 2 {
				t.Fatalf("outage at %v: %d runs in two periods", offset, len(runs))
			}
			if apart := runs[1].Sub(runs[0]); apart > every+2*timing.Timeout {
				t.Errorf("outage at %v: the second run came %v after the first", offset, apart)
			}
		})
	}
}

// refusing is a store that refuses renewals for a while, and acquisitions and reads for a shorter one.
type refusing struct {
	*memory.Store
	mu                    sync.Mutex
	from, renewals, calls time.Time
}

func (s *refusing) refuse(from, renewals, calls time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.from, s.renewals, s.calls = from, renewals, calls
}

func (s *refusing) answer(until *time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := time.Now(); now.After(s.from) && now.Before(*until) {
		return lease.ErrUnavailable
	}
	return nil
}

func (s *refusing) RenewSession(ctx context.Context, id string) (lease.Renewal, error) {
	if err := s.answer(&s.renewals); err != nil {
		return lease.Renewal{}, err
	}
	return s.Store.RenewSession(ctx, id)
}

func (s *refusing) Acquire(ctx context.Context, e lease.Expectation) (lease.Lease, error) {
	if err := s.answer(&s.calls); err != nil {
		return lease.Lease{}, err
	}
	return s.Store.Acquire(ctx, e)
}

func (s *refusing) Join(ctx context.Context, id lease.ID, session string) (lease.Lease, error) {
	if err := s.answer(&s.calls); err != nil {
		return lease.Lease{}, err
	}
	return s.Store.Join(ctx, id, session)
}
