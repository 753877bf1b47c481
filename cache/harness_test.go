package cache

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/cache/protocol"
)

// patience is how long a test waits for what must happen in the end.
const patience = time.Minute

// eventually waits until a condition holds.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("never: %s", what)
		}
	}
}

// addrs are loopback addresses that were free a moment ago.
func addrs(t testing.TB, n int) []string {
	t.Helper()
	var out []string
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		out = append(out, "tcp://"+l.Addr().String())
	}
	return out
}

// cluster is several peers in this process, with one origin that counts.
type cluster struct {
	t       testing.TB
	members []protocol.Member
	config  func(i int, c *Config)
	source  Origin
	calls   atomic.Int64 // of the origin
	ahead   atomic.Int64 // nanoseconds that every wall clock has been put forward
	peers   []*member
}

// member is a peer that runs.
type member struct {
	*Peer
	stop func()
}

// fast are waits for tests: short where they pass, long enough for a busy machine.
func fast() protocol.Timings {
	return protocol.Timings{FailMin: 200 * time.Millisecond}
}

func newCluster(t testing.TB, n int, source Origin, config func(i int, c *Config)) *cluster {
	t.Helper()
	c := &cluster{t: t, source: source, config: config, peers: make([]*member, n)}
	free := addrs(t, 2*n)
	for i := range n {
		c.members = append(c.members, protocol.Member{URL: free[2*i], API: free[2*i+1]})
	}
	for i := range n {
		c.start(i)
	}
	return c
}

func testLog() *slog.Logger {
	if os.Getenv("CACHE_TEST_LOG") == "" {
		return nil
	}
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// start runs a peer, again if it has run before.
func (c *cluster) start(i int) *Peer {
	c.t.Helper()
	cfg := Config{
		Self: c.members[i].URL, Members: c.members, Timings: fast(), Jitter: -1,
		Wall: func() time.Time { return time.Now().Add(time.Duration(c.ahead.Load())) },
		Origin: func(ctx context.Context, f Fetch) (Value, error) {
			c.calls.Add(1)
			return c.source(ctx, f)
		},
	}
	if log := testLog(); log != nil {
		cfg.Logger = log.With("self", i)
	}
	if c.config != nil {
		c.config(i, &cfg)
	}
	c.peers[i] = run(c.t, cfg)
	return c.peers[i].Peer
}

// run runs a peer until the test ends or it is stopped, and waits until it is ready.
func run(t testing.TB, cfg Config) *member {
	t.Helper()
	p, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	var once sync.Once
	n := &member{p, func() {
		once.Do(func() {
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
	}}
	t.Cleanup(n.stop)
	select {
	case <-p.Ready():
	case <-p.loop.ended:
		n.stop()
		t.FailNow()
	}
	return n
}

// settled waits until every peer hears all others and votes.
func (c *cluster) settled() *cluster {
	c.t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	for {
		ok := true
		for _, p := range c.peers {
			v, err := p.Cluster(context.Background())
			if err != nil {
				c.t.Fatal(err)
			}
			ok = ok && v.Connected == len(c.peers) && !v.Abstaining
		}
		if ok {
			return c
		}
		select {
		case <-deadline.C:
			c.t.Fatal("the peers never settled")
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// echo is an origin that makes a value from the key.
func echo(_ context.Context, f Fetch) (Value, error) {
	return Value{Data: fmt.Appendf(nil, "value of %s", f.Key)}, nil
}

// ask is Get by someone who is patient: where the machine is too busy to hold an
// election in its time, peers think that they are cut off.
func ask(ctx context.Context, p *Peer, key string) (Item, error) {
	for {
		item, err := p.Get(ctx, key, GetOptions{})
		if !errors.Is(err, ErrPartitioned) {
			return item, err
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return item, err
		}
	}
}

// get asks a peer, and fails the test unless it answers with this value.
func (c *cluster) get(i int, key, want string) Item {
	c.t.Helper()
	item, err := ask(c.ctx(), c.peers[i].Peer, key)
	if err != nil || string(item.Value) != want {
		c.t.Fatalf("peer %d: %s is %q, %v; want %q", i, key, item.Value, err, want)
	}
	return item
}

// everywhere waits until every peer has a copy of this value.
func (c *cluster) everywhere(t *testing.T, key, want string) {
	t.Helper()
	eventually(t, "everywhere "+key+" = "+want, func() bool {
		for _, p := range c.peers {
			if item, ok := p.Peek(key); !ok || string(item.Value) != want {
				return false
			}
		}
		return true
	})
}

func (c *cluster) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	c.t.Cleanup(cancel)
	return ctx
}

// viewOf is what a peer shows of a key.
func viewOf(c *cluster, p *Peer, key string) (KeyView, error) {
	views, err := p.Keys(c.ctx(), KeyQuery{Prefix: key, Limit: 1})
	if err != nil || len(views) == 0 {
		return KeyView{}, err
	}
	return views[0], nil
}
