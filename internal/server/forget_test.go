package server

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/understudy-ha/understudy/internal/instance"
	"github.com/understudy-ha/understudy/internal/settings"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/store/memory"
)

// silentStore does not answer when it is asked for its leases.
type silentStore struct {
	*memory.Store
	spaces, lists atomic.Int64
	listsOnly     bool // Spaces answers
}

func (s *silentStore) Spaces(ctx context.Context) ([]lease.SpaceCount, error) {
	s.spaces.Add(1)
	if s.listsOnly {
		return []lease.SpaceCount{{Space: "role"}}, nil
	}
	<-ctx.Done()
	return nil, lease.ErrUnavailable
}

func (s *silentStore) List(ctx context.Context, _, _ string, _ int) ([]lease.Lease, error) {
	s.lists.Add(1)
	<-ctx.Done()
	return nil, lease.ErrUnavailable
}

// A call that the store does not answer does not end the search for vacant leases.
func TestForgettingSurvivesAStoreThatDoesNotAnswer(t *testing.T) {
	for name, listsOnly := range map[string]bool{"Spaces": false, "List": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				st := &silentStore{Store: memory.New(nil), listsOnly: listsOnly}
				s := &served{host: &instance.Host{Log: slog.New(slog.DiscardHandler)}, store: st, cfg: &settings.Server{Name: "a", ForgetAfter: time.Minute}}
				ctx, stop := context.WithCancel(t.Context())
				done := make(chan error)
				go func() { done <- s.forgetVacant(ctx) }()
				time.Sleep(10*time.Minute + 30*time.Second)
				if spaces, lists := st.spaces.Load(), st.lists.Load(); spaces != 10 || listsOnly && lists != 10 {
					t.Errorf("in ten minutes Spaces was called %d times and List %d times, want once a minute", spaces, lists)
				}
				stop()
				if err := <-done; err != nil {
					t.Error(err)
				}
			})
		})
	}
}
