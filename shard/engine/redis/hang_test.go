package redis_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/internal/testkit/realserver"
	"github.com/understudy-ha/understudy/shard"
	"github.com/understudy-ha/understudy/shard/engine/redis"
)

// crowd is 50 clients, each with 16 writes in the queue of a stopped server.
const (
	crowdClients = 50
	crowdWrites  = 16
)

// crowd connects to a server.
func crowd(t *testing.T, address string) (all []net.Conn) {
	t.Helper()
	for range crowdClients {
		c, err := net.Dial("tcp", address)
		must(t, err)
		t.Cleanup(func() { _ = c.Close() })
		all = append(all, c)
	}
	return all
}

// queue sends the crowd's writes to a server that is stopped; the function that it returns counts
// how many of them were accepted once it continues.
func queue(t *testing.T, all []net.Conn) (accepted func() int) {
	t.Helper()
	for i, c := range all {
		for k := range crowdWrites {
			_, err := fmt.Fprintf(c, "SET late:%d:%d v\r\n", i, k)
			must(t, err)
		}
	}
	return func() int {
		var yes int
		var mu sync.Mutex
		var wg sync.WaitGroup
		for _, c := range all {
			wg.Go(func() {
				_ = c.SetReadDeadline(time.Now().Add(patience))
				r := bufio.NewReader(c)
				for range crowdWrites {
					line, err := r.ReadString('\n')
					if err != nil {
						t.Errorf("a queued write: %v", err)
						return
					}
					if strings.HasPrefix(line, "+OK") {
						mu.Lock()
						yes++
						mu.Unlock()
					}
				}
			})
		}
		wg.Wait()
		return yes
	}
}

// hangAndGoOn stops a primary, has the crowd send its writes, takes its replica away and lets the
// primary continue, with a fence asked for behind the writes. It returns how many were accepted.
func hangAndGoOn(t *testing.T, armed, early bool) int {
	t.Helper()
	a := realserver.Redis(t, realserver.RedisOptions{})
	b := realserver.Redis(t, realserver.RedisOptions{ReplicaOf: a})
	na, nb := node(t, a), node(t, b)
	until(t, nb, "the replica follows", linked)
	until(t, na, "the replica is online", func(s shard.State) bool { return len(s.Followers) == 1 && s.Followers[0].Online })
	if armed {
		must(t, na.SetFence(t.Context(), shard.Armed, 1))
		realserver.Eventually(t, patience, "the armed fence is open", func() error { return na.TryWrite(t.Context()) })
	}
	var clients []net.Conn
	if early {
		clients = crowd(t, a.Addr)
		probe(t, na) // the server has seen them
	}
	a.Pause()
	if !early {
		clients = crowd(t, a.Addr)
	}
	accepted := queue(t, clients)
	closing := make(chan error, 1)
	go func() { closing <- na.SetFence(t.Context(), shard.Closed, 0) }()
	must(t, nb.Follow(t.Context(), ""))
	a.Resume()
	got := accepted()
	must(t, <-closing)
	wantError(t, "afterwards", na.TryWrite(t.Context()), shard.ErrNodeRefused)
	return got
}

// A server hangs, its replica is taken away, and it continues with 800 writes on connections that were made
// meanwhile: the armed fence lets none through. A fence that is asked for behind them comes too late.
func TestArmedFenceAgainstNewConnections(t *testing.T) {
	for _, armed := range []bool{true, false} {
		t.Run(fmt.Sprint("armed=", armed), func(t *testing.T) {
			t.Parallel()
			got := hangAndGoOn(t, armed, false)
			if armed && got != 0 {
				t.Errorf("%d of %d queued writes got through an armed fence", got, crowdClients*crowdWrites)
			}
			if !armed && got == 0 {
				t.Error("none got through without a fence: this test shows nothing")
			}
		})
	}
}

// On connections that it had before, the server serves what waits before it looks at its replicas: see the
// package. Nothing is promised, so nothing is checked but that the fence is closed afterwards.
func TestArmedFenceAgainstOldConnections(t *testing.T) {
	t.Logf("%d of %d writes that waited on open connections were accepted", hangAndGoOn(t, true, true), crowdClients*crowdWrites)
}

