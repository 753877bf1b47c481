package redis_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/internal/testkit/realserver"
	"github.com/understudy-ha/understudy/shard"
	"github.com/understudy-ha/understudy/shard/engine/redis"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is for a busy machine; nothing is measured with it.
const patience = time.Minute

func enginesOf(t *testing.T, cfg redis.Config) shard.Engines {
	t.Helper()
	if cfg.Timeout == 0 {
		cfg.Timeout = 20 * time.Second
	}
	e, err := redis.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.(io.Closer).Close() })
	return e
}

func at(t *testing.T, e shard.Engines, address string) shard.Engine {
	t.Helper()
	n := e.At(address)
	t.Cleanup(func() { _ = n.Close() })
	return n
}

func node(t *testing.T, s *realserver.RedisServer) shard.Engine {
	t.Helper()
	return at(t, enginesOf(t, redis.Config{}), s.Addr)
}

func probe(t *testing.T, n shard.Engine) shard.State {
	t.Helper()
	s, err := n.Probe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// until probes until the state is as wanted.
func until(t *testing.T, n shard.Engine, what string, ok func(shard.State) bool) shard.State {
	t.Helper()
	var last shard.State
	realserver.Eventually(t, patience, what, func() error {
		s, err := n.Probe(t.Context())
		if err == nil && !ok(s) {
			err = fmt.Errorf("it is %+v, link %+v", s, s.Link)
		}
		last = s
		return err
	})
	return last
}

func linked(s shard.State) bool { return s.Link != nil && s.Link.Up && s.Synced }

func do(t *testing.T, s *realserver.RedisServer, args ...string) string {
	t.Helper()
	answer, err := s.Do(args...)
	if err != nil {
		t.Fatalf("%v: %v", args, err)
	}
	return answer
}

// quiet keeps a primary from writing PINGs into its history: a replica that was detached before one
// would stand behind one that was detached after it.
var quiet = []string{"--repl-ping-replica-period", "3600", "--repl-timeout", "7200"}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantError(t *testing.T, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: %v, want %v", what, err, want)
	}
}

func stat(t *testing.T, s *realserver.RedisServer, field string) string {
	t.Helper()
	for line := range strings.Lines(do(t, s, "INFO", "stats")) {
		if name, value, _ := strings.Cut(strings.TrimSpace(line), ":"); name == field {
			return value
		}
	}
	t.Fatalf("INFO stats has no %s", field)
	return ""
}

func TestProbe(t *testing.T) {
	// Redis 6.2 copies through a file, which the next start would load.
	a := realserver.Redis(t, realserver.RedisOptions{Args: []string{"--rdb-del-sync-files", "yes"}})
	b := realserver.Redis(t, realserver.RedisOptions{ReplicaOf: a})
	na, nb := node(t, a), node(t, b)
	do(t, a, "SET", "k", "v")
	do(t, a, "SET", "k2", "v")
	replica := until(t, nb, "the replica has both keys", func(s shard.State) bool { return linked(s) && s.Keys == 2 })
	if l := replica.Link; replica.Role != shard.Replica || l.Address != a.Addr || l.Syncing || l.Input < 0 || replica.Before.ID != "" {
		t.Errorf("replica: %+v, link %+v", replica, l)
	}
	primary := until(t, na, "the replica is online", func(s shard.State) bool {
		return len(s.Followers) == 1 && s.Followers[0].Online && s.Followers[0].Txn == s.Txn
	})
	if primary.Role != shard.Primary || primary.Link != nil || !primary.Synced || primary.Followers[0].Address != b.Addr {
		t.Errorf("primary: %+v", primary)
	}
	product := "Redis "
	if strings.Contains(do(t, a, "INFO", "server"), "valkey_version") {
		product = "Valkey "
	}
	if primary.Lineage != replica.Lineage || primary.Run == replica.Run || len(primary.Run) != 40 || primary.PID == 0 ||
		primary.Fence != shard.Open || primary.Keys != 2 || !strings.HasPrefix(primary.Version, product) {
		t.Errorf("primary %+v\nreplica %+v", primary, replica)
	}
	// A restart without anything on disk: another run, another history, nothing in it.
	a.Restart(t)
	again := probe(t, na)
	if again.Run == primary.Run || again.Lineage == primary.Lineage || again.Keys != 0 {
		t.Errorf("after the restart: %+v, was %+v", again, primary)
	}
}

