package agent

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/shard"
)

// session is the agent's session in the store, kept by package lease's keeper only while the node is the
// primary or is about to become it.
type session struct {
	keeper *lease.Keeper
	cancel context.CancelFunc
	done   chan struct{}

	failingSince atomic.Int64 // clock reading since when the node cannot write; 0: it can
}

// sessions starts and ends the agent's session, and renews it only after the node has answered a write
// probe, so that the session of a hung node lapses.
type sessions struct {
	*common
	trust *trust
	store sessionStore

	mu      sync.Mutex
	current *session

	failure     atomic.Value // string: why the node cannot write
	pausedUntil atomic.Int64 // clock reading until which its writes may be paused; 0: they are not
}

// start returns the agent's session, and starts it if there is none.
func (s *sessions) start() *session {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current != nil {
		return s.current
	}
	started := &session{done: make(chan struct{})}
	// A connection of its own: a probe must not wait behind whatever else is asked of the node.
	node := s.cfg.Engines.At(s.cfg.Node)
	keeper, err := lease.NewKeeper(lease.KeeperConfig{
		Store: &s.store, Instance: s.instance, Timing: s.cfg.Timing, Clock: s.clock, Logger: s.log, Jitter: s.cfg.Jitter,
		HealthCheck: func(ctx context.Context) error { return s.checkNode(ctx, started, node) },
	})
	if err != nil {
		panic("shard: " + err.Error()) // New has checked all of it
	}
	ctx, cancel := context.WithCancel(s.ctx)
	started.keeper, started.cancel = keeper, cancel
	s.current = started
	s.wg.Go(func() {
		defer close(started.done)
		defer func() { _ = node.Close() }()
		defer cancel()
		if err := keeper.Run(ctx); err != nil {
			s.log.Error("session cannot be kept", "err", err)
		}
	})
	return started
}

// checkNode returns nil if the node may keep its session: it answers. One that refuses writes because of its
// own fence, or cannot write, answers too; whether to give it up then is for the reconciler.
func (s *sessions) checkNode(ctx context.Context, current *session, node shard.Engine) error {
	now := s.now()
	err := s.tryWrite(ctx, node)
	switch {
	case err == nil || errors.Is(err, shard.ErrNodeRefused):
		current.failingSince.Store(0)
	case errors.Is(err, shard.ErrNodeUnhealthy):
		current.failingSince.CompareAndSwap(0, int64(now))
		s.failure.Store(err.Error())
	default:
		return err
	}
	return nil
}

// tryWrite sends a write probe. While writes are paused it would wait, so that a read has to do.
func (s *sessions) tryWrite(ctx context.Context, node shard.Engine) error {
	if until := time.Duration(s.pausedUntil.Load()); until != 0 && s.now() < until {
		_, err := node.Probe(ctx)
		return err
	}
	return node.TryWrite(ctx)
}

// end ends the session; its leases are released with it. It does not wait.
func (s *sessions) end() {
	s.mu.Lock()
	ending := s.current
	s.current = nil
	s.mu.Unlock()
	// Trust ends first: from here on the fence may not be opened any more.
	s.trust.update(func(t *trust) { t.session = nil })
	if ending != nil {
		ending.cancel()
	}
}

// get returns the session, nil if there is none.
func (s *sessions) get() *session {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.current
}

// writeFailure tells since when the node answers and cannot write, and why; 0: it can, or there is no session.
func (s *sessions) writeFailure() (since time.Duration, why string) {
	current := s.get()
	if current == nil {
		return 0, ""
	}
	why, _ = s.failure.Load().(string)
	return time.Duration(current.failingSince.Load()), why
}

// waitTrusted waits for a session that is trusted for longer than margin.
func (s *session) waitTrusted(ctx context.Context, margin time.Duration) (*lease.ActiveSession, error) {
	for {
		live, err := s.keeper.Session(ctx)
		if err != nil {
			return nil, err
		}
		_, changed := live.Until()
		if live.Remaining() > margin {
			return live, nil
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-s.done:
			return nil, errStopped
		case <-live.Done():
		case <-changed:
		}
	}
}

// sessionStore is the store as the keeper sees it: an abandoned agent, like a crashed one, ends no session.
type sessionStore struct {
	lease.Store
	abandoned atomic.Bool
}

// EndSession ends the session, unless the agent is abandoned.
func (s *sessionStore) EndSession(ctx context.Context, id, reason string) error {
	if s.abandoned.Load() {
		return fmt.Errorf("%w: the agent is abandoned", lease.ErrInvalid)
	}
	return s.Store.EndSession(ctx, id, reason)
}
