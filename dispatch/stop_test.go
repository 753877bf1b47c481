package dispatch_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/understudy-ha/understudy/claim"
	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/lease/leasetest"
)

// hungTable answers no release: whoever calls waits until its context ends.
type hungTable struct{ claim.KeyTable }

func (hungTable) Release(ctx context.Context, _, _ string, _ []claim.Claim) error {
	<-ctx.Done()
	return ctx.Err()
}

// TestStopsWithoutTheStore: a store that hangs holds up the end of a process no longer than StopGrace and five seconds.
func TestStopsWithoutTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, g := newPlace(t), newTarget()
		g.takes = 3 * time.Second
		p.add("k", 9)
		i := p.start("a", g, func(c *dispatch.Config) { c.Claims, c.StopGrace = hungTable{c.Claims}, 4*time.Second })
		time.Sleep(time.Second)
		began := time.Now()
		i.stop()
		if took := time.Since(began); took > 9*time.Second+time.Millisecond {
			t.Errorf("it stopped after %v", took)
		}
	})
}

// damaged is a store that is found damaged at a renewal.
type damaged struct{ lease.Store }

func (damaged) RenewSession(context.Context, string) (lease.Renewal, error) {
	return lease.Renewal{}, fmt.Errorf("page 7: %w", lease.ErrDamaged)
}

func damagedKeeper(t *testing.T, store lease.Store, timing lease.Timing) *lease.Keeper {
	t.Helper()
	k, err := lease.NewKeeper(lease.KeeperConfig{Store: damaged{store}, Instance: lease.NewInstance("a", ""), Timing: timing, Clock: &leasetest.BubbleClock{}})
	if err != nil {
		t.Fatal(err)
	}
	kept := make(chan struct{})
	go func() { defer close(kept); _ = k.Run(t.Context()) }()
	t.Cleanup(func() { <-kept })
	return k
}

// A dispatcher that can never have a session again does not wait for one.
func TestKeeperThatCannotContinue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlace(t)
		p.add("k", 1)
		k := damagedKeeper(t, p.store, windows.Timing())
		d, err := dispatch.New(dispatch.Config{Name: "q", Keeper: k, Claims: p.store.Claims(), Queue: p.store.Queue(), Target: newTarget(), Windows: windows})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := d.Run(ctx); !errors.Is(err, lease.ErrDamaged) {
			t.Errorf("Run returned %v", err)
		}
	})
}
