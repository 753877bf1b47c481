package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/internal/realserver"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/store/postgres"
)

// TestPoolExhausted: calls that are stuck end with their deadlines, and sessions
// are renewed meanwhile.
func TestPoolExhausted(t *testing.T) {
	server := realserver.Postgres(t, realserver.PostgresOptions{})
	url := server.NewDatabase(t)
	s := open(t, url)
	a := start(t, s, "a", time.Minute)
	tx := begin(t, connect(t, url))
	if _, err := tx.Exec(t.Context(), "LOCK TABLE understudy.lease"); err != nil {
		t.Fatal(err)
	}
	const patience = time.Second
	var unknown atomic.Bool
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			began := time.Now()
			_, err := s.Acquire(ctx, lease.Claim{Lease: role("r"), Session: a.ID})
			if !errors.Is(err, lease.ErrUnavailable) && !errors.Is(err, lease.ErrUnknown) {
				t.Errorf("a stuck claim: %v, want ErrUnavailable or ErrUnknown", err)
			}
			if errors.Is(err, lease.ErrUnknown) {
				unknown.Store(true)
			}
			if took := time.Since(began); took > patience+time.Second {
				t.Errorf("a stuck claim returned after %v, %v after its deadline", took, took-patience)
			}
		})
	}
	waiting(t, url, 1)
	for range 5 {
		ctx, cancel := context.WithTimeout(t.Context(), patience/2)
		if _, err := s.RenewSession(ctx, a.ID); err != nil {
			t.Errorf("a renewal beside stuck claims: %v", err)
		}
		cancel()
	}
	wg.Wait()
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
	a := start(t, s, "a", time.Minute)
	server.Pause()
	for i := range 4 {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		began := time.Now()
		_, err := s.RenewSession(ctx, a.ID)
		want := lease.ErrUnavailable
		if i == 0 {
			want = lease.ErrUnknown // this one was sent
		}
		if !errors.Is(err, want) {
			t.Errorf("renewal %d of a silent server: %v, want %v", i, err, want)
		}
		if took := time.Since(began); took > 1300*time.Millisecond {
			t.Errorf("renewal %d of a silent server returned after %v", i, took)
		}
		cancel()
	}
	server.Resume()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	if _, err := s.RenewSession(ctx, a.ID); err != nil {
		t.Errorf("the first renewal of a server that answers again: %v", err)
	}
}

// TestRestart: a server that restarts in less than T costs no lease.
func TestRestart(t *testing.T) {
	server := realserver.Postgres(t, realserver.PostgresOptions{})
	s := open(t, server.NewDatabase(t))
	k := keep(t, s, "a", lease.Timing{Interval: 250 * time.Millisecond, Timeout: 10 * time.Second})
	held, err := k.Acquire(t.Context(), lease.Want{Leases: []lease.ID{role("r")}})
	if err != nil {
		t.Fatal(err)
	}
	wakes := make(chan lease.Change, 100)
	sub := k.Hub().Subscribe()
	defer sub.Close()
	for range 3 {
		server.Restart(t)
		before := k.Stats().Renewals
		realserver.Eventually(t, 8*time.Second, "renewals go on", func() error {
			if got := k.Stats().Renewals; got <= before {
				return fmt.Errorf("%d renewals as before", got)
			}
			return nil
		})
	}
	if !held.Live.Valid() || k.Stats().Lost != 0 {
		t.Errorf("the restarts cost the session: valid %t, %+v", held.Live.Valid(), k.Stats())
	}
	l, err := s.Get(t.Context(), role("r"))
	if err != nil || l.Session != held.Session || l.Term != held.Term || !l.Held() {
		t.Errorf("after the restarts the lease is %+v, %v", l, err)
	}
	// The watch has been made anew, too.
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
	realserver.Eventually(t, 10*time.Second, "the watch is back", func() error {
		if err := s.Ask(t.Context(), role("r"), "", "test"); err != nil {
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
	a := start(t, s, "a", time.Minute)
	tx := begin(t, connect(t, url))
	if _, err := tx.Exec(t.Context(), "LOCK TABLE understudy.lease"); err != nil {
		t.Fatal(err)
	}
	stuck := later(func() error {
		_, err := s.Acquire(t.Context(), lease.Claim{Lease: role("r"), Session: a.ID})
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

// keep runs a keeper until the test ends.
func keep(t *testing.T, s lease.Store, name string, timing lease.Timing) *lease.Keeper {
	t.Helper()
	roster, _ := s.(lease.Roster)
	k, err := lease.NewKeeper(lease.KeeperConfig{Store: s, Roster: roster, Instance: lease.NewInstance(name, ""), Timing: timing})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	stopped := later(func() error { return k.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		if err := <-stopped; err != nil {
			t.Error(err)
		}
	})
	return k
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

func (c *cable) Release(ctx context.Context, h lease.Handback) error {
	if c.cut.Load() {
		return lease.ErrUnavailable
	}
	return c.Store.Release(ctx, h)
}

// stage is two instances that compete for one role, and a judge who looks on.
type stage struct {
	cables [2]*cable
	held   [2]atomic.Pointer[lease.Held]
}

// compete lets both instances hold the role whenever they can, until the test
// ends, and fails the test when both believe in it at one moment.
func compete(t *testing.T, url string, timing lease.Timing) *stage {
	st := &stage{}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for i := range st.cables {
		st.cables[i] = &cable{Store: open(t, url)}
		k := keep(t, st.cables[i], fmt.Sprint("instance", i), timing)
		wg.Go(func() {
			for ctx.Err() == nil {
				held, err := k.Acquire(ctx, lease.Want{Leases: []lease.ID{role("r")}})
				if err != nil {
					continue
				}
				st.held[i].Store(held)
				select {
				case <-held.Live.Done():
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
			if a != nil && b != nil && a.Live.Valid() && b.Live.Valid() {
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
func (st *stage) holder(t *testing.T, within time.Duration, not int) (who int, took time.Duration) {
	t.Helper()
	began := time.Now()
	realserver.Eventually(t, within, "there is a holder", func() error {
		for i := range st.held {
			if h := st.held[i].Load(); i != not && h != nil && h.Live.Valid() {
				who = i
				return nil
			}
		}
		return errors.New("none")
	})
	return who, time.Since(began)
}

// TestServerClockStepped steps the wall clock of a real server by an hour, ahead
// and back, with the holder well and with the holder gone.
func TestServerClockStepped(t *testing.T) {
	server := realserver.Postgres(t, realserver.PostgresOptions{Faketime: true})
	timing := lease.Timing{Interval: 200 * time.Millisecond, Timeout: 1200 * time.Millisecond}
	const slack = 1500 * time.Millisecond // of a busy machine
	st := compete(t, server.NewDatabase(t), timing)
	st.holder(t, 10*time.Second, -1)
	for _, to := range []time.Duration{time.Hour, 0, -time.Hour, 0} {
		server.Step(t, to)
		// Give the step time to do its harm, and look for the holder after it.
		<-time.After(timing.Timeout)
		_, took := st.holder(t, 2*timing.Timeout+slack, -1)
		t.Logf("clock at %v from the host's: a holder T + %v after the step", to, took)
	}
	for _, to := range []time.Duration{time.Hour, 0} {
		who, _ := st.holder(t, 10*time.Second, -1)
		st.cables[who].cut.Store(true)
		server.Step(t, to)
		_, took := st.holder(t, 2*timing.Timeout+timing.Interval+slack, who)
		t.Logf("clock at %v from the host's and the holder gone: taken over after %v (T is %v)", to, took, timing.Timeout)
		st.cables[who].cut.Store(false)
	}
}
