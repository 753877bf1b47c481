package redis_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/history"
	"github.com/understudy-ha/understudy/internal/testkit/realserver"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/store/redis"
)

var (
	contended = lease.ID{Space: "role", Key: "r"}
	short     = lease.Timing{Interval: 200 * time.Millisecond, Timeout: time.Second}
	// steady is a timing with which nobody lapses who is not meant to.
	steady = lease.Timing{Interval: 500 * time.Millisecond, Timeout: 10 * time.Second}
)

// judge sees everything that the contenders of one process believe.
type judge struct {
	t *testing.T

	mu    sync.Mutex
	held  map[string]*lease.HeldLease
	terms []int64
	last  string
}

func (j *judge) took(name string, h *lease.HeldLease) {
	j.mu.Lock()
	defer j.mu.Unlock()
	// Who comes to tell so late that he has lost it meanwhile is no matter.
	if n := len(j.terms); n > 0 && h.Term <= j.terms[n-1] && h.Active.Valid() {
		j.t.Errorf("%s holds term %d after term %d", name, h.Term, j.terms[n-1])
	}
	j.held[name], j.last = h, name
	j.terms = append(j.terms, h.Term)
	j.lookLocked()
}

func (j *judge) gave(name string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	delete(j.held, name)
}

// look fails the test when two trust their lease at the same time.
func (j *judge) look() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lookLocked()
}

func (j *judge) lookLocked() {
	trusted := ""
	for name, h := range j.held {
		if h.Active.Valid() {
			// The first is asked again: it may have lapsed before the second was asked.
			if trusted != "" && j.held[trusted].Active.Valid() {
				j.t.Errorf("%s and %s both trust their lease: %s", trusted, name, fmt.Sprint(j.terms))
			}
			trusted = name
		}
	}
}

// holder waits until someone trusts a term of at least the given one.
func (j *judge) holder(term int64) (name string, at int64) {
	j.t.Helper()
	realserver.Eventually(j.t, ample, "a holder", func() error {
		j.mu.Lock()
		defer j.mu.Unlock()
		if h := j.held[j.last]; h != nil && h.Active.Valid() && h.Term >= term {
			name, at = j.last, h.Term
			return nil
		}
		return errors.New("nobody holds the lease")
	})
	return name, at
}

// mortal is a store of a process that can be cut off, as if it had died.
type mortal struct {
	*redis.Store
	dead atomic.Bool
}

func (m *mortal) RenewSession(ctx context.Context, id string) (lease.Renewal, error) {
	if m.dead.Load() {
		return lease.Renewal{}, lease.ErrUnavailable
	}
	return m.Store.RenewSession(ctx, id)
}

func (m *mortal) StartSession(ctx context.Context, s lease.Session) (lease.Renewal, error) {
	if m.dead.Load() {
		return lease.Renewal{}, lease.ErrUnavailable
	}
	return m.Store.StartSession(ctx, s)
}

func (m *mortal) Acquire(ctx context.Context, c lease.Expectation) (lease.Lease, error) {
	if m.dead.Load() {
		return lease.Lease{}, lease.ErrUnavailable
	}
	return m.Store.Acquire(ctx, c)
}

// contend lets two instances contend until the test ends, each with a store of
// its own.
func contend(t *testing.T, timing lease.Timing, openStore func() *redis.Store) (*judge, map[string]*mortal) {
	j := &judge{t: t, held: map[string]*lease.HeldLease{}}
	stores := map[string]*mortal{}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for _, name := range []string{"a", "b"} {
		s := &mortal{Store: openStore()}
		stores[name] = s
		k, err := lease.NewKeeper(lease.KeeperConfig{Store: s, Roster: s.Store, Instance: lease.NewInstance(name, ""), Timing: timing})
		if err != nil {
			t.Fatal(err)
		}
		wg.Go(func() { _ = k.Run(ctx) })
		wg.Go(func() {
			for ctx.Err() == nil {
				h, err := k.Acquire(ctx, lease.AcquireRequest{Leases: []lease.ID{contended}})
				if err != nil {
					continue
				}
				j.took(name, h)
				select {
				case <-h.Active.Done():
				case <-ctx.Done():
				}
				j.gave(name)
				_ = h.Release(context.Background(), "", "lost")
			}
		})
	}
	wg.Go(func() {
		tick := time.NewTicker(500 * time.Microsecond)
		defer tick.Stop()
		for ctx.Err() == nil {
			j.look()
			<-tick.C
		}
	})
	t.Cleanup(func() { cancel(); wg.Wait() })
	return j, stores
}

