package postgres_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/access"
	"github.com/understudy-ha/understudy/internal/testkit/realserver"
	"github.com/understudy-ha/understudy/job"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/store/postgres"
)

// TestFrozenBetweenBatches: a job is claimed in two round trips, and a process that stops between them keeps rows locked, its own
// session's among them. Others wait for them no longer than its call would have taken, or its session lives.
func TestFrozenBetweenBatches(t *testing.T) {
	server := realserver.Postgres(t, realserver.PostgresOptions{})
	bouncer := realserver.PgBouncer(t, server)
	url := server.NewDatabase(t)
	const short = time.Second
	for _, c := range []struct {
		key           string // of the role and the job
		way           func(string) string
		timeout, call time.Duration
	}{
		{"its call's deadline", direct, time.Hour, short},
		{"its session's deadline", direct, short, time.Hour},
		{"its session's deadline, by PgBouncer", bouncer.URL, short, time.Hour},
	} {
		t.Run(c.key, func(t *testing.T) {
			s, other := open(t, c.way(url)), open(t, url)
			frozen, thaw := make(chan lease.Session), make(chan struct{})
			claimed := later(func() error { return claimFrozen(t, s, c.key, c.timeout, c.call, frozen, thaw) })
			var a lease.Session
			select {
			case a = <-frozen:
			case err := <-claimed:
				t.Fatalf("the claim ended before it stopped: %v", err)
			}
			b := start(t, other, "b", time.Hour)
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			l, err := other.Get(ctx, role(c.key))
			if err == nil && l.Session != a.ID {
				t.Fatalf("the role is %+v", l)
			}
			if err == nil {
				_, err = other.Acquire(ctx, lease.Expectation{Lease: role(c.key), Session: b.ID, Seen: l.Seen(), Waited: true})
			}
			cancel()
			close(thaw)
			late := <-claimed
			if err != nil {
				t.Fatalf("beside a process that has stopped, its role cannot be taken over: %v", err)
			}
			if !errors.Is(late, lease.ErrUnavailable) && !errors.Is(late, lease.ErrUnknown) || errors.Is(late, lease.ErrInvalid) {
				t.Errorf("the process that goes on gets %v; want ErrUnavailable or ErrUnknown", late)
			}
			if l, err := other.Get(amply(t), job.LeaseID(c.key)); err != nil || l.Session != "" {
				t.Errorf("the lease of the claim that was not finished: %+v, %v", l, err)
			}
			if _, _, err := other.Jobs().Get(amply(t), c.key); !errors.Is(err, job.ErrNotFound) {
				t.Errorf("the job of the claim that was not finished: %v", err)
			}
		})
	}
	frozen := func(in func(context.Context, *postgres.Store, func()) error, beside func(context.Context, *postgres.Store) error, want error) func(t *testing.T) {
		return func(t *testing.T) { proceedsBesideFrozen(t, url, short, in, beside, want) }
	}
	t.Run("tokens", frozen(func(ctx context.Context, s *postgres.Store, stop func()) error {
		_, err := s.Tokens().(access.Table).Change(ctx, "adding", func([]access.Token, time.Time) (access.Change, error) {
			stop()
			return access.Change{}, nil
		})
		return err
	}, func(ctx context.Context, s *postgres.Store) error {
		_, err := s.Tokens().Revoke(ctx, "none", "me")
		return err
	}, access.ErrNotFound))
	node := benchRecord(1, 1)
	t.Run("a shard, in three statements", frozen(func(ctx context.Context, s *postgres.Store, stop func()) error {
		return postgres.LockShard(ctx, s, node.Shard, stop)
	}, func(ctx context.Context, s *postgres.Store) error {
		_, err := s.Registry().Report(ctx, node, false)
		return err
	}, nil))
}

// proceedsBesideFrozen: another can do what needs the locks of a process that stopped within a call.
func proceedsBesideFrozen(t *testing.T, url string, call time.Duration, in func(context.Context, *postgres.Store, func()) error,
	beside func(context.Context, *postgres.Store) error, want error,
) {
	s, other := open(t, url), open(t, url)
	frozen, thaw := make(chan struct{}), make(chan struct{})
	changed := later(func() error {
		ctx, cancel := context.WithTimeout(t.Context(), call)
		defer cancel()
		return in(ctx, s, func() {
			close(frozen)
			<-thaw
		})
	})
	select {
	case <-frozen:
	case err := <-changed:
		t.Fatalf("the change ended before it stopped: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	err := beside(ctx, other)
	close(thaw)
	if late := <-changed; !errors.Is(err, want) || !errors.Is(late, lease.ErrUnavailable) && !errors.Is(late, lease.ErrUnknown) {
		t.Errorf("another gets %v beside one that has stopped, which then gets %v", err, late)
	}
}

// claimFrozen takes the role and claims the job of this name, which stops between its two batches until it is thawed.
func claimFrozen(t *testing.T, s *postgres.Store, key string, timeout, call time.Duration, frozen chan<- lease.Session, thaw <-chan struct{}) error {
	for {
		a := lease.Session{ID: lease.NewID(), Instance: lease.NewInstance("a", ""), Timing: lease.Timing{Interval: timeout / 5, Timeout: timeout}}
		if _, err := s.StartSession(amply(t), a); err != nil {
			return err
		}
		l, err := s.Get(amply(t), role(key))
		if err == nil {
			_, err = s.Acquire(amply(t), lease.Expectation{Lease: role(key), Session: a.ID, Seen: l.Seen(), Waited: true})
		}
		if err == nil {
			ctx, cancel := context.WithTimeout(t.Context(), call)
			_, _, err = s.Jobs().(job.CombinedStore).AcquireAndChange(ctx, lease.Expectation{Lease: job.LeaseID(key), Session: a.ID, Places: 1}, key,
				func(lease.Lease) job.Decision {
					return func(j job.Job, _ time.Time) (job.Change, error) {
						frozen <- a
						<-thaw
						return job.Change{Job: j}, nil
					}
				})
			cancel()
		}
		if !errors.Is(err, lease.ErrLapsed) { // on a machine that was busy for so long
			return err
		}
	}
}
