package api

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/understudy-ha/understudy/claim"
	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/internal/outagelog"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/monitor"
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

// refusing is a store that refuses what one part writes.
type refusing struct {
	store.Queues
	monitor.Store
	refuses atomic.Pointer[string]
}

func (s *refusing) write(what string) error {
	if refused := s.refuses.Load(); refused != nil && *refused == what {
		return fmt.Errorf("%w: attempt to write a readonly database", lease.ErrUnavailable)
	}
	return nil
}

type refusingQueue struct {
	dispatch.Queue
	*refusing
}

func (q refusingQueue) Exchange(ctx context.Context, x dispatch.Exchange) (dispatch.ExchangeResult, error) {
	if err := q.write("exchange"); err != nil {
		return dispatch.ExchangeResult{}, err
	}
	return q.Queue.Exchange(ctx, x)
}

func (s *refusing) RecordHeartbeats(ctx context.Context, d monitor.HeartbeatBatch) (monitor.BatchResult, error) {
	if err := s.write("heartbeats"); err != nil {
		return monitor.BatchResult{}, err
	}
	return s.Store.RecordHeartbeats(ctx, d)
}

func (s *refusing) RegisterMember(ctx context.Context, m monitor.Member) error {
	if err := s.write("members"); err != nil {
		return err
	}
	return s.Store.RegisterMember(ctx, m)
}

// TestReadyNeedsTheWritesOfEachPart: a session that is renewed proves nothing about what a queue or the monitor writes. The log
// has one line when each outage starts and one when it ends.
func TestReadyNeedsTheWritesOfEachPart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := memory.New(nil)
		st := &refusing{Queues: inner, Store: inner.Monitor()}
		clock := bubbleClock{time.Now().Add(-time.Hour)}
		var text bytes.Buffer
		log := slog.New(outagelog.New(slog.NewTextHandler(&text, nil)))
		windows := claim.Windows{First: 30 * time.Second, Second: 3 * time.Minute}
		keeper, err := lease.NewKeeper(lease.KeeperConfig{Store: inner, Instance: lease.NewInstance("web-1", ""), Clock: clock, Timing: windows.Timing(), Logger: log})
		if err != nil {
			t.Fatal(err)
		}
		if err := inner.QueueAdmin().CreateQueue(t.Context(), "orders"); err != nil {
			t.Fatal(err)
		}
		d, err := dispatch.New(dispatch.Config{
			Name: "orders", Keeper: keeper, Claims: inner.Claims(), Queue: refusingQueue{inner.Queue(), st}, Target: acceptsAll{}, Windows: windows, Logger: log,
		})
		if err != nil {
			t.Fatal(err)
		}
		in, err := monitor.NewIntake(monitor.IntakeConfig{Store: st, Clock: clock, Logger: log})
		if err != nil {
			t.Fatal(err)
		}
		in.OpenPath(monitor.PathConfig{Name: "http"})
		w, err := monitor.NewWatcher(monitor.WatcherConfig{Store: st, Claims: inner.Claims(), Keeper: keeper, Windows: windows, Logger: log})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		running, stopKeeper := context.WithCancel(t.Context())
		var parts, kept sync.WaitGroup
		kept.Go(func() { _ = keeper.Run(running) })
		for _, run := range []func(context.Context) error{d.Run, in.Run, w.Run} {
			parts.Go(func() { _ = run(ctx) })
		}
		defer func() { stop(); parts.Wait(); stopKeeper(); kept.Wait() }()
		s := start(t, Config{
			Store: inner, Clock: clock, Keepers: []*lease.Keeper{keeper}, Dispatchers: []func() dispatch.Stats{d.Stats}, Monitor: &Monitor{Intake: in, Watcher: w},
		})
		do := func(path string) answer { return send(t, s, request(t.Context(), "GET", path, "")) }
		time.Sleep(3 * time.Second)
		do("/readyz").want(200, "")
		for what, says := range map[string]string{"exchange": "what queue orders writes", "heartbeats": "what the monitor writes", "members": "(registering)"} {
			st.refuses.Store(&what)
			_, err := inner.QueueAdmin().Add(t.Context(), []dispatch.Message{dispatch.Message{Queue: "orders", Key: "k", ID: what}.WithDefaults()})
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(30 * time.Second)
			if got := do("/readyz").want(503, "not_ready").Detail; !strings.Contains(got, says) || !strings.Contains(got, "readonly database") {
				t.Errorf("%s: it says %s", what, got)
			}
			if text := do("/metrics").Body; !strings.Contains(text, "understudy_store_up 0\n") {
				t.Errorf("%s: the metrics say that the store is up", what)
			}
			st.refuses.Store(nil)
			time.Sleep(15 * time.Second)
			do("/readyz").want(200, "")
		}
		if lines := text.String(); strings.Count(lines, "\n") != 6 || strings.Count(lines, "the store does not answer") != 3 || strings.Count(lines, lease.StoreAnswers) != 3 {
			t.Errorf("the log of three outages:\n%s", lines)
		}
	})
}

// TestOutageIsLoggedEveryMinute: package outagelog takes an outage that nobody mentions any more for one that has ended.
func TestOutageIsLoggedEveryMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var text strings.Builder
		b := newPoller(&Server{log: slog.New(slog.NewTextHandler(&text, nil))})
		for range 150 {
			b.recordResult(lease.ErrUnavailable, 0)
			time.Sleep(time.Second)
		}
		b.recordResult(nil, 0)
		if lines := text.String(); strings.Count(lines, "store does not answer") != 3 || strings.Count(lines, lease.StoreAnswers) != 1 {
			t.Errorf("got %s", lines)
		}
	})
}

// acceptsAll is a target.
type acceptsAll struct{}

func (acceptsAll) Name() string                  { return "all" }
func (acceptsAll) Semantics() dispatch.Semantics { return dispatch.Semantics{} }
func (acceptsAll) Submit(context.Context, dispatch.Assignment) dispatch.Answer {
	return dispatch.Answer{Outcome: dispatch.Done}
}
func (acceptsAll) Status(_ context.Context, as []dispatch.Assignment) []dispatch.Answer {
	return make([]dispatch.Answer, len(as))
}
