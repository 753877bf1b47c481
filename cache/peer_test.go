package cache

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/understudy-ha/understudy/cache/protocol"
	"github.com/understudy-ha/understudy/lease"
)

func TestOneFetchForManyAskers(t *testing.T) {
	c := newCluster(t, 3, echo, nil).settled()
	const keys, askers = 50, 3
	var all sync.WaitGroup
	for k := range keys {
		for _, p := range c.peers {
			for range askers {
				all.Go(func() {
					key := fmt.Sprintf("key %d", k)
					item, err := ask(c.ctx(), p.Peer, key)
					if err != nil || string(item.Value) != "value of "+key {
						t.Errorf("%s: %q, %v", key, item.Value, err)
					}
				})
			}
		}
	}
	all.Wait()
	if n := c.calls.Load(); n != keys {
		t.Errorf("%d keys were fetched %d times", keys, n)
	}
	for i, p := range c.peers {
		if s := p.Stats(); s.Waiting != 0 || s.Fetching != 0 || s.Misses == 0 {
			t.Errorf("peer %d: %+v", i, s)
		}
	}
}

func TestStaleWhileRefreshing(t *testing.T) {
	refreshed := make(chan struct{})
	var c *cluster
	c = newCluster(t, 3, func(ctx context.Context, f Fetch) (Value, error) {
		if c.calls.Load() == 1 {
			return Value{Data: []byte("old")}, nil
		}
		if string(f.Stale) != "old" {
			return Value{}, fmt.Errorf("the stale copy is %q", f.Stale)
		}
		select {
		case <-refreshed:
			return Value{Data: []byte("new")}, nil
		case <-ctx.Done():
			return Value{}, ctx.Err()
		}
	}, nil).settled()
	c.get(0, "key", "old")
	c.everywhere(t, "key", "old")
	c.ahead.Add(int64(2 * time.Hour))
	for range 100 {
		for i := range c.peers {
			if item := c.get(i, "key", "old"); item.From != Stale {
				t.Fatalf("peer %d gives a copy as %s", i, item.From)
			}
		}
	}
	eventually(t, "a refresh begins", func() bool {
		c.get(0, "key", "old")
		return c.calls.Load() == 2
	})
	c.get(1, "key", "old")
	close(refreshed)
	c.everywhere(t, "key", "new")
	if item := c.get(2, "key", "new"); item.From != Hit {
		t.Errorf("a new copy is given as %s", item.From)
	}
	if n := c.calls.Load(); n != 2 {
		t.Errorf("fetched %d times", n)
	}
}

func TestGetOptions(t *testing.T) {
	var c *cluster
	c = newCluster(t, 1, func(context.Context, Fetch) (Value, error) {
		return Value{Data: fmt.Append(nil, c.calls.Load())}, nil
	}, nil).settled()
	p := c.peers[0]
	c.get(0, "key", "1")
	if item, err := p.Get(c.ctx(), "key", GetOptions{Refresh: true}); err != nil || string(item.Value) != "2" || item.From != Miss {
		t.Errorf("refreshed: %q %s, %v", item.Value, item.From, err)
	}
	c.ahead.Add(int64(2 * time.Hour))
	if item, err := p.Get(c.ctx(), "key", GetOptions{After: p.cfg.Wall()}); err != nil || string(item.Value) != "3" {
		t.Errorf("after now: %q, %v", item.Value, err)
	}
	if _, err := p.Get(c.ctx(), "", GetOptions{}); !errors.Is(err, ErrBadKey) {
		t.Errorf("no key: %v", err)
	}
	if _, err := p.Get(c.ctx(), string(make([]byte, 1025)), GetOptions{}); !errors.Is(err, ErrTooLarge) {
		t.Errorf("a long key: %v", err)
	}
	if item, ok := p.Peek("unknown"); ok {
		t.Errorf("peeked %+v", item)
	}
}

