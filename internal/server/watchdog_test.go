package server

import (
	"context"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/store/memory"
)

// hangs is a store that, from a moment on, answers no renewal, whatever its caller's deadline.
type hangs struct {
	lease.Store
	stuck   atomic.Bool
	refuses atomic.Bool
	release chan struct{}
}

func (s *hangs) RenewSession(ctx context.Context, id string) (lease.Renewal, error) {
	switch {
	case s.stuck.Load():
		<-s.release
	case s.refuses.Load():
		return lease.Renewal{}, lease.ErrUnavailable
	}
	return s.Store.RenewSession(ctx, id)
}

func (s *hangs) StartSession(ctx context.Context, one lease.Session) (lease.Renewal, error) {
	if s.refuses.Load() {
		return lease.Renewal{}, lease.ErrUnavailable
	}
	return s.Store.StartSession(ctx, one)
}

// A keeper that hangs is not vouched for; one whose store is away is, with and without a session.
func TestWatchdogSeesAKeeperThatHangs(t *testing.T) {
	st := &hangs{Store: memory.New(nil), release: make(chan struct{})}
	k, err := lease.NewKeeper(lease.KeeperConfig{
		Store: st, Instance: lease.NewInstance("ann", ""), Timing: lease.Timing{Interval: 10 * time.Millisecond, Timeout: 100 * time.Millisecond},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = k.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	if _, err := k.Session(ctx); err != nil {
		t.Fatal(err)
	}
	r := newRounds([]*lease.Keeper{k})
	// A clock of the watcher's own, which runs only while the keeper had its chance.
	now := time.Now()
	goesRound := func(what string) {
		t.Helper()
		for range 5 {
			before := k.Stats()
			eventuallyTrue(t, what, func() bool { return k.Stats() != before || !hasSession(k) })
			now = now.Add(150 * time.Millisecond)
			if !r.alive(now) {
				t.Fatalf("%s: not vouched for", what)
			}
		}
	}
	goesRound("all is well")
	st.refuses.Store(true)
	goesRound("the store is away")
	eventuallyTrue(t, "the session is lost", func() bool { return !hasSession(k) || k.Stats().Failures > 3 })
	goesRound("the store is away for long")
	st.refuses.Store(false)
	goesRound("the store is back")
	eventuallyTrue(t, "a session", func() bool { return hasSession(k) })

	st.stuck.Store(true)
	eventuallyTrue(t, "a keeper that hangs", func() bool {
		now = now.Add(50 * time.Millisecond)
		return !r.alive(now)
	})
	close(st.release)
	st.stuck.Store(false)
	goesRound("it goes on")
}

// enough is how long a test waits for what takes milliseconds: a busy machine is given more.
const enough = 90 * time.Second

func eventuallyTrue(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(enough); !ok(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %v", what, enough)
		}
	}
}

func TestWatchdogAsksTheServer(t *testing.T) {
	var asked string
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = r.Method + " " + r.URL.Path
		_, _ = w.Write([]byte("up"))
	})
	if !answers(t.Context(), h) || asked != "GET /healthz" {
		t.Errorf("asked %q", asked)
	}
}
