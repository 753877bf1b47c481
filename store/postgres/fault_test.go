package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/internal/testkit/realserver"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/store/postgres"
)

// TestPoolExhausted: sessions are renewed while calls are stuck, and those end with
// their deadlines.
func TestPoolExhausted(t *testing.T) {
	server := realserver.Postgres(t, realserver.PostgresOptions{})
	url := server.NewDatabase(t)
	s := open(t, url)
	a := start(t, s, "a", time.Hour)
	tx := begin(t, connect(t, url))
	if _, err := tx.Exec(t.Context(), "LOCK TABLE understudy.lease"); err != nil {
		t.Fatal(err)
	}
	var unknown atomic.Bool
	var wg sync.WaitGroup
	stuck := func(ctx context.Context) {
		wg.Go(func() {
			_, err := s.Acquire(ctx, lease.Expectation{Lease: role("r"), Session: a.ID})
			if !errors.Is(err, lease.ErrUnavailable) && !errors.Is(err, lease.ErrUnknown) {
				t.Errorf("a stuck claim: %v, want ErrUnavailable or ErrUnknown", err)
			}
			if errors.Is(err, lease.ErrUnknown) {
				unknown.Store(true)
			}
		})
	}
	// These have more time than the renewals, which would have to wait for them.
	long, over := context.WithTimeout(t.Context(), 2*ample)
	defer over()
	for range 4 {
		stuck(long)
	}
	waiting(t, url, 1)
	for range 5 {
		if _, err := s.RenewSession(amply(t), a.ID); err != nil {
			t.Errorf("a renewal beside stuck claims: %v", err)
		}
	}
	over()
	// The table is still locked when these have to end.
	short, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	for range 4 {
		stuck(short)
	}
	wg.Wait()
	conn := connect(t, url)
	realserver.Eventually(t, ample, "the server gives up what was given up", func() error {
		var n int
		err := conn.QueryRow(t.Context(), waitingSQL).Scan(&n)
		if err == nil && n > 0 {
			err = fmt.Errorf("%d statements wait", n)
		}
		return err
	})
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	switch l, err := s.Get(t.Context(), role("r")); {
	case err != nil || l.Term != 0 && !unknown.Load():
		t.Errorf("a claim was served though its caller was told that it was not: term %d, %v", l.Term, err)
	case l.Term == 0:
		take(t, s, role("r"), a, false)
	}
}

// TestSilentServer: a server that stops answering costs the calls under way, and
// nothing once it answers again.
func TestSilentServer(t *testing.T) {
	server := realserver.Postgres(t, realserver.PostgresOptions{})
	s := open(t, server.NewDatabase(t))
	a := start(t, s, "a", time.Hour)
	server.Pause()
	for i := range 4 {
		patience, want := 300*time.Millisecond, lease.ErrUnavailable
		if i == 0 {
			patience, want = 4*time.Second, lease.ErrUnknown // this one is sent
		}
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		began := time.Now()
		_, err := s.RenewSession(ctx, a.ID)
		if !errors.Is(err, want) {
			t.Errorf("renewal %d of a silent server: %v, want %v", i, err, want)
		}
		if took := time.Since(began); took > time.Minute { // it is silent for ever
			t.Errorf("renewal %d of a silent server returned after %v", i, took)
		}
		cancel()
	}
	server.Resume()
	if _, err := s.RenewSession(amply(t), a.ID); err != nil {
		t.Errorf("the first renewal of a server that answers again: %v", err)
	}
}

// TestRestart: a server that restarts in less than T costs no lease.
func TestRestart(t *testing.T) {
	server := realserver.Postgres(t, realserver.PostgresOptions{})
	s := open(t, server.NewDatabase(t))
	k, stop := keep(t, s, "a", lease.Timing{Interval: 250 * time.Millisecond, Timeout: time.Hour})
	defer stop() // while there is a server, which ends before what was started before it
	held, err := k.Acquire(t.Context(), lease.AcquireRequest{Leases: []lease.ID{role("r")}})
	if err != nil {
		t.Fatal(err)
	}
	wakes := make(chan lease.Change, 100)
	sub := k.Notifier().Subscribe()
	defer sub.Close()
	for range 3 {
		server.Restart(t)
		before := k.Stats().Renewals
		realserver.Eventually(t, ample, "renewals go on", func() error {
			if got := k.Stats().Renewals; got <= before {
				return fmt.Errorf("%d renewals as before", got)
			}
			return nil
		})
	}
	if !held.Active.Valid() || k.Stats().Lost != 0 {
		t.Errorf("the restarts cost the session: valid %t, %+v", held.Active.Valid(), k.Stats())
	}
	l, err := s.Get(t.Context(), role("r"))
	if err != nil || l.Session != held.Session || l.Term != held.Term || !l.Held() {
		t.Errorf("after the restarts the lease is %+v, %v", l, err)
	}
	// The watch has been made again, too.
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		for {
			select {
			case c := <-sub.C():
				wakes <- c
			case <-ctx.Done():
				return
			}
		}
	}()
	realserver.Eventually(t, ample, "the watch is back", func() error {
		if err := s.RequestRelease(t.Context(), role("r"), "", "test"); err != nil {
			return err
		}
		select {
		case c := <-wakes:
			if c.Lease != role("r") {
				return fmt.Errorf("woken with %+v", c)
			}
			return nil
		case <-time.After(100 * time.Millisecond):
			return errors.New("not woken")
		}
	})
	if err := held.Release(t.Context(), "", "done"); err != nil {
		t.Error(err)
	}
}

