package lease_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/understudy-ha/understudy/internal/testkit/syncbuffer"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/lease/leasetest"
)

func TestKeeperConfig(t *testing.T) {
	store, good := newSpy(), lease.NewInstance("n", "")
	for name, c := range map[string]struct {
		cfg  lease.KeeperConfig
		want error
	}{
		"no store":      {lease.KeeperConfig{Instance: good}, lease.ErrInvalid},
		"no instance":   {lease.KeeperConfig{Store: store}, lease.ErrInvalid},
		"hostile name":  {lease.KeeperConfig{Store: store, Instance: lease.NewInstance("a\nb", "")}, lease.ErrInvalid},
		"unsafe timing": {lease.KeeperConfig{Store: store, Instance: good, Timing: lease.Timing{Interval: time.Second, Timeout: 2 * time.Second}}, lease.ErrUnsafeTiming},
		"defaults":      {lease.KeeperConfig{Store: store, Instance: good}, nil},
	} {
		if _, err := lease.NewKeeper(c.cfg); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}

// One request per interval, however many leases are held.
func TestKeeperRenewsOncePerInterval(t *testing.T) {
	for _, leases := range []int{0, 1, 1000} {
		t.Run(fmt.Sprint(leases), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newSpy()
				k := keep(t, store, "a")
				live := k.session(t)
				for i := range leases {
					id := lease.ID{Space: "role", Key: fmt.Sprint("r", i)}
					if _, err := store.Store.Acquire(t.Context(), lease.Expectation{Lease: id, Session: live.ID()}); err != nil {
						t.Fatal(err)
					}
				}
				store.reset()
				time.Sleep(100*time.Second + 500*time.Millisecond)
				if got := store.count("renew"); got != 100 {
					t.Errorf("%d renewals in 100 intervals", got)
				}
				for _, call := range []string{"get", "acquire", "start", "release"} {
					if got := store.count(call); got != 0 {
						t.Errorf("%d calls of %s while nothing happens", got, call)
					}
				}
				if k.session(t) != live || !live.Valid() {
					t.Error("the session did not last")
				}
				if s := k.Stats(); s.Sessions != 1 || s.Renewals < 100 || s.Failures != 0 || s.Lost != 0 {
					t.Errorf("stats %+v", s)
				}
			})
		})
	}
}

// Trust counts from before the request was sent, not from when it was answered.
func TestTrustIsAnchoredBeforeTheRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newSpy()
		const slow = 700 * time.Millisecond
		store.intercept(func(_ context.Context, call string) error {
			if call == "start" || call == "renew" {
				time.Sleep(slow)
			}
			return nil
		})
		k := keep(t, store, "a")
		live := k.session(t)
		if got, want := live.Remaining(), timing.Timeout-timing.Interval-slow; got != want {
			t.Errorf("after a start that took %v, trust lasts %v, want %v", slow, got, want)
		}
		_, changed := live.Until()
		<-changed
		if got, want := live.Remaining(), timing.Timeout-timing.Interval-slow; got != want {
			t.Errorf("after a renewal that took %v, trust lasts %v, want %v", slow, got, want)
		}
	})
}

// When the store is down, work is told margin before trust ends, which is T-I
// after the last renewal was sent; and when it is back, all continues.
func TestStoreDown(t *testing.T) {
	for name, down := range map[string]func(context.Context, string) error{
		"refuses":         func(context.Context, string) error { return unavailable },
		"does not answer": hang,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newSpy()
				k := keep(t, store, "a")
				live := k.session(t)
				sent := time.Now()
				const margin = 500 * time.Millisecond
				work, release := live.Bind(t.Context(), margin)
				defer release()
				store.intercept(down)
				<-work.Done()
				if got, want := time.Since(sent), timing.Timeout-timing.Interval-margin; got != want {
					t.Errorf("the work was told %v after the last renewal was sent, want %v", got, want)
				}
				if cause := context.Cause(work); !errors.Is(cause, lease.ErrLost) {
					t.Errorf("the cause is %v, want ErrLost", cause)
				}
				if !live.Valid() {
					t.Error("trust ended before the margin was used")
				}
				time.Sleep(margin)
				if live.Valid() {
					t.Error("trust goes on after T-I")
				}
				release()
				time.Sleep(time.Hour)
				store.intercept(nil)
				time.Sleep(2*timing.CallTimeout() + 2*timing.Interval)
				again := k.session(t)
				if again.ID() == live.ID() || !again.Valid() {
					t.Errorf("after an hour the session is %s again, valid: %t", again.ID(), again.Valid())
				}
				select {
				case <-live.Done():
				default:
					t.Error("the old session is not over")
				}
				if s := k.Stats(); s.Lost != 1 || s.Sessions != 2 || s.Failures == 0 {
					t.Errorf("stats %+v", s)
				}
			})
		})
	}
}

