package agent

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// A node whose process has ended is closed for who waits for that, and what is to be closed later is closed.
func TestFenceOfANodeThatEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := bubbleClock{time.Now()}
		trusted := newTrust(clock)
		trusted.promised = clock.Now() + time.Hour
		var asked atomic.Int64
		var back atomic.Bool
		g := &fence{clock: clock, trust: trusted, callTimeout: time.Second, margin: time.Second, log: slog.New(slog.DiscardHandler), onHung: func() {}, onTrustEnd: func() {},
			wake: make(chan struct{}, 1), acknowledged: make(chan struct{}), mayBeOpen: true}
		g.engine = unclosable{fail: func() error {
			if asked.Add(1); !back.Load() {
				time.Sleep(g.callTimeout / 2)
				return context.DeadlineExceeded
			}
			return nil
		}}
		go g.run(t.Context())
		waited := make(chan error, 1)
		go func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			waited <- g.closeAndWait(ctx)
		}()
		time.Sleep(10 * time.Second)
		g.nodeEnded()
		synctest.Wait()
		select {
		case err := <-waited:
			if err != nil {
				t.Error(err)
			}
		default:
			t.Error("it still waits for a node that has ended")
		}
		time.Sleep(time.Second) // the last attempt ends
		back.Store(true)
		if err := g.adoptOpen(); err != nil {
			t.Fatal(err)
		}
		before := asked.Load()
		g.requestClose()
		time.Sleep(time.Second)
		if asked.Load() == before || g.isOpen() {
			t.Errorf("closing was requested: asked %d times, open: %t", asked.Load()-before, g.isOpen())
		}
	})
}

// A node that does not answer hangs when trust ends. An agent that stood still until after that gives
// it some time: the machine may have stood still with it.
func TestFenceHung(t *testing.T) {
	for name, c := range map[string]struct {
		trust, answers time.Duration // from the begin; 0: never
		hung           time.Duration // about; 0: never
		found          time.Duration // until when it may be silent, as is found while it is being closed
	}{
		"in time":               {trust: 10 * time.Second, hung: 10 * time.Second},
		"in time, it answers":   {trust: 10 * time.Second, answers: 9600 * time.Millisecond},
		"overslept":             {hung: 2500 * time.Millisecond},
		"overslept, it answers": {answers: 2 * time.Second},
		"being closed already":  {found: 9 * time.Second, hung: 9 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				clock := bubbleClock{time.Now()}
				trusted := newTrust(clock)
				trusted.promised = clock.Now() + c.trust
				ctx, cancel := context.WithCancel(t.Context())
				hung := time.Duration(0)
				g := &fence{clock: clock, trust: trusted, callTimeout: 500 * time.Millisecond, margin: time.Second, lateGrace: 2500 * time.Millisecond,
					log: slog.New(slog.DiscardHandler), onTrustEnd: func() {}, wake: make(chan struct{}, 1), acknowledged: make(chan struct{}), mayBeOpen: c.found == 0}
				g.onHung = func() { hung = clock.Now(); cancel() }
				g.engine = unclosable{fail: func() error {
					if c.answers == 0 || clock.Now() < c.answers {
						time.Sleep(g.callTimeout)
						return context.DeadlineExceeded
					}
					return nil
				}}
				done := make(chan struct{})
				go func() { defer close(done); g.run(ctx) }()
				if c.found != 0 {
					g.requestClose()
					time.Sleep(2200 * time.Millisecond) // a try is under way
					g.closeSilent(c.found)
				}
				time.Sleep(20 * time.Second)
				cancel()
				<-done
				if hung < c.hung || hung > c.hung+2*g.callTimeout || (hung == 0) != (c.hung == 0) {
					t.Errorf("hung after %v, want %v", hung, c.hung)
				}
				if c.answers != 0 && g.isOpen() {
					t.Error("it is still open")
				}
			})
		})
	}
}
