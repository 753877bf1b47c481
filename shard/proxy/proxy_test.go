package proxy_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/internal/testkit/realserver"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/shard"
	"github.com/understudy-ha/understudy/shard/proxy"
	"github.com/understudy-ha/understudy/shard/shardtest"
)

func id(n int) string { return fmt.Sprintf("%040x", n) }

// view of nodes numbered from 1.
func view(primary int, addresses ...string) shard.View {
	v := shard.View{Row: shard.Row{Name: "s", Primary: id(primary), PrimaryEpoch: int64(primary)}}
	for i, a := range addresses {
		r := shard.Record{
			ID: id(i + 1), Address: a, Role: shard.Replica, PrimaryID: id(primary), Condition: shard.Up, Synced: true,
			Timeout: time.Second, Link: &shard.Upstream{Up: true},
		}
		if i+1 == primary {
			r.Role, r.PrimaryID, r.Link = shard.Primary, "", nil
		}
		v.Nodes = append(v.Nodes, r)
	}
	return v
}

func failing(v shard.View) shard.View {
	v.Row.Plan = &shard.Plan{Epoch: 9, Phase: shard.Detaching}
	return v
}

// node says its name to each client, and then what it is told.
func node(t *testing.T, name string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				defer c.Close()
				defer context.AfterFunc(ctx, func() { c.Close() })()
				fmt.Fprintln(c, name)
				_, _ = io.Copy(c, c)
				fmt.Fprintln(c, "bye") // after the client has ended its direction
			})
		}
	})
	t.Cleanup(func() { l.Close(); cancel(); all.Wait() })
	return l.Addr().String()
}

// nowhere is an address where nothing listens.
func nowhere(t *testing.T) string {
	return realserver.FreeAddress(t)
}

func serve(t *testing.T, cfg proxy.Config) (string, *proxy.Proxy) {
	t.Helper()
	cfg.Shard = "s"
	p, err := proxy.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- p.Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	return l.Addr().String(), p
}

// client of a proxy.
type client struct {
	t *testing.T
	*net.TCPConn
	r *bufio.Reader
}

func dial(t *testing.T, address string) *client {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	return &client{t, c.(*net.TCPConn), bufio.NewReader(c)}
}

func (c *client) line() string {
	line, err := c.r.ReadString('\n')
	if err != nil && !errors.Is(err, net.ErrClosed) {
		return "end" // of the connection, in whatever way
	}
	return strings.TrimSpace(line)
}

func (c *client) want(line string) {
	c.t.Helper()
	if got := c.line(); got != line {
		c.t.Fatalf("%q came, want %q", got, line)
	}
}

func TestFollowsThePrimary(t *testing.T) {
	a, b := node(t, "a"), node(t, "b")
	w := shardtest.NewViews(view(1, a, b))
	address, p := serve(t, proxy.Config{Where: w})
	old := dial(t, address)
	old.want("a")
	fmt.Fprintln(old, "hello")
	old.want("hello")

	w.Set(failing(view(1, a, b)))
	old.want("end") // although the old one is well
	waiting := dial(t, address)
	w.Set(view(2, a, b))
	waiting.want("b")
	dial(t, address).want("b")

	again := view(2, a, b)
	again.Row.PrimaryEpoch = 5
	w.Set(again)
	waiting.want("end") // the same node, but another epoch
	if st := p.Stats(); st.Deposed != 3 || st.Accepted != 3 {
		t.Errorf("%+v", st)
	}
}

func TestHalfClose(t *testing.T) {
	address, p := serve(t, proxy.Config{Where: shardtest.NewViews(view(1, node(t, "a")))})
	c := dial(t, address)
	c.want("a")
	fmt.Fprintln(c, "last words")
	if err := c.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	c.want("last words")
	c.want("bye")
	c.want("end")
	realserver.Eventually(t, time.Minute, "the connection is gone", func() error {
		if st := p.Stats(); st.Conns != 0 || st.ToNode != int64(len("last words\n")) || st.ToClient == 0 {
			return fmt.Errorf("%+v", st)
		}
		return nil
	})
}

func TestNobody(t *testing.T) {
	for name, w := range map[string]*shardtest.Views{
		"no primary": shardtest.NewViews(failing(view(1, "127.0.0.1:1"))),
		"refused":    shardtest.NewViews(view(1, nowhere(t))),
		"unknown":    shardtest.NewViews(),
	} {
		t.Run(name, func(t *testing.T) {
			address, p := serve(t, proxy.Config{Where: w, Wait: 50 * time.Millisecond})
			dial(t, address).want("end")
			realserver.Eventually(t, time.Minute, "it is counted", func() error {
				if st := p.Stats(); st.NoNode != 1 {
					return fmt.Errorf("%+v", st)
				}
				return nil
			})
		})
	}
}

// TestWaitsForRestart shows that a primary that is back within the wait is reached.
func TestWaitsForRestart(t *testing.T) {
	at := nowhere(t)
	w := shardtest.NewViews(view(1, at))
	address, _ := serve(t, proxy.Config{Where: w, Wait: time.Minute})
	c := dial(t, address)
	w.Set(view(1, node(t, "a")))
	c.want("a")
}