// The log says why a session was lost.
func TestWhySessionWasLost(t *testing.T) {
	for want, lose := range map[string]func(*testing.T, *spy, *lease.ActiveSession){
		"not renewed for T": func(t *testing.T, store *spy, live *lease.ActiveSession) {
			store.fail(unavailable, "renew")
			time.Sleep(2 * timing.Timeout)
			store.intercept(nil)
		},
		"before its time": func(t *testing.T, store *spy, live *lease.ActiveSession) {
			if err := store.EndSession(t.Context(), live.ID(), "by hand"); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(want, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, log := newSpy(), &syncbuffer.Buffer{}
				k := keepWith(t, store, "a", func(cfg *lease.KeeperConfig) { cfg.Logger = slog.New(slog.NewTextHandler(log, nil)) })
				live := k.session(t)
				lose(t, store, live)
				time.Sleep(timing.Timeout)
				if !strings.Contains(log.String(), want) {
					t.Errorf("the log does not say %q:\n%s", want, log.String())
				}
			})
		})
	}
}

// A store that is down for a moment costs the session nothing.
func TestStoreBackInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newSpy()
		k := keep(t, store, "a")
		live := k.session(t)
		work, release := live.Bind(t.Context(), time.Second)
		defer release()
		store.fail(unavailable, "renew")
		time.Sleep(1500 * time.Millisecond)
		store.intercept(nil)
		time.Sleep(time.Minute)
		if work.Err() != nil || k.session(t) != live {
			t.Errorf("the work ended with %v", context.Cause(work))
		}
	})
}

// Err asks the clock: work that was paused finds out at its next look, though
// the timer that should have told it has not fired.
func TestBoundErrIsComputed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newSpy()
		k := keep(t, store, "a")
		live := k.session(t)
		store.intercept(hang)
		k.clock.Delay(time.Hour)
		work, release := live.Bind(t.Context(), time.Second)
		defer release()
		time.Sleep(3*time.Second - time.Nanosecond)
		if err := work.Err(); err != nil {
			t.Errorf("%v while trust is there", err)
		}
		time.Sleep(time.Nanosecond)
		select {
		case <-work.Done():
			t.Fatal("the timer fired: this test tests nothing")
		default:
		}
		if err := work.Err(); !errors.Is(err, context.Canceled) || !errors.Is(context.Cause(work), lease.ErrLost) {
			t.Errorf("Err is %v, cause %v at the margin", err, context.Cause(work))
		}
		select {
		case <-work.Done():
		default:
			t.Error("Err told the end, but Done is open")
		}
	})
}

func TestBindToASessionThatIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := keep(t, newSpy(), "a")
		live := k.session(t)
		if err := k.stop(); err != nil {
			t.Fatal(err)
		}
		work, release := live.Bind(t.Context(), 0)
		defer release()
		if work.Err() == nil || live.Valid() || live.Remaining() != 0 {
			t.Error("an ended session can be worked under")
		}
	})
}

func TestWallJumpRenewsAtOnce(t *testing.T) {
	for _, by := range []time.Duration{time.Hour, -time.Hour} {
		t.Run(by.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newSpy()
				k := keep(t, store, "a")
				live := k.session(t)
				time.Sleep(10*timing.Interval + 10*time.Millisecond)
				store.reset()
				k.clock.StepWall(by)
				time.Sleep(timing.Interval/4 + time.Millisecond)
				if got := store.count("renew"); got != 1 {
					t.Errorf("%d renewals within a quarter of an interval after the jump, want 1", got)
				}
				if !live.Valid() || k.session(t) != live {
					t.Error("the jump cost the session")
				}
			})
		})
	}
}

func TestSmallWallDriftIsNoJump(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newSpy()
		k := keep(t, store, "a")
		k.session(t)
		time.Sleep(10 * time.Millisecond)
		store.reset()
		for range 20 {
			k.clock.StepWall(time.Millisecond)
			time.Sleep(time.Second)
		}
		if got := store.count("renew"); got != 20 {
			t.Errorf("%d renewals in 20 intervals", got)
		}
	})
}