func TestRestart(t *testing.T) {
	for name, c := range map[string]struct {
		options realserver.RedisOptions
		stop    func(*realserver.RedisServer)
		keeps   bool
	}{
		"with the append-only file": {realserver.RedisOptions{AppendOnly: true}, (*realserver.RedisServer).Kill, true},
		"without persistence":       {realserver.RedisOptions{}, (*realserver.RedisServer).Kill, false},
		"ordered, without":          {realserver.RedisOptions{}, (*realserver.RedisServer).Stop, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := realserver.Redis(t, c.options)
			j, _ := contend(t, short, func() *redis.Store { return openFresh(t, server.URL(), "") })
			_, term := j.holder(1)
			for range 3 {
				before := term
				c.stop(server)
				server.Start(t)
				openFresh(t, server.URL(), "") // another process comes first
				next := before
				if !c.keeps {
					next++
				}
				_, term = j.holder(next)
				s := openFresh(t, server.URL(), "") // as a look at the status would be
				l, err := s.Get(t.Context(), contended)
				if err != nil || l.Term < term {
					t.Errorf("after a restart the store has term %d (%v), want at least %d", l.Term, err, term)
				}
			}
		})
	}
}

// A server that lost everything tells its age in whole seconds of the clock: one
// that was started just before a second began looks a second old at once.
func TestRestartJustBeforeASecond(t *testing.T) {
	server := realserver.Redis(t, realserver.RedisOptions{})
	server.Kill()
	<-time.After(time.Until(time.Now().Truncate(time.Second).Add(1900 * time.Millisecond)))
	started := time.Now() // at the earliest
	server.Start(t)
	<-time.After(time.Until(started.Truncate(time.Second).Add(1050 * time.Millisecond)))
	s := openFresh(t, server.URL(), "")
	a := start(t, s, "a", time.Second)
	_, err := acquire(t.Context(), s, contended, a.ID)
	if err == nil && time.Since(started) < time.Second {
		t.Errorf("a lease is given away %v after a restart that lost everything, within a timeout of 1s", time.Since(started))
	}
}

// The server's clock is stepped by an hour, with the holder alive and with the
// holder dead: never two holders, and whoever waits does so for T, not for that hour.
func TestClockStep(t *testing.T) {
	server := realserver.Redis(t, realserver.RedisOptions{})
	for _, step := range []time.Duration{time.Hour, -time.Hour} {
		for _, dead := range []bool{false, true} {
			t.Run(fmt.Sprintf("%v/dead=%t", step, dead), func(t *testing.T) {
				t.Parallel()
				var skew atomic.Int64
				prefix := prefixOf(t)
				j, stores := contend(t, steady, func() *redis.Store {
					s := open(t, server.URL(), prefix)
					s.SetSkew(func() time.Duration { return time.Duration(skew.Load()) })
					return s
				})
				first, term := j.holder(1)
				// The other must have looked at the holder at least once.
				settled := time.Now().Add(2 * steady.Interval)
				realserver.Eventually(t, ample, "settling", func() error {
					if time.Now().Before(settled) {
						return errors.New("not yet")
					}
					return nil
				})
				began := time.Now()
				stores[first].dead.Store(dead)
				skew.Add(int64(step))
				if !dead && step < 0 {
					// Nothing is lost: the same holder, more than T later.
					for end := began.Add(3 * steady.Timeout / 2); time.Now().Before(end); {
						if _, now := j.holder(1); now != term {
							t.Fatalf("the lease changed hands when the clock was stepped back: term %d, was %d", now, term)
						}
						<-time.After(20 * time.Millisecond)
					}
					return
				}
				j.holder(term + 1)
				t.Logf("takeover %v after the step", time.Since(began))
			})
		}
	}
}

// The server starts with its clock ahead, as at boot, and the clock is set back once a client has come: still nothing is
// given away for one T.
func TestRestartWithClockAhead(t *testing.T) {
	const timeout = time.Minute
	server := realserver.Redis(t, realserver.RedisOptions{AppendOnly: true})
	s := open(t, server.URL(), "")
	var skew time.Duration
	s.SetSkew(func() time.Duration { return skew })
	a := start(t, s, "a", timeout)
	server.Kill()
	server.Start(t)
	skew = 10 * time.Second
	_, _ = s.RenewSession(t.Context(), a.ID) // perhaps on the connection that died
	if _, err := s.RenewSession(t.Context(), a.ID); err != nil {
		t.Fatal(err)
	}
	skew = 0
	if l, err := acquire(t.Context(), s, contended, a.ID); !errors.Is(err, lease.ErrUnavailable) {
		t.Errorf("right after the restart a free lease is given away: %+v, %v", l, err)
	}
	skew = timeout
	if _, err := acquire(t.Context(), s, contended, start(t, s, "b", timeout).ID); err != nil {
		t.Errorf("one T after the restart: %v", err)
	}
}

