package lease_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/lease/leasetest"
	"github.com/understudy-ha/understudy/store/memory"
)

var (
	timing = lease.Timing{Interval: time.Second, Timeout: 5 * time.Second}
	role   = lease.ID{Space: "role", Key: "r"}
)

// spy counts the calls to a store, and can make each fail or wait.
type spy struct {
	*memory.Store
	mu     sync.Mutex
	calls  map[string]int
	before func(ctx context.Context, call string) error // nil: nothing
	shown  func(lease.Lease) lease.Lease                // what Get and Acquire show; nil: the truth
	watch  error                                        // of Watch, when not nil
	dead   map[string]bool                              // sessions whose requests do not arrive
}

func newSpy() *spy {
	return &spy{Store: memory.New(nil), calls: map[string]int{}, dead: map[string]bool{}}
}

func (s *spy) did(ctx context.Context, call string) error {
	s.mu.Lock()
	s.calls[call]++
	before := s.before
	s.mu.Unlock()
	if before != nil {
		return before(ctx, call)
	}
	return nil
}

func (s *spy) count(call string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls[call]
}

func (s *spy) reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.calls)
}

// fail makes the named calls fail with err; a nil err fixes them.
func (s *spy) fail(err error, calls ...string) {
	s.intercept(func(_ context.Context, call string) error {
		if slices.Contains(calls, call) {
			return err
		}
		return nil
	})
}

func (s *spy) intercept(before func(context.Context, string) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.before = before
}

func (s *spy) show(l lease.Lease) lease.Lease {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.shown != nil {
		return s.shown(l)
	}
	return l
}

func (s *spy) StartSession(ctx context.Context, n lease.Session) (lease.Renewal, error) {
	if err := s.did(ctx, "start"); err != nil {
		return lease.Renewal{}, err
	}
	return s.Store.StartSession(ctx, n)
}

func (s *spy) RenewSession(ctx context.Context, id string) (lease.Renewal, error) {
	if err := s.did(ctx, "renew"); err != nil {
		return lease.Renewal{}, err
	}
	if s.isDead(id) {
		return lease.Renewal{}, hang(ctx, "renew")
	}
	r, err := s.Store.RenewSession(ctx, id)
	for i, l := range r.Waits {
		r.Waits[i] = s.show(l)
	}
	return r, err
}

func (s *spy) isDead(session string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.dead[session]
}

func (s *spy) EndSession(ctx context.Context, id, reason string) error {
	if err := s.did(ctx, "end"); err != nil {
		return err
	}
	return s.Store.EndSession(ctx, id, reason)
}

func (s *spy) Acquire(ctx context.Context, c lease.Expectation) (lease.Lease, error) {
	if err := s.did(ctx, "acquire"); err != nil {
		return lease.Lease{}, err
	}
	if s.isDead(c.Session) {
		return lease.Lease{}, hang(ctx, "acquire")
	}
	l, err := s.Store.Acquire(ctx, c)
	if after := s.did(ctx, "acquired"); after != nil {
		return lease.Lease{}, after
	}
	return s.show(l), err
}

func (s *spy) Release(ctx context.Context, h lease.ReleaseRequest) error {
	if err := s.did(ctx, "release"); err != nil {
		return err
	}
	err := s.Store.Release(ctx, h)
	if after := s.did(ctx, "released"); after != nil {
		return after
	}
	return err
}

func (s *spy) Get(ctx context.Context, id lease.ID) (lease.Lease, error) {
	if err := s.did(ctx, "get"); err != nil {
		return lease.Lease{}, err
	}
	l, err := s.Store.Get(ctx, id)
	return s.show(l), err
}

// Join is how a contender reads a lease.
func (s *spy) Join(ctx context.Context, id lease.ID, session string) (lease.Lease, error) {
	if err := s.did(ctx, "get"); err != nil {
		return lease.Lease{}, err
	}
	if s.isDead(session) {
		return lease.Lease{}, hang(ctx, "get")
	}
	l, err := s.Store.Join(ctx, id, session)
	return s.show(l), err
}

func (s *spy) Leave(ctx context.Context, id lease.ID, session string) error {
	if err := s.did(ctx, "leave"); err != nil {
		return err
	}
	return s.Store.Leave(ctx, id, session)
}

func (s *spy) Watch(ctx context.Context, wake func(lease.Change)) error {
	if err := s.did(ctx, "watch"); err != nil {
		return err
	}
	s.mu.Lock()
	err := s.watch
	s.mu.Unlock()
	if err != nil {
		return err
	}
	return s.Store.Watch(ctx, wake)
}

// crowdedSpy is a store in which enough others watch.
type crowdedSpy struct{ *spy }

func (s crowdedSpy) WatchIfFew(ctx context.Context, _ func(lease.Change)) error {
	if err := s.did(ctx, "watch if few"); err != nil {
		return err
	}
	return lease.ErrCrowded
}

// unavailable is what a store that is down answers.
var unavailable = errors.Join(errors.New("connection refused"), lease.ErrUnavailable)

// hang is a store that does not answer.
func hang(ctx context.Context, _ string) error {
	<-ctx.Done()
	return errors.Join(ctx.Err(), lease.ErrUnknown)
}

// running is a keeper whose Run runs in the bubble.
type running struct {
	*lease.Keeper
	clock  *leasetest.BubbleClock
	cancel context.CancelFunc
	done   chan error
}

// stop ends the keeper and returns what Run returned.
func (r *running) stop() error {
	r.cancel()
	err := <-r.done
	r.done <- err
	return err
}

func keep(t *testing.T, store leasetest.Target, name string) *running {
	t.Helper()
	return keepWith(t, store, name, func(*lease.KeeperConfig) {})
}

// keepWith is keep with a changed configuration.
func keepWith(t *testing.T, store leasetest.Target, name string, change func(*lease.KeeperConfig)) *running {
	t.Helper()
	clock := &leasetest.BubbleClock{}
	cfg := lease.KeeperConfig{Store: store, Roster: store, Instance: lease.NewInstance(name, name+":80"), Timing: timing, Clock: clock}
	change(&cfg)
	k, err := lease.NewKeeper(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{Keeper: k, clock: clock, cancel: cancel, done: make(chan error, 1)}
	go func() { r.done <- k.Run(ctx) }()
	t.Cleanup(func() { _ = r.stop() })
	return r
}

func (r *running) session(t *testing.T) *lease.ActiveSession {
	t.Helper()
	live, err := r.Session(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return live
}

// acquire takes the lease, which must be had within the given time.
func (r *running) acquire(t *testing.T, within time.Duration, ids ...lease.ID) *lease.HeldLease {
	t.Helper()
	if len(ids) == 0 {
		ids = []lease.ID{role}
	}
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	h, err := r.Acquire(ctx, lease.AcquireRequest{Leases: ids})
	if err != nil {
		t.Fatalf("%s does not get %v within %v: %v", r.Instance().Name, ids, within, err)
	}
	return h
}