// A session that was taken from is never renewed: another is started, and
// whatever was bound is told.
func TestLapsedSessionIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newSpy()
		k := keep(t, store, "a")
		live := k.session(t)
		work, release := live.Bind(t.Context(), time.Second)
		defer release()
		if err := store.Store.EndSession(t.Context(), live.ID(), "by hand"); err != nil {
			t.Fatal(err)
		}
		<-work.Done()
		if !errors.Is(context.Cause(work), lease.ErrLost) || live.Valid() {
			t.Errorf("cause %v, valid %t", context.Cause(work), live.Valid())
		}
		if next := k.session(t); next.ID() == live.ID() || !next.Valid() {
			t.Error("no new session")
		}
	})
}

// Stopping waits for bound work, keeps renewing meanwhile, and then frees all.
func TestGracefulStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newSpy()
		k := keep(t, store, "a")
		h := k.acquire(t, time.Second)
		_, release := h.Active.Bind(t.Context(), time.Second)
		stopped := make(chan error, 1)
		go func() { stopped <- k.stop() }()
		time.Sleep(time.Minute)
		if l, _ := store.Store.Get(t.Context(), role); !l.Held() {
			t.Fatal("the session ended before the work did")
		}
		if !h.Active.Valid() {
			t.Error("trust was not renewed while the work stops")
		}
		began := time.Now()
		release()
		if err := <-stopped; err != nil {
			t.Errorf("Run returned %v", err)
		}
		if took := time.Since(began); took > 10*time.Millisecond {
			t.Errorf("stopping took %v after the work had stopped", took)
		}
		if l, _ := store.Store.Get(t.Context(), role); l.Session != "" {
			t.Errorf("after the stop the lease is %+v", l)
		}
	})
}

func TestStopDoesNotWaitForeverForWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newSpy()
		k := keep(t, store, "a")
		live := k.session(t)
		_, release := live.Bind(t.Context(), time.Second)
		defer release()
		store.fail(unavailable, "renew")
		began := time.Now()
		if err := k.stop(); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took > timing.Timeout {
			t.Errorf("Run waited %v for work that goes on", took)
		}
	})
}

func TestStopWhileTheStoreIsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newSpy()
		k := keep(t, store, "a")
		k.session(t)
		store.intercept(hang)
		began := time.Now()
		if err := k.stop(); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took > timing.Timeout {
			t.Errorf("Run returned after %v", took)
		}
	})
}

func TestErrorsThatEndRun(t *testing.T) {
	for _, call := range []string{"start", "renew"} {
		for _, fatal := range []error{lease.ErrTwoHosts, lease.ErrInvalid} {
			t.Run(call+" "+fatal.Error(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					store := newSpy()
					store.fail(fmt.Errorf("no: %w", fatal), call)
					k := keep(t, store, "a")
					waiting := make(chan error, 2)
					go func() {
						if call == "renew" {
							<-k.session(t).Done()
						}
						go func() { _, err := k.Session(context.Background()); waiting <- err }()
						_, err := k.Acquire(context.Background(), wantRole)
						waiting <- err
					}()
					for range 2 {
						if err := <-waiting; !errors.Is(err, fatal) {
							t.Errorf("who waited for a session got %v", err)
						}
					}
					if _, failure := k.Failing(); !errors.Is(failure, fatal) || !errors.Is(k.Err(), fatal) {
						t.Errorf("failing: %v; Err: %v", failure, k.Err())
					}
					time.Sleep(time.Minute)
					synctest.Wait()
					select {
					case err := <-k.done:
						k.done <- err
						if !errors.Is(err, fatal) {
							t.Errorf("Run returned %v", err)
						}
					default:
						t.Error("Run goes on")
					}
					store.intercept(nil)
					again, cancel := context.WithCancel(t.Context())
					ran := make(chan error, 1)
					go func() { ran <- k.Run(again) }()
					synctest.Wait()
					k.session(t) // one that runs again is as new
					cancel()
					if err := <-ran; err != nil || k.Err() != nil {
						t.Errorf("run again: %v, %v", err, k.Err())
					}
				})
			})
		}
	}
}

func TestSessionWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newSpy()
		store.fail(unavailable, "start")
		k := keep(t, store, "a")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, errors.New("enough"))
		defer cancel()
		if _, err := k.Session(ctx); err == nil || err.Error() != "enough" {
			t.Errorf("Session: %v, want the cause of its context", err)
		}
		if n := store.count("start"); n < 30 || n > 90 {
			t.Errorf("%d attempts in a minute at an interval of a second", n)
		}
		store.intercept(nil)
		began := time.Now()
		k.session(t)
		if took := time.Since(began); took > 2*timing.Interval {
			t.Errorf("a session %v after the store came up", took)
		}
	})
}