// The process of the peer that fetches ends: another fetches at once, and not before
// the first call has ended.
func TestFetchingPeerEnds(t *testing.T) {
	type begun struct {
		self int
		at   time.Time
	}
	calls := make(chan begun, 10)
	ended := make(chan time.Time, 10)
	var c *cluster
	c = newCluster(t, 3, nil, func(i int, cfg *Config) {
		cfg.Origin = func(ctx context.Context, f Fetch) (Value, error) {
			calls <- begun{i, time.Now()}
			if c.calls.Add(1) > 1 {
				return Value{Data: []byte("value")}, nil
			}
			<-ctx.Done()
			<-time.After(300 * time.Millisecond) // it takes its time to stop
			ended <- time.Now()
			return Value{}, ctx.Err()
		}
	}).settled()
	var all sync.WaitGroup
	for i, p := range c.peers {
		all.Go(func() {
			item, err := ask(c.ctx(), p.Peer, "key")
			if err == nil && string(item.Value) != "value" || err != nil && !errors.Is(err, ErrClosed) {
				t.Errorf("peer %d: %q, %v", i, item.Value, err)
			}
		})
	}
	first := <-calls
	c.peers[first.self].stop()
	over := <-ended
	second := <-calls
	if second.at.Before(over) {
		t.Error("the second call began before the first had ended")
	}
	t.Logf("the second call began %v after the end of the first", second.at.Sub(over))
	all.Wait()
	if n := c.calls.Load(); n != 2 {
		t.Errorf("fetched %d times", n)
	}
}

// A value that the origin returns although the peer has begun to stop is kept: it answers the requests that wait, here and
// elsewhere, and no other peer repeats the call.
func TestStoppingPeerKeepsItsLastValue(t *testing.T) {
	called := make(chan int, 3)
	var c *cluster
	c = newCluster(t, 3, nil, func(i int, cfg *Config) {
		cfg.Origin = func(ctx context.Context, _ Fetch) (Value, error) {
			called <- i
			if c.calls.Add(1) == 1 {
				<-ctx.Done()
			}
			return Value{Data: []byte("value")}, nil
		}
	}).settled()
	var all sync.WaitGroup
	for i, p := range c.peers {
		all.Go(func() {
			if item, err := ask(c.ctx(), p.Peer, "key"); err != nil || string(item.Value) != "value" {
				t.Errorf("peer %d: %q, %v", i, item.Value, err)
			}
		})
	}
	fetching := c.peers[<-called]
	eventually(t, "a request waits at each peer", func() bool {
		for _, p := range c.peers {
			if p.Stats().Waiting == 0 {
				return false
			}
		}
		return true
	})
	fetching.stop()
	all.Wait()
	if n := c.calls.Load(); n != 1 {
		t.Errorf("fetched %d times", n)
	}
}

// While a peer that stops waits for a call that does not return, others fetch every other key: one whose call had not begun,
// and one that a request at that peer asks for.
func TestStoppingPeerLeavesFetchesToOthers(t *testing.T) {
	called, held := make(chan struct{}), make(chan struct{})
	release := sync.OnceFunc(func() { close(held) })
	defer release()
	c := newCluster(t, 3, nil, func(i int, cfg *Config) {
		if cfg.Origin = echo; i > 0 {
			return
		}
		cfg.Fetches = 1
		cfg.Origin = func(ctx context.Context, _ Fetch) (Value, error) {
			close(called)
			<-held // its context has ended before
			return Value{}, ctx.Err()
		}
	}).settled()
	stopping := c.peers[0]
	var asking sync.WaitGroup
	request := func(key string) {
		asking.Go(func() {
			// It may get what another peer has fetched.
			if item, err := ask(c.ctx(), stopping.Peer, key); err == nil && item.Value == nil || err != nil && !errors.Is(err, ErrClosed) {
				t.Errorf("%s at the peer that stops: %q, %v", key, item.Value, err)
			}
		})
	}
	request("runs")
	<-called
	request("queued")
	eventually(t, "its call waits for a place", func() bool {
		v, err := viewOf(c, stopping.Peer, "queued")
		return err == nil && v.Doing == "fetching"
	})
	asking.Go(stopping.stop)
	c.get(1, "queued", "value of queued")
	if _, err := stopping.Get(c.ctx(), "other", GetOptions{}); !errors.Is(err, ErrClosed) {
		t.Errorf("of a peer that stops: %v", err)
	}
	c.get(2, "other", "value of other")
	release()
	asking.Wait()
}