// Every method ends with its context at a server that hangs, and works again when it continues.
func TestHungServer(t *testing.T) {
	a := realserver.Redis(t, realserver.RedisOptions{})
	e := enginesOf(t, redis.Config{})
	n := at(t, e, a.Addr)
	probe(t, n)
	if v := e.ProbePeer(t.Context(), a.Addr); v != shard.Reachable {
		t.Errorf("a server that is well: %s", v)
	}
	a.Pause()
	methods := map[string]func(context.Context) error{
		"Probe":    func(ctx context.Context) error { _, err := n.Probe(ctx); return err },
		"TryWrite": n.TryWrite,
		"SetFence": func(ctx context.Context) error { return n.SetFence(ctx, shard.Open, 0) },
		"Pause":    func(ctx context.Context) error { return n.Pause(ctx, 0) },
		"Promote":  n.Promote,
		"Follow":   func(ctx context.Context) error { return n.Follow(ctx, "") },
	}
	var wg sync.WaitGroup
	for name, call := range methods {
		for range 3 {
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
				defer cancel()
				wantError(t, name, call(ctx), context.DeadlineExceeded)
			})
		}
	}
	wg.Go(func() {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if v := e.ProbePeer(ctx, a.Addr); v != shard.TimedOut {
			t.Errorf("a server that hangs: %s", v)
		}
	})
	wg.Wait()
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	wantError(t, "cancelled", n.TryWrite(cancelled), context.Canceled)
	a.Resume()
	// What was sent to it may have been carried out since.
	must(t, n.Promote(t.Context()))
	must(t, n.TryWrite(t.Context()))
	if v := e.ProbePeer(t.Context(), a.Addr); v != shard.Reachable {
		t.Errorf("a server that goes on: %s", v)
	}
}

// The engine's own time-out ends an exchange whose caller would wait.
func TestTimeout(t *testing.T) {
	a := realserver.Redis(t, realserver.RedisOptions{})
	n := at(t, enginesOf(t, redis.Config{Timeout: 100 * time.Millisecond}), a.Addr)
	a.Pause()
	wantError(t, "a server that hangs", n.TryWrite(t.Context()), context.DeadlineExceeded)
}

// A server that dies in the middle of an exchange, and while its connections are idle.
func TestKilledServer(t *testing.T) {
	a := realserver.Redis(t, realserver.RedisOptions{})
	e := enginesOf(t, redis.Config{})
	n := at(t, e, a.Addr)
	probe(t, n)
	must(t, n.TryWrite(t.Context()))
	e.ProbePeer(t.Context(), a.Addr)
	a.Pause()
	waiting := make(chan error, 1)
	go func() { waiting <- n.TryWrite(t.Context()) }()
	probing := make(chan shard.Reachability, 1)
	go func() { probing <- e.ProbePeer(t.Context(), a.Addr) }()
	a.Kill()
	wantError(t, "in the middle", <-waiting, shard.ErrNodeGone)
	if v := <-probing; v != shard.Refused {
		t.Errorf("probing in the middle: %s", v)
	}
	_, err := n.Probe(t.Context())
	wantError(t, "an idle connection", err, shard.ErrNodeGone)
	if v := e.ProbePeer(t.Context(), a.Addr); v != shard.Refused {
		t.Errorf("a server that is gone: %s", v)
	}
	a.Start(t)
	probe(t, n)
	must(t, n.TryWrite(t.Context()))
	if v := e.ProbePeer(t.Context(), a.Addr); v != shard.Reachable {
		t.Errorf("a server that is back: %s", v)
	}
	// Restarted behind the connections' back: nobody sees an error.
	a.Restart(t)
	probe(t, n)
	must(t, n.TryWrite(t.Context()))
}