// A renewal says that something changed hands: whoever waits looks again,
// though the notification was lost.
func TestRenewalStandsInForALostWakeUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newSpy()
		store.watch = errors.ErrUnsupported
		a, b := keep(t, store, "a"), keep(t, store, "b")
		h := a.acquire(t, time.Second)
		got := make(chan *lease.HeldLease, 1)
		go func() { got <- b.acquire(t, time.Minute) }()
		time.Sleep(20 * time.Second)
		if err := h.Release(t.Context(), "", "test"); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		<-got
		if took := time.Since(began); took > 3*timing.Interval/2 {
			t.Errorf("without notifications the hand-over took %v", took)
		}
	})
}

// A session is renewed only when who vouches for it does, and its trust counts from after
// that was asked.
func TestHealthCheck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newSpy()
		var mu sync.Mutex
		var answer error
		var asked int
		say := func(err error) {
			mu.Lock()
			defer mu.Unlock()
			answer = err
		}
		k := keepWith(t, store, "a", func(cfg *lease.KeeperConfig) {
			cfg.HealthCheck = func(ctx context.Context) error {
				mu.Lock()
				asked++
				err := answer
				mu.Unlock()
				if errors.Is(err, context.DeadlineExceeded) {
					<-ctx.Done() // as one that hangs
				}
				return err
			}
		})
		live := k.session(t)
		time.Sleep(10 * timing.Interval)
		if mu.Lock(); asked < 9 || !live.Valid() {
			t.Errorf("asked %d times in ten intervals; valid: %t", asked, live.Valid())
		}
		mu.Unlock()
		// An error of the one who vouches is none of the store's, whatever it wraps.
		for _, no := range []error{errors.New("not well"), lease.ErrLapsed, lease.ErrInvalid, context.DeadlineExceeded} {
			live, err := k.Session(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			synctest.Wait() // a renewal that is due now was vouched for
			say(no)
			store.reset()
			time.Sleep(timing.Timeout)
			if live.Valid() || store.count("renew") != 0 {
				t.Errorf("%v: after T valid: %t, renewed %d times", no, live.Valid(), store.count("renew"))
			}
			say(nil)
			time.Sleep(2 * timing.Timeout)
			if next, err := k.Session(t.Context()); err != nil || next.ID() == live.ID() || !next.Valid() {
				t.Errorf("%v: no new session after it is well again: %v", no, err)
			}
		}
		if err := k.stop(); err != nil {
			t.Error(err)
		}
	})
}

// A keeper that is stopped ends its session once, and has nothing to say about it.
func TestStopEndsTheSessionOnce(t *testing.T) {
	for range 30 { // what stops and what is idle are ready at once, and either may come first
		synctest.Test(t, func(t *testing.T) {
			store := newSpy()
			var log bytes.Buffer
			k, err := lease.NewKeeper(lease.KeeperConfig{
				Store: store, Roster: store, Instance: lease.NewInstance("web-1", ""), Timing: timing, Clock: &leasetest.BubbleClock{},
				Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn})),
			})
			if err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- k.Run(ctx) }()
			if _, err := k.Session(ctx); err != nil {
				t.Fatal(err)
			}
			ends := 0
			store.intercept(func(ctx context.Context, call string) error {
				if call == "end" {
					ends++
				}
				return context.Cause(ctx)
			})
			stop()
			if err := <-done; err != nil || ends != 1 || log.Len() > 0 {
				t.Fatalf("%v, %d calls that end it, %s", err, ends, &log)
			}
		})
	}
}

// The id of a session is all that it takes to end it: no log has it, at any level.
func TestSessionIDsAreNotLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newSpy()
		var log bytes.Buffer
		k, err := lease.NewKeeper(lease.KeeperConfig{
			Store: store, Roster: store, Instance: lease.NewInstance("web-1", ""), Timing: timing, Clock: &leasetest.BubbleClock{},
			Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- k.Run(ctx) }()
		live, err := k.Session(ctx)
		if err != nil {
			t.Fatal(err)
		}
		store.intercept(func(context.Context, string) error { return unavailable })
		time.Sleep(2 * timing.Interval)
		stop()
		<-done
		for _, said := range []string{"session started", "renewal failed", "could not be ended"} {
			if !strings.Contains(log.String(), said) {
				t.Errorf("the log lacks %q", said)
			}
		}
		if strings.Contains(log.String(), live.ID()) {
			t.Errorf("the log has the session's id:\n%s", log.String())
		}
	})
}