func TestFailureIsTold(t *testing.T) {
	fails := func(_ context.Context, f Fetch) (Value, error) {
		if f.Key == "missing" {
			return Value{}, fmt.Errorf("no row: %w", ErrNotFound)
		}
		return Value{}, &RetryAfter{10 * time.Minute, errors.New("the origin is down")}
	}
	c := newCluster(t, 3, fails, nil).settled()
	var all sync.WaitGroup
	for _, p := range c.peers {
		all.Go(func() {
			_, err := ask(c.ctx(), p.Peer, "key")
			failure, ok := errors.AsType[*Failure](err)
			if !ok || failure.Text != "the origin is down" || failure.RetryAfter < time.Minute || !errors.Is(err, ErrFailed) || errors.Is(err, ErrNotFound) {
				t.Errorf("got %#v", err)
			}
		})
	}
	all.Wait()
	for i, p := range c.peers { // every peer knows of the back-off
		if _, err := p.Get(c.ctx(), "key", GetOptions{}); !errors.Is(err, ErrFailed) {
			t.Errorf("peer %d: %v", i, err)
		}
		v, err := viewOf(c, p.Peer, "key")
		if err != nil || v.Failure != "the origin is down" || v.Retry == nil {
			t.Errorf("peer %d shows %+v, %v", i, v, err)
		}
	}
	if n := c.calls.Load(); n != 1 {
		t.Errorf("asked %d times within the back-off", n)
	}
	if _, err := ask(c.ctx(), c.peers[0].Peer, "missing"); !errors.Is(err, ErrNotFound) {
		t.Errorf("a missing key: %v", err)
	}
}

func TestRemove(t *testing.T) {
	var c *cluster
	c = newCluster(t, 3, func(context.Context, Fetch) (Value, error) {
		return Value{Data: fmt.Append(nil, c.calls.Load())}, nil
	}, nil).settled()
	c.get(0, "a/1", "1")
	c.everywhere(t, "a/1", "1")
	confirmed, of, err := c.peers[1].Remove(c.ctx(), protocol.PrefixKey, "a/")
	if confirmed != 3 || of != 3 || err != nil {
		t.Fatalf("%d of %d have confirmed, %v", confirmed, of, err)
	}
	for i, p := range c.peers {
		if item, ok := p.Peek("a/1"); ok {
			t.Errorf("peer %d still has %q", i, item.Value)
		}
	}
	c.get(2, "a/1", "2")
	if _, _, err := c.peers[0].Remove(c.ctx(), protocol.OneKey, ""); !errors.Is(err, ErrBadKey) {
		t.Errorf("no key: %v", err)
	}
	if _, _, err := c.peers[0].Remove(c.ctx(), protocol.Everything, "a/"); !errors.Is(err, lease.ErrInvalid) || strings.Contains(err.Error(), "empty") {
		t.Errorf("an unknown scope: %v", err)
	}
}

// Two of three have ended: what is held is given, nothing is fetched.
func TestPartitioned(t *testing.T) {
	c := newCluster(t, 3, echo, nil).settled()
	c.get(0, "key", "value of key")
	c.everywhere(t, "key", "value of key")
	c.peers[1].stop()
	c.peers[2].stop()
	if item := c.get(0, "key", "value of key"); item.From != Hit {
		t.Errorf("given as %s", item.From)
	}
	c.ahead.Add(int64(2 * time.Hour))
	if item := c.get(0, "key", "value of key"); item.From != Stale {
		t.Errorf("given as %s", item.From)
	}
	if _, err := c.peers[0].Get(c.ctx(), "cold", GetOptions{}); !errors.Is(err, ErrPartitioned) {
		t.Errorf("a cold key: %v", err)
	}
	v, err := c.peers[0].Cluster(c.ctx())
	if err != nil || !v.Partitioned || v.Connected != 1 || v.Majority != 2 || len(v.Peers) != 3 {
		t.Errorf("shown as %+v, %v", v, err)
	}
	if n := c.calls.Load(); n != 1 {
		t.Errorf("fetched %d times", n)
	}
	c.start(1)
	eventually(t, "a majority is back", func() bool {
		item, err := c.peers[0].Get(c.ctx(), "cold", GetOptions{})
		return err == nil && string(item.Value) == "value of cold"
	})
}

