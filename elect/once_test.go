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
