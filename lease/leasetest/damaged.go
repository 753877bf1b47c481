package leasetest

import (
	"context"
	"fmt"
	"testing"

	"github.com/understudy-ha/understudy/lease"
)

// damaged is a store that is found damaged at a renewal.
type damaged struct{ lease.Store }

func (damaged) RenewSession(context.Context, string) (lease.Renewal, error) {
	return lease.Renewal{}, fmt.Errorf("page 7: %w", lease.ErrDamaged)
}

// NewDamagedKeeper returns a keeper, in a bubble, that runs and cannot continue from its first renewal on, as its store is damaged.
func NewDamagedKeeper(t *testing.T, store lease.Store, timing lease.Timing) *lease.Keeper {
	t.Helper()
	k, err := lease.NewKeeper(lease.KeeperConfig{Store: damaged{store}, Instance: lease.NewInstance("a", ""), Timing: timing, Clock: &BubbleClock{}})
	if err != nil {
		t.Fatal(err)
	}
	kept := make(chan struct{})
	go func() { defer close(kept); _ = k.Run(t.Context()) }()
	t.Cleanup(func() { <-kept })
	return k
}