func TestSetFence(t *testing.T) {
	a := realserver.Redis(t, realserver.RedisOptions{})
	n := node(t, a)
	do(t, a, "SET", "k", "v")
	for range 2 { // each can be done again
		for _, f := range []shard.Fence{shard.Closed, shard.Armed} {
			must(t, n.SetFence(t.Context(), f, 1))
			if s := probe(t, n); s.Fence != f {
				t.Errorf("fence is %q, want %q", s.Fence, f)
			}
			wantError(t, "write", n.TryWrite(t.Context()), shard.ErrNodeRefused)
			if _, err := a.Do("SET", "k", "w"); err == nil || !strings.Contains(err.Error(), "NOREPLICAS") {
				t.Errorf("%s: a client's write: %v", f, err)
			}
		}
		must(t, n.SetFence(t.Context(), shard.Open, 0))
		must(t, n.TryWrite(t.Context()))
		if s := probe(t, n); s.Fence != shard.Open || s.Keys != 1 || s.Txn != probe(t, n).Txn {
			t.Errorf("a write probe changed something: %+v", s)
		}
	}
	if err := n.SetFence(t.Context(), shard.Armed, 0); err == nil {
		t.Error("armed with 0 replicas")
	}
	if err := n.SetFence(t.Context(), "ajar", 0); err == nil {
		t.Error("an unknown fence")
	}
	// A lag of 0 would switch the condition off; it is set with it.
	do(t, a, "CONFIG", "SET", "min-replicas-max-lag", "0")
	must(t, n.SetFence(t.Context(), shard.Closed, 0))
	wantError(t, "write", n.TryWrite(t.Context()), shard.ErrNodeRefused)
	do(t, a, "CONFIG", "SET", "min-replicas-max-lag", "0")
	if s := probe(t, n); s.Fence != shard.Open {
		t.Errorf("with a lag of 0 the fence is %q", s.Fence)
	}
}

func TestStartArgs(t *testing.T) {
	a := realserver.Redis(t, realserver.RedisOptions{Args: redis.StartArgs()})
	n := node(t, a)
	if s := probe(t, n); s.Fence != shard.Closed {
		t.Errorf("fence is %q", s.Fence)
	}
	wantError(t, "write", n.TryWrite(t.Context()), shard.ErrNodeRefused)
}