// A failover to a replica that missed the acquisition.
func TestSentinelFailover(t *testing.T) {
	master := realserver.Redis(t, realserver.RedisOptions{Password: "pw"})
	replica := realserver.Redis(t, realserver.RedisOptions{Password: "pw", ReplicaOf: master})
	// Nobody is called down before he is.
	sentinel := realserver.RedisSentinel(t, "mymaster", master, time.Hour)
	s := open(t, "redis+sentinel://:pw@"+sentinel.Addr+"/mymaster/0", "")
	watching := make(chan lease.Change, 1000)
	go func() {
		for t.Context().Err() == nil {
			_ = s.Watch(t.Context(), func(c lease.Change) { watching <- c })
		}
	}()
	a, b := start(t, s, "a", time.Hour), start(t, s, "b", time.Hour)
	early, err := acquire(t.Context(), s, contended, a.ID)
	if err != nil {
		t.Fatal(err)
	}
	realserver.Eventually(t, ample, "the replica is in step and known to Sentinel", func() error {
		seen, err := replica.Do("EXISTS", "{understudy}:l:4:role:r")
		if err != nil || seen != "1" {
			return fmt.Errorf("EXISTS = %q, %v", seen, err)
		}
		_, err = sentinel.Do("SENTINEL", "CKQUORUM", "mymaster")
		if err == nil {
			var replicas string
			replicas, err = sentinel.Do("SENTINEL", "REPLICAS", "mymaster")
			if err == nil && replicas != "1" {
				err = fmt.Errorf("%s replicas", replicas)
			}
		}
		return err
	})
	// From here on the replica hears nothing; Sentinel leaves it so for a while.
	if _, err := sentinel.Do("SENTINEL", "SET", "mymaster", "failover-timeout", "60000"); err != nil {
		t.Fatal(err)
	}
	if _, err := replica.Do("REPLICAOF", "127.0.0.1", "1"); err != nil {
		t.Fatal(err)
	}
	if err := s.Release(t.Context(), lease.ReleaseRequest{Lease: contended, Session: a.ID, Term: early.Term}); err != nil {
		t.Fatal(err)
	}
	lost, err := acquire(t.Context(), s, contended, b.ID)
	if err != nil {
		t.Fatal(err)
	}
	before, err := s.RenewSession(t.Context(), b.ID)
	if err != nil {
		t.Fatal(err)
	}
	feed := history.NewFeed(s, 0)
	if es, err := feed.Next(t.Context()); err != nil || len(es) != 3 {
		t.Fatalf("before the failover: %v, %v; want two acquisitions and a release", es, err)
	}
	master.Kill()
	if _, err := sentinel.Do("SENTINEL", "SET", "mymaster", "down-after-milliseconds", "2000"); err != nil {
		t.Fatal(err)
	}
	var after lease.Renewal
	realserver.Eventually(t, ample, "the failover", func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		after, err = s.RenewSession(ctx, b.ID)
		return err
	})
	if after.Changes == before.Changes {
		t.Errorf("Changes stayed %d though an acquisition was lost", after.Changes)
	}
	l, err := s.Get(t.Context(), contended)
	if err != nil || l.Session != a.ID || l.Term != early.Term {
		t.Fatalf("the replica has %+v, %v; want it as it was before it lagged", l, err)
	}
	if err := s.Release(t.Context(), lease.ReleaseRequest{Lease: contended, Session: a.ID, Term: l.Term}); err != nil {
		t.Fatal(err)
	}
	if l, err := acquire(t.Context(), s, contended, b.ID); !errors.Is(err, lease.ErrUnavailable) {
		t.Errorf("right after the failover a free lease is given away: %+v, %v", l, err)
	}
	if err := s.Settle(t.Context()); err != nil {
		t.Fatal(err)
	}
	again, err := acquire(t.Context(), s, contended, b.ID)
	if err != nil || again.Term <= lost.Term {
		t.Errorf("after the failover the term is %d (%v), want above %d", again.Term, err, lost.Term)
	}
	if es, err := feed.Next(t.Context()); err != nil || len(es) != 2 || es[1].Term != again.Term {
		t.Errorf("after the failover a feed sees %v, %v; want a release and an acquisition: the ids of lost events were given again", es, err)
	}
	realserver.Eventually(t, ample, "the watch goes on at the new master", func() error {
		for {
			select {
			case c := <-watching:
				if c.Term == again.Term {
					return nil
				}
			default:
				return errors.New("not woken")
			}
		}
	})
}