func TestCallerGivesUp(t *testing.T) {
	c := newCluster(t, 1, func(ctx context.Context, _ Fetch) (Value, error) {
		<-ctx.Done()
		return Value{}, ctx.Err()
	}, nil).settled()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() {
		_, err := c.peers[0].Get(ctx, "key", GetOptions{})
		ended <- err
	}()
	eventually(t, "the caller waits", func() bool { return c.peers[0].Stats().Waiting == 1 && c.calls.Load() == 1 })
	if v, err := viewOf(c, c.peers[0].Peer, "key"); err != nil || v.Doing != "fetching" || v.Waiting != 1 {
		t.Errorf("shown as %+v, %v", v, err)
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	eventually(t, "nobody waits", func() bool { return c.peers[0].Stats().Waiting == 0 })
	gone := newCaller() // before the loop has seen it
	gone.gone.Store(true)
	c.peers[0].tryRequest(event{in: protocol.Get{Key: "key", Until: c.peers[0].cfg.Clock.Now() + time.Hour}, who: gone})
	eventually(t, "it is not let in", func() bool { return c.peers[0].Stats().Waiting == 0 })
	unsaid := newCaller() // when the loop had no room for the news
	c.peers[0].tryRequest(event{in: protocol.Get{Key: "key", Until: c.peers[0].cfg.Clock.Now() + time.Hour}, who: unsaid})
	eventually(t, "it waits", func() bool {
		v, err := viewOf(c, c.peers[0].Peer, "key")
		return err == nil && v.Waiting == 1
	})
	unsaid.gone.Store(true)
	eventually(t, "it is forgotten", func() bool { return c.peers[0].Stats().Waiting == 0 })
	c.peers[0].stop()
	if _, err := c.peers[0].Get(c.ctx(), "key", GetOptions{}); !errors.Is(err, ErrClosed) {
		t.Errorf("after the end: %v", err)
	}
}

// Callers return when their contexts end, also while the loop waits for the disk and takes nothing.
func TestCallerOfABlockedLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, err := New(Config{Self: "tcp://127.0.0.1:1", Members: []protocol.Member{{URL: "tcp://127.0.0.1:1", API: "tcp://127.0.0.1:2"}}, Origin: echo})
		if err != nil {
			t.Fatal(err)
		}
		close(p.ready)
		for len(p.loop.inbox) < cap(p.loop.inbox) {
			p.loop.report(event{})
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		free := time.AfterFunc(time.Minute, func() { close(p.loop.ended) }) // so that a caller that blocks returns at all
		defer free.Stop()
		began := time.Now()
		if _, err := p.Get(ctx, "key", GetOptions{}); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) > time.Second {
			t.Errorf("a Get: %v after %v", err, time.Since(began))
		}
		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began = time.Now()
		if _, _, err := p.Remove(ctx, protocol.OneKey, "key"); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) > time.Second {
			t.Errorf("a Remove: %v after %v", err, time.Since(began))
		}
		if n := p.counters.waiting.Load(); n != 1 { // the Get is still in the queue of the loop
			t.Errorf("%d wait", n)
		}
	})
}

// TestRemovalIsCountedInTime: who removes hears how many members have confirmed, though one is away for as long as they wait.
func TestRemovalIsCountedInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, err := New(Config{Self: "tcp://127.0.0.1:1", Members: []protocol.Member{{URL: "tcp://127.0.0.1:1", API: "tcp://127.0.0.1:2"}}, Origin: echo, Clock: bubbleClock{time.Now()}})
		if err != nil {
			t.Fatal(err)
		}
		close(p.ready)
		defer close(p.loop.inbox)
		go func() { // a loop that nobody confirms anything to
			for e := range p.loop.inbox {
				time.Sleep(e.in.(protocol.RemoveKeys).Until - p.cfg.Clock.Now())
				e.who.answer <- answer{confirmed: 2, of: 3}
			}
		}()
		for _, wait := range []time.Duration{time.Millisecond, 200 * time.Millisecond, 5 * time.Second, longestRemoval, time.Minute} {
			for range 20 { // where two waits end together, chance decides
				ctx, cancel := context.WithTimeout(t.Context(), wait)
				if n, of, err := p.Remove(ctx, protocol.OneKey, "key"); n != 2 || of != 3 || err != nil {
					t.Errorf("within %v: %d of %d, %v", wait, n, of, err)
				}
				cancel()
			}
		}
	})
}

