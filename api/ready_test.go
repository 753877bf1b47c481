package api

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/store"
	"github.com/understudy-ha/understudy/store/memory"
)

// readOnly is a store that answers reads, and refuses writes while it is full.
type readOnly struct {
	store.Store
	full atomic.Bool
}

func (s *readOnly) RenewSession(ctx context.Context, id string) (lease.Renewal, error) {
	if s.full.Load() {
		return lease.Renewal{}, fmt.Errorf("%w: database or disk is full", lease.ErrUnavailable)
	}
	return s.Store.RenewSession(ctx, id)
}

// TestReadyNeedsWrites: a store that answers reads alone is not ready, and every surface says why.
func TestReadyNeedsWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := &readOnly{Store: memory.New(nil)}
		clock := bubbleClock{time.Now().Add(-time.Hour)}
		keeper, err := lease.NewKeeper(lease.KeeperConfig{
			Store: st, Instance: lease.NewInstance("web-1", ""), Clock: clock, Timing: lease.Timing{Interval: time.Second, Timeout: time.Minute},
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); _ = keeper.Run(ctx) }()
		defer func() { stop(); <-done }()
		s := start(t, Config{Store: st, Clock: clock, Keepers: []*lease.Keeper{keeper}})
		do := func(path string) answer { return send(t, s, request(t.Context(), "GET", path, "")) }
		time.Sleep(3 * time.Second)
		do("/readyz").want(200, "")
		st.full.Store(true)
		time.Sleep(readyFor + 4*time.Second)
		if got := do("/readyz").want(503, "not_ready").Detail; !strings.Contains(got, "has not accepted a write for") || !strings.Contains(got, "disk is full") {
			t.Errorf("it says %s", got)
		}
		if text := do("/metrics").Body; !strings.Contains(text, "understudy_store_up 0\n") {
			t.Error("the metrics say that it is up")
		}
		if state := s.poller.state(t.Context(), nil); state.Store.Up || !strings.Contains(state.Store.Error, "disk is full") {
			t.Errorf("the page says %+v", state.Store)
		}
		st.full.Store(false)
		time.Sleep(3 * time.Second)
		do("/readyz").want(200, "")
	})
}