// What was said to be the way to leave a primary: the copy from the next one is partial.
// Its twin shows that REPLICAOF NO ONE would cost a full one.
func TestDetach(t *testing.T) {
	for name, detach := range map[string]func(*testing.T, shard.Engine, *realserver.RedisServer){
		"dead end": func(t *testing.T, n shard.Engine, _ *realserver.RedisServer) { must(t, n.Follow(t.Context(), "")) },
		"no one":   func(t *testing.T, _ shard.Engine, s *realserver.RedisServer) { do(t, s, "REPLICAOF", "NO", "ONE") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := realserver.Redis(t, realserver.RedisOptions{Args: quiet})
			b := realserver.Redis(t, realserver.RedisOptions{ReplicaOf: a, Args: quiet})
			c := realserver.Redis(t, realserver.RedisOptions{ReplicaOf: a, Args: quiet})
			nb, nc := node(t, b), node(t, c)
			do(t, a, "SET", "k", "v")
			for _, n := range []shard.Engine{nb, nc} {
				until(t, n, "a replica has the key", func(s shard.State) bool { return linked(s) && s.Keys == 1 })
			}
			must(t, nb.Follow(t.Context(), ""))
			detach(t, nc, c)
			do(t, a, "SET", "late", "v")
			frozen, other := probe(t, nb), probe(t, nc)
			if name == "dead end" && (other.Role != shard.Replica || !other.Synced || other.Link.Up || other.Link.Address != "" || other.Lineage != frozen.Lineage) {
				t.Errorf("detached: %+v, link %+v", other, other.Link)
			}
			wantError(t, "write to a detached replica", nb.TryWrite(t.Context()), shard.ErrNodeRefused)
			if s := probe(t, nb); s.Txn != frozen.Txn || s.Keys != 1 {
				t.Errorf("detached at %d, now at %d with %d keys", frozen.Txn, s.Txn, s.Keys)
			}
			must(t, nb.SetFence(t.Context(), shard.Closed, 0))
			must(t, nb.Promote(t.Context()))
			promoted := probe(t, nb)
			if promoted.Role != shard.Primary || promoted.Fence != shard.Closed || promoted.Lineage == frozen.Lineage ||
				promoted.Before != (shard.Lineage{ID: frozen.Lineage.ID, End: frozen.Txn}) {
				t.Errorf("promoted at %d: %+v", frozen.Txn, promoted)
			}
			must(t, nb.SetFence(t.Context(), shard.Open, 0))
			do(t, b, "SET", "k2", "v")
			must(t, nc.Follow(t.Context(), b.Addr))
			s := until(t, nc, "the other replica follows", func(s shard.State) bool { return linked(s) && s.Keys == 2 })
			if s.Lineage != promoted.Lineage {
				t.Errorf("lineage %v, the primary's is %v", s.Lineage, promoted.Lineage)
			}
			full, partial := stat(t, b, "sync_full"), stat(t, b, "sync_partial_ok")
			if wantFull, wantPartial := name == "no one", name == "dead end"; wantFull == (full == "0") || wantPartial == (partial == "0") {
				t.Errorf("%s full copies, %s partial", full, partial)
			}
			// The old primary went on with a write that nobody had: it must be copied again.
			na := node(t, a)
			must(t, na.Follow(t.Context(), b.Addr))
			s = until(t, na, "the old primary follows", func(s shard.State) bool { return linked(s) && s.Keys == 2 })
			if s.Link.Address != b.Addr {
				t.Errorf("link %+v", s.Link)
			}
			if after := stat(t, b, "sync_full"); after == full {
				t.Errorf("the old primary was not copied anew: still %s full copies", full)
			}
			must(t, na.Follow(t.Context(), b.Addr)) // again is no harm
			if s := probe(t, na); !linked(s) {
				t.Errorf("followed again: %+v", s.Link)
			}
		})
	}
}

// An old primary that leaves in time, with nothing that the new one lacks, needs no full copy.
func TestSwitchover(t *testing.T) {
	a := realserver.Redis(t, realserver.RedisOptions{Args: quiet})
	b := realserver.Redis(t, realserver.RedisOptions{ReplicaOf: a, Args: quiet})
	na, nb := node(t, a), node(t, b)
	do(t, a, "SET", "k", "v")
	until(t, nb, "the replica has the key", func(s shard.State) bool { return linked(s) && s.Keys == 1 })
	must(t, na.Pause(t.Context(), time.Hour))
	must(t, na.SetFence(t.Context(), shard.Closed, 0))
	stands := probe(t, na).Txn
	until(t, nb, "the replica has everything", func(s shard.State) bool { return s.Txn >= stands })
	reader, err := net.Dial("tcp", a.Addr)
	must(t, err)
	defer reader.Close()
	must(t, na.Follow(t.Context(), ""))
	_ = reader.SetReadDeadline(time.Now().Add(patience))
	if _, err := reader.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("a client of the old primary is still connected")
	}
	if s := probe(t, na); !s.Synced || s.Role != shard.Replica {
		t.Errorf("an old primary that was detached: %+v", s)
	}
	must(t, nb.Follow(t.Context(), ""))
	must(t, nb.Promote(t.Context()))
	must(t, na.Follow(t.Context(), b.Addr))
	must(t, na.Pause(t.Context(), 0))
	until(t, na, "the old primary follows", linked)
	if full := stat(t, b, "sync_full"); full != "0" {
		t.Errorf("%s full copies", full)
	}
}