// A full copy that breaks off: a node that had started to load it has no copy any more, and one that
// was still receiving it into a file has its old one.
func TestBrokenCopy(t *testing.T) {
	for _, load := range []string{"on-empty-db", "disabled"} {
		t.Run(load, func(t *testing.T) {
			t.Parallel()
			old := realserver.Redis(t, realserver.RedisOptions{})
			big := realserver.Redis(t, realserver.RedisOptions{Args: []string{"--rdb-key-save-delay", "2000"}})
			b := realserver.Redis(t, realserver.RedisOptions{ReplicaOf: old, Args: []string{"--repl-diskless-load", load, "--loading-process-events-interval-bytes", "1024"}})
			do(t, big, "EVAL", "for i = 1, 100000 do redis.call('SET', 'key:' .. i, string.rep('x', 100)) end", "0")
			nb := node(t, b)
			until(t, nb, "it follows the first", linked)
			do(t, old, "SET", "mine", "v")
			if load == "on-empty-db" {
				do(t, old, "DEL", "mine")
			}
			stands := probe(t, node(t, old))
			until(t, nb, "it has everything", func(s shard.State) bool { return s.Txn == stands.Txn && s.Keys == stands.Keys })
			must(t, nb.Follow(t.Context(), big.Addr))
			s := until(t, nb, "a full copy is under way", func(s shard.State) bool { return s.Link.Syncing && s.Loading == (load == "on-empty-db") })
			if s.Synced {
				t.Errorf("in the middle of a copy: %+v", s)
			}
			big.Kill()
			must(t, nb.Follow(t.Context(), ""))
			s = until(t, nb, "the copy broke off", func(s shard.State) bool { return !s.Link.Syncing && !s.Loading })
			if whole := load == "disabled"; s.Synced != whole || whole && (s.Keys != 1 || s.Lineage != stands.Lineage || s.Txn != stands.Txn) {
				t.Errorf("after a copy that broke off: %+v, was %+v", s, stands)
			}
		})
	}
}

// A listener that is not Redis, in several ways: an error or the end of patience, and ProbePeer takes none of
// them for the node.
func TestHostileServers(t *testing.T) {
	for name, answer := range map[string]string{
		"http":            "HTTP/1.1 400 Bad Request\r\n\r\n",
		"endless line":    "+" + strings.Repeat("x", 1<<20),
		"endless error":   "-" + strings.Repeat("x", 1<<20),
		"huge string":     "$999999999999\r\n",
		"negative string": "$-7\r\n",
		"huge array":      "*99999999\r\n",
		"deep arrays":     strings.Repeat("*1\r\n", 1000),
		"no number":       "$x\r\n",
		"empty lines":     "\r\n\r\n",
		"half":            "$10\r\nabc",
		"wrong end":       "$3\r\nabcdef\r\n",
		"nothing":         "",
		"wrong types":     strings.Repeat(":1\r\n", 100),
		"nils":            strings.Repeat("$-1\r\n", 100),
		"empty arrays":    strings.Repeat("*0\r\n", 100),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, err := net.Listen("tcp", "127.0.0.1:0")
			must(t, err)
			done := make(chan struct{})
			go func() {
				defer close(done)
				for {
					c, err := l.Accept()
					if err != nil {
						return
					}
					_, _ = c.Read(make([]byte, 4096))
					_, _ = c.Write([]byte(answer))
					_ = c.Close()
				}
			}()
			t.Cleanup(func() { _ = l.Close(); <-done })
			e := enginesOf(t, redis.Config{})
			n := at(t, e, l.Addr().String())
			if _, err := n.Probe(t.Context()); err == nil || errors.Is(err, shard.ErrNodeGone) {
				t.Errorf("Probe: %v", err)
			}
			v := e.ProbePeer(t.Context(), l.Addr().String())
			if resp := name == "wrong types" || name == "nils" || name == "empty arrays"; resp != (v == shard.Reachable) {
				t.Errorf("ProbePeer: %s", v)
			}
		})
	}
}

// TestHungKeepsTheOrder: what was sent to a node that hangs, by a call that is given up, is carried out before what a later
// call sends on a connection of its own. So a node that has detached does not follow again.
func TestHungKeepsTheOrder(t *testing.T) {
	a := realserver.Redis(t, realserver.RedisOptions{})
	b := realserver.Redis(t, realserver.RedisOptions{})
	n := node(t, b)
	for range 20 {
		must(t, n.Follow(t.Context(), a.Addr))
		b.Pause()
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		wantError(t, "a node that hangs", n.Promote(ctx), context.DeadlineExceeded)
		cancel()
		followed := make(chan error, 1)
		go func() { followed <- n.Follow(t.Context(), a.Addr) }()
		b.Resume()
		must(t, <-followed)
		if s := probe(t, n); s.Role != shard.Replica || s.Link == nil || s.Link.Address != a.Addr {
			t.Fatalf("a promotion that was given up came after the order to follow: %+v", s)
		}
	}
}