func TestClose(t *testing.T) {
	server := realserver.Postgres(t, realserver.PostgresOptions{})
	url := server.NewDatabase(t)
	s := open(t, url)
	a := start(t, s, "a", time.Hour)
	tx := begin(t, connect(t, url))
	if _, err := tx.Exec(t.Context(), "LOCK TABLE understudy.lease"); err != nil {
		t.Fatal(err)
	}
	stuck := later(func() error {
		_, err := s.Acquire(t.Context(), lease.Expectation{Lease: role("r"), Session: a.ID})
		return err
	})
	ready := make(chan struct{})
	watch := later(func() error { return s.Watch(t.Context(), func(lease.Change) { close(ready) }) })
	<-ready
	waiting(t, url, 1)
	for range 2 {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	if err := <-stuck; err == nil {
		t.Error("a call under way succeeded though the store was closed")
	}
	if err := <-watch; err == nil {
		t.Error("Watch returned nil though its context goes on")
	}
	if _, err := s.RenewSession(t.Context(), a.ID); !errors.Is(err, lease.ErrUnavailable) {
		t.Errorf("RenewSession of a closed store: %v, want ErrUnavailable", err)
	}
}

// keep runs a keeper until the test ends, or it is stopped.
func keep(t *testing.T, s lease.Store, name string, timing lease.Timing) (k *lease.Keeper, stop func()) {
	t.Helper()
	roster, _ := s.(lease.Roster)
	k, err := lease.NewKeeper(lease.KeeperConfig{Store: s, Roster: roster, Instance: lease.NewInstance(name, ""), Timing: timing})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	stopped := later(func() error { return k.Run(ctx) })
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-stopped; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return k, stop
}

// cable is a store that can be unplugged.
type cable struct {
	*postgres.Store
	cut atomic.Bool
}

func (c *cable) RenewSession(ctx context.Context, id string) (lease.Renewal, error) {
	if c.cut.Load() {
		return lease.Renewal{}, lease.ErrUnavailable
	}
	return c.Store.RenewSession(ctx, id)
}

func (c *cable) StartSession(ctx context.Context, n lease.Session) (lease.Renewal, error) {
	if c.cut.Load() {
		return lease.Renewal{}, lease.ErrUnavailable
	}
	return c.Store.StartSession(ctx, n)
}

func (c *cable) EndSession(ctx context.Context, id, reason string) error {
	if c.cut.Load() {
		return lease.ErrUnavailable
	}
	return c.Store.EndSession(ctx, id, reason)
}

func (c *cable) Release(ctx context.Context, h lease.ReleaseRequest) error {
	if c.cut.Load() {
		return lease.ErrUnavailable
	}
	return c.Store.Release(ctx, h)
}

// stage is two instances that compete for one role, and a judge who looks on.
type stage struct {
	cables [2]*cable
	held   [2]atomic.Pointer[lease.HeldLease]
}

// compete lets both instances hold the role whenever they can, until the test
// ends, and fails the test when both believe in it at one moment.
func compete(t *testing.T, url string, timing lease.Timing) *stage {
	st := &stage{}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for i := range st.cables {
		st.cables[i] = &cable{Store: open(t, url)}
		k, _ := keep(t, st.cables[i], fmt.Sprint("instance", i), timing)
		wg.Go(func() {
			for ctx.Err() == nil {
				held, err := k.Acquire(ctx, lease.AcquireRequest{Leases: []lease.ID{role("r")}})
				if err != nil {
					continue
				}
				st.held[i].Store(held)
				select {
				case <-held.Active.Done():
				case <-ctx.Done():
				}
				st.held[i].Store(nil)
				_ = held.Release(ctx, "", "over")
			}
		})
	}
	wg.Go(func() {
		for ctx.Err() == nil {
			a, b := st.held[0].Load(), st.held[1].Load()
			// The first is asked again: it may have lapsed before the second was asked.
			if a != nil && b != nil && a.Active.Valid() && b.Active.Valid() && a.Active.Valid() {
				t.Errorf("two holders, terms %d and %d", a.Term, b.Term)
				return
			}
			<-time.After(time.Millisecond)
		}
	})
	t.Cleanup(func() { cancel(); wg.Wait() })
	return st
}

// holder waits for one, other than the given instance, and tells how long it took.
func (st *stage) holder(t *testing.T, not int) (who int, took time.Duration) {
	t.Helper()
	began := time.Now()
	realserver.Eventually(t, ample, "there is a holder", func() error {
		for i := range st.held {
			if h := st.held[i].Load(); i != not && h != nil && h.Active.Valid() {
				who = i
				return nil
			}
		}
		return errors.New("none")
	})
	return who, time.Since(began)
}

// TestServerClockStepped steps the wall clock of a real server by an hour, ahead
// and back, with the holder well and with the holder gone. Whoever waits for that clock to
// come back waits for longer than the test does.
func TestServerClockStepped(t *testing.T) {
	server := realserver.Postgres(t, realserver.PostgresOptions{Faketime: true})
	timing := lease.Timing{Interval: 200 * time.Millisecond, Timeout: 1200 * time.Millisecond}
	st := compete(t, server.NewDatabase(t), timing)
	st.holder(t, -1)
	for _, to := range []time.Duration{time.Hour, 0, -time.Hour, 0} {
		server.Step(t, to)
		// Give the step time to do its harm, and look for the holder after it.
		<-time.After(timing.Timeout)
		_, took := st.holder(t, -1)
		t.Logf("clock at %v from the host's: a holder T + %v after the step", to, took)
	}
	for _, to := range []time.Duration{time.Hour, 0} {
		who, _ := st.holder(t, -1)
		st.cables[who].cut.Store(true)
		server.Step(t, to)
		_, took := st.holder(t, who)
		t.Logf("clock at %v from the host's and the holder gone: taken over after %v (T is %v)", to, took, timing.Timeout)
		st.cables[who].cut.Store(false)
	}
}