// TestPromotedAgain: promoted as it is, a primary that led before would show where it was promoted first. One that has left for
// nobody begins a new lineage, which says where it stands now.
func TestPromotedAgain(t *testing.T) {
	a := realserver.Redis(t, realserver.RedisOptions{Args: quiet})
	b := realserver.Redis(t, realserver.RedisOptions{ReplicaOf: a, Args: quiet})
	n := node(t, b)
	until(t, n, "it follows", linked) // what comes later moves it on
	do(t, a, "SET", "k", "v")
	until(t, n, "the replica has the key", func(s shard.State) bool { return linked(s) && s.Keys == 1 })
	must(t, n.Promote(t.Context()))
	first := probe(t, n)
	c := realserver.Redis(t, realserver.RedisOptions{ReplicaOf: b, Args: quiet}) // without a replica nothing is counted
	until(t, node(t, c), "another follows it", linked)
	do(t, b, "SET", "later", "v")
	led := until(t, n, "it has written more", func(s shard.State) bool { return s.Txn > first.Txn })
	must(t, n.SetFence(t.Context(), shard.Closed, 0))
	must(t, n.Promote(t.Context()))
	if s := probe(t, n); s.Lineage != led.Lineage || s.PromotedAt() >= led.Txn {
		t.Errorf("promoted as it is: %+v", s)
	}
	must(t, n.Follow(t.Context(), ""))
	must(t, n.Promote(t.Context()))
	if s := probe(t, n); s.Lineage == led.Lineage || s.Before != (shard.Lineage{ID: led.Lineage.ID, End: led.Txn}) || s.PromotedAt() != led.Txn || !s.Synced || s.Keys != 2 {
		t.Errorf("promoted again at %d: %+v", led.Txn, s)
	}
}

func TestPause(t *testing.T) {
	a := realserver.Redis(t, realserver.RedisOptions{})
	n := node(t, a)
	must(t, n.Pause(t.Context(), time.Hour))
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	wantError(t, "a write that waits", n.TryWrite(short), context.DeadlineExceeded)
	if _, err := n.Probe(t.Context()); err != nil {
		t.Errorf("a paused node is not probed: %v", err)
	}
	// The fence is there at once, for new writes and for those that wait.
	waiting := make(chan error, 1)
	go func() { waiting <- n.TryWrite(t.Context()) }()
	realserver.Eventually(t, patience, "the write waits", func() error {
		if !strings.Contains(do(t, a, "INFO", "clients"), "blocked_clients:1") {
			return errors.New("nobody waits")
		}
		return nil
	})
	must(t, n.SetFence(t.Context(), shard.Closed, 0))
	other := node(t, a)
	wantError(t, "a new write", other.TryWrite(t.Context()), shard.ErrNodeRefused)
	must(t, n.Pause(t.Context(), 0))
	wantError(t, "the write that waited", <-waiting, shard.ErrNodeRefused)
	must(t, n.SetFence(t.Context(), shard.Open, 0))
	must(t, n.TryWrite(t.Context()))
}

func TestNew(t *testing.T) {
	for _, c := range []redis.Config{{Username: "u"}, {Timeout: -1}} {
		if _, err := redis.New(c); err == nil {
			t.Errorf("%+v is taken", c)
		}
	}
	e := enginesOf(t, redis.Config{})
	if e.Name() != "redis" || e.FenceDelay() != 2*time.Second {
		t.Errorf("%s, %v", e.Name(), e.FenceDelay())
	}
	n := at(t, e, "127.0.0.1:1")
	for _, address := range []string{"nowhere", "127.0.0.1:0", ":6379"} {
		if err := n.Follow(t.Context(), address); err == nil || errors.Is(err, shard.ErrNodeGone) {
			t.Errorf("Follow(%q): %v", address, err)
		}
	}
	must(t, n.Close())
	wantError(t, "after Close", n.TryWrite(t.Context()), net.ErrClosed)
}