func TestUnknownKeepsConnections(t *testing.T) {
	w := shardtest.NewViews(view(1, node(t, "a")))
	address, p := serve(t, proxy.Config{Where: w})
	c := dial(t, address)
	c.want("a")
	w.Set()
	fmt.Fprintln(c, "still there")
	c.want("still there")
	if st := p.Stats(); st.Deposed != 0 {
		t.Errorf("%+v", st)
	}
}

func TestReplicas(t *testing.T) {
	a, b, c := node(t, "a"), node(t, "b"), node(t, "c")
	w := shardtest.NewViews(view(1, a, b, c))
	address, _ := serve(t, proxy.Config{Where: w, Route: proxy.Replicas})
	one, two := dial(t, address), dial(t, address)
	got := map[string]*client{one.line(): one, two.line(): two}
	if got["b"] == nil || got["c"] == nil {
		t.Fatalf("readers were led to %v", got)
	}
	promoted := view(2, a, b, c)
	promoted.Nodes[2].Condition = shard.Down
	w.Set(promoted)
	got["c"].want("end")
	fmt.Fprintln(got["b"], "still there")
	got["b"].want("still there")
	dial(t, address).want("a")

	alone := view(2, a, b, c)
	alone.Nodes[0].Synced, alone.Nodes[2].Condition = false, shard.Down
	w.Set(alone)
	dial(t, address).want("b") // the primary, for want of another
}

func TestReplicaRefuses(t *testing.T) {
	c := node(t, "c")
	address, _ := serve(t, proxy.Config{Where: shardtest.NewViews(view(1, nowhere(t), nowhere(t), c)), Route: proxy.Replicas})
	dial(t, address).want("c")
	dial(t, address).want("c")
}

func TestLimit(t *testing.T) {
	address, p := serve(t, proxy.Config{Where: shardtest.NewViews(view(1, node(t, "a"))), MaxConns: 1})
	dial(t, address).want("a")
	dial(t, address).want("end")
	if st := p.Stats(); st.Refused != 1 {
		t.Errorf("%+v", st)
	}
}

func TestDrain(t *testing.T) {
	p, err := proxy.New(proxy.Config{Where: shardtest.NewViews(view(1, node(t, "a"))), Shard: "s", Drain: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- p.Serve(ctx, l) }()
	c := dial(t, l.Addr().String())
	c.want("a")
	cancel()
	realserver.Eventually(t, time.Minute, "it accepts nobody", func() error {
		other, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			return nil
		}
		other.Close()
		return errors.New("accepted")
	})
	fmt.Fprintln(c, "not yet")
	c.want("not yet")
	c.Close()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestMany moves many clients over, again and again, and finds none of them at a node
// that is not the primary.
func TestMany(t *testing.T) {
	nodes := []string{node(t, "1"), node(t, "2"), node(t, "3")}
	w := shardtest.NewViews(view(1, nodes...))
	address, _ := serve(t, proxy.Config{Where: w})
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			for ctx.Err() == nil {
				c, err := net.Dial("tcp", address)
				if err != nil {
					t.Error(err)
					return
				}
				stop := context.AfterFunc(ctx, func() { c.Close() })
				_ = c.SetDeadline(time.Now().Add(time.Minute))
				_, _ = io.Copy(io.Discard, c)
				stop()
				c.Close()
			}
		})
	}
	for n := range 50 {
		primary := n%3 + 1
		w.Set(failing(view(n%3+1, nodes...)))
		w.Set(view(primary, nodes...))
		dial(t, address).want(fmt.Sprint(primary))
	}
	cancel()
	all.Wait()
}

// turned shows the first view to the watch and to the first choice of a node, and another from then on,
// without telling anybody.
type turned struct {
	*shardtest.Views
	first shard.View
	shown atomic.Int32
}

func (w *turned) Shard(name string) (shard.View, bool) {
	if w.shown.Add(1) <= 2 {
		return w.first, true
	}
	return w.Views.Shard(name)
}

// TestChangeWhileConnecting shows that a change between the choice of a node and the connection to it
// is not missed.
func TestChangeWhileConnecting(t *testing.T) {
	a, b := node(t, "a"), node(t, "b")
	w := &turned{Views: shardtest.NewViews(view(2, a, b)), first: view(1, a, b)}
	address, p := serve(t, proxy.Config{Where: w})
	realserver.Eventually(t, time.Minute, "the proxy watches", func() error {
		if w.shown.Load() == 0 {
			return errors.New("not yet")
		}
		return nil
	})
	dial(t, address).want("b")
	if st := p.Stats(); st.Deposed != 0 {
		t.Errorf("%+v", st)
	}
}

func TestConfig(t *testing.T) {
	w := shardtest.NewViews(shard.View{})
	for _, c := range []proxy.Config{
		{}, {Where: w}, {Where: w, Shard: "a b"}, {Where: w, Shard: "s", Route: "both"}, {Where: w, Shard: "s", Wait: -1},
	} {
		if _, err := proxy.New(c); !errors.Is(err, lease.ErrInvalid) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}
