package elect_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/understudy-ha/understudy/elect"
	"github.com/understudy-ha/understudy/internal/testkit/syncbuffer"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/lease/leasetest"
	"github.com/understudy-ha/understudy/store/memory"
)

// countingStore counts what is asked of it besides renewals.
type countingStore struct {
	leasetest.Target
	calls *atomic.Int64
}

func (s countingStore) Get(ctx context.Context, id lease.ID) (lease.Lease, error) {
	s.calls.Add(1)
	return s.Target.Get(ctx, id)
}

func (s countingStore) Join(ctx context.Context, id lease.ID, session string) (lease.Lease, error) {
	s.calls.Add(1)
	return s.Target.Join(ctx, id, session)
}

func (s countingStore) Acquire(ctx context.Context, e lease.Expectation) (lease.Lease, error) {
	s.calls.Add(1)
	return s.Target.Acquire(ctx, e)
}

// A standby says who holds each place of the role, and asks the store for nothing: its renewals show it.
func TestStandbySaysWhoIsPrimary(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New(nil)
		s := newStage(t)
		var log bytes.Buffer
		logger := slog.New(slog.NewTextHandler(&log, nil))
		for _, name := range []string{"a", "b"} {
			start(t, store, name).run(t, elect.Run, elect.Config{Role: "pair", Holders: 2}, func(ctx context.Context, _ elect.Term) error {
				<-ctx.Done()
				return ctx.Err()
			})
			time.Sleep(time.Second)
		}
		start(t, store, "d").run(t, elect.Run, elect.Config{Role: "one"}, s.work(0))
		time.Sleep(time.Second)
		var calls atomic.Int64
		counted := countingStore{store, &calls}
		start(t, counted, "c").run(t, elect.Run, elect.Config{Role: "pair", Holders: 2, Logger: logger}, nil)
		start(t, counted, "e").run(t, elect.Run, elect.Config{Role: "one", Logger: logger}, nil)
		time.Sleep(10 * time.Second)
		calls.Store(0)
		time.Sleep(10 * time.Minute)
		synctest.Wait() // nobody writes to the log while it is read
		if n := calls.Load(); n != 0 {
			t.Errorf("two standbys asked %d times in ten minutes", n)
		}
		for said, least := range map[string]int{`role=pair name=c primaries="a, b"`: 10, "role=one name=e primary=d term=": 10} {
			if n := strings.Count(log.String(), said); n < least || n > least+2 {
				t.Errorf("%q was said %d times in ten minutes:\n%s", said, n, log.String())
			}
		}
	})
}

// saidNext returns what is written to a log within ten minutes.
func saidNext(log *syncbuffer.Buffer) string {
	before := len(log.String())
	time.Sleep(10 * time.Minute)
	return log.String()[before:]
}

// A standby that waits for its companion again has seen nothing of its role since.
func TestStandbyForgetsWhomItSaw(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New(nil)
		s := newStage(t)
		var log syncbuffer.Buffer
		start(t, store, "a").run(t, elect.Run, elect.Config{Role: "near"}, s.work(0))
		until(t, time.Second, "a plays", func() bool { return s.who("near") == "a" })
		companion := start(t, store, "b").run(t, elect.Run, elect.Config{Role: "main"}, s.work(0))
		start(t, store, "b").run(t, elect.Run, elect.Config{Role: "near", With: "main", Logger: slog.New(slog.NewTextHandler(&log, nil))}, s.work(0))
		if said := saidNext(&log); !strings.Contains(said, "primary=a") {
			t.Errorf("beside its companion it did not say who is primary:\n%s", said)
		}
		_ = companion.result()
		time.Sleep(2 * timing.Interval)
		if said := saidNext(&log); !strings.Contains(said, "waits for the companion role") || strings.Contains(said, "primary=a") {
			t.Errorf("without its companion it said:\n%s", said)
		}
	})
}

// stalled is a log whose reader stops at a message until the test ends.
type stalled struct {
	slog.Handler
	at     string
	resume <-chan struct{}
}

func (h stalled) WithAttrs([]slog.Attr) slog.Handler { return h }

func (h stalled) Enabled(context.Context, slog.Level) bool { return true }

func (h stalled) Handle(_ context.Context, r slog.Record) error {
	if r.Message == h.at {
		<-h.resume
	}
	return nil
}

// A log whose reader has stalled neither keeps a role that nobody works for, nor the work from starting.
func TestStalledLog(t *testing.T) {
	for _, at := range []string{"released the role", "primary", "standby", "lost the role"} {
		t.Run(at, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				resume := make(chan struct{})
				log := slog.New(stalled{slog.DiscardHandler, at, resume})
				store := memory.New(nil)
				s := newStage(t)
				a, b := start(t, store, "a"), start(t, store, "b")
				cfg := elect.Config{Role: "r", Logger: log}
				a.run(t, elect.Run, cfg, s.work(0))
				until(t, 2*timing.Interval, "a works", func() bool { return s.who("r") == "a" })
				b.run(t, elect.Run, cfg, s.work(0))
				t.Cleanup(func() { close(resume) }) // before the campaigns are stopped
				time.Sleep(2 * reportPause)
				within := timing.Interval + 10*time.Millisecond
				if at == "lost the role" {
					a.cut()
					within += timing.WorstTakeover()
				} else if _, err := elect.Resign(t.Context(), store, elect.ResignRequest{Role: "r", By: "operator"}); err != nil {
					t.Fatal(err)
				}
				took := until(t, 10*time.Minute, "b works", func() bool { return s.who("r") == "b" })
				if at == "primary" {
					within += timing.Interval // the log of b has stalled, too
				}
				if took > within {
					t.Errorf("b works after %v, want at most %v", took, within)
				}
				if at == "lost the role" {
					a.mend()
				}
			})
		})
	}
}

// reportPause is longer than a standby waits before it says who is primary.
const reportPause = time.Minute