func TestRunsOnce(t *testing.T) {
	c := newCluster(t, 1, echo, nil)
	if err := c.peers[0].Run(c.ctx()); err == nil {
		t.Error("it ran a second time")
	}
	other, err := New(c.peers[0].cfg)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- other.Watch(c.ctx(), func(Event) {}) }()
	eventually(t, "it watches", other.watchers.hasWatchers)
	if err := other.Run(c.ctx()); err == nil {
		t.Error("it runs on an address that is in use")
	}
	if err := <-ended; !errors.Is(err, ErrClosed) {
		t.Errorf("who watched a peer that did not start: %v", err)
	}
	if _, err := other.Get(c.ctx(), "key", GetOptions{}); !errors.Is(err, ErrClosed) {
		t.Errorf("a peer that did not start: %v", err)
	}
}

func TestKeysInOrder(t *testing.T) {
	hold := make(chan struct{})
	c := newCluster(t, 1, func(ctx context.Context, f Fetch) (Value, error) {
		if f.Key == "b3" {
			select {
			case <-hold:
			case <-ctx.Done():
			}
		}
		return echo(ctx, f)
	}, nil).settled()
	for _, key := range []string{"a", "b5", "b1", "b2", "c", "b4"} {
		c.get(0, key, "value of "+key)
	}
	var waiting sync.WaitGroup
	waiting.Go(func() { c.get(0, "b3", "value of b3") })
	eventually(t, "b3 is fetched", func() bool { return c.calls.Load() == 7 })
	names := func(q KeyQuery) (out []string) {
		page, err := c.peers[0].Keys(c.ctx(), q)
		if err != nil {
			t.Error(err)
		}
		for _, v := range page {
			out = append(out, v.Key)
		}
		return out
	}
	for _, w := range []struct {
		q    KeyQuery
		want string
	}{
		{KeyQuery{}, "[a b1 b2 b3 b4 b5 c]"},
		{KeyQuery{Prefix: "b", Limit: 3}, "[b1 b2 b3]"},
		{KeyQuery{Prefix: "b", After: "b3", Limit: 3}, "[b4 b5]"},
		{KeyQuery{Prefix: "d"}, "[]"},
	} {
		if got := fmt.Sprint(names(w.q)); got != w.want {
			t.Errorf("%+v lists %s, want %s", w.q, got, w.want)
		}
	}
	if _, err := c.peers[0].Keys(c.ctx(), KeyQuery{Limit: 1001}); err == nil {
		t.Error("a page without a bound")
	}
	close(hold)
	waiting.Wait()
}

func TestWatch(t *testing.T) {
	c := newCluster(t, 1, echo, nil).settled()
	ctx, cancel := context.WithCancel(context.Background())
	seen := make(chan Event, 1000)
	ended := make(chan error)
	go func() { ended <- c.peers[0].Watch(ctx, func(e Event) { seen <- e }) }()
	eventually(t, "it watches", c.peers[0].watchers.hasWatchers)
	c.get(0, "key", "value of key")
	for {
		if e := <-seen; e.Key == "key" && e.From == "fetching" && e.To == "idle" {
			break
		}
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	go func() { ended <- c.peers[0].Watch(context.Background(), func(Event) {}) }()
	eventually(t, "it watches again", c.peers[0].watchers.hasWatchers)
	c.peers[0].stop()
	if err := <-ended; !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
}

func TestSlowWatcherMisses(t *testing.T) {
	var w watchers
	one := w.add()
	for range watchRoom + 10 {
		w.notify(Event{})
	}
	if n := one.missed.Load(); n != 10 {
		t.Errorf("missed %d", n)
	}
	w.close()
	w.remove(one)
	if w.hasWatchers() || w.add() != nil {
		t.Error("closed, and somebody watches")
	}
}
