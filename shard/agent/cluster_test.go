package agent_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/lease/leasetest"
	"github.com/understudy-ha/understudy/shard"
	"github.com/understudy-ha/understudy/shard/agent"
	"github.com/understudy-ha/understudy/shard/catalog"
	"github.com/understudy-ha/understudy/shard/shardtest"
	"github.com/understudy-ha/understudy/store/memory"
)

// cluster is a shard with an agent beside each node, in a bubble.
type cluster struct {
	t     *testing.T
	world *shardtest.World
	store *memory.Store
	hosts []*host
	logs  *slog.Logger
}

// host is a node, its agent, and its way to the store.
type host struct {
	c       *cluster
	name    string
	address string
	dir     string
	node    *shardtest.Node
	line    *shardtest.Line
	clock   *leasetest.BubbleClock
	edit    func(*agent.Config)

	agent *agent.Agent
	stop  context.CancelCauseFunc
	done  chan error
}

type testWriter struct{ t *testing.T }

func (w testWriter) Write(b []byte) (int, error) {
	w.t.Log(strings.TrimSpace(string(b)))
	return len(b), nil
}

// newCluster makes a cluster of n nodes; edit changes what each agent is told.
func newCluster(t *testing.T, n int, edit func(*agent.Config)) *cluster {
	c := &cluster{t: t, world: shardtest.NewWorld(), store: memory.New(nil)}
	if os.Getenv("UNDERSTUDY_TEST_LOG") != "" {
		begin := time.Now()
		c.logs = slog.New(slog.NewTextHandler(testWriter{t}, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.String("t", time.Since(begin).String())
			}
			return a
		}}))
	}
	for i := range n {
		h := &host{c: c, name: string(rune('a' + i)), address: fmt.Sprintf("10.0.0.%d:6379", i+1), dir: t.TempDir(), clock: &leasetest.BubbleClock{}, edit: edit}
		h.node = c.world.Add(h.address)
		h.line = &shardtest.Line{Registry: c.store.Registry(), Commands: c.store.Commands(), Leases: c.store}
		c.hosts = append(c.hosts, h)
	}
	t.Cleanup(func() {
		for _, h := range c.hosts {
			h.crash()
		}
	})
	return c
}

// start starts the host's agent.
func (h *host) start() {
	h.c.t.Helper()
	registry, commands, leases := h.line.Ports()
	cfg := agent.Config{
		Shard: "s", Node: h.address, AgentAddress: "agent-" + h.name, Dir: h.dir, Engines: h.c.world.Engines(h.address),
		Adopt: func(int) (shard.Process, error) { return h.node.Process(), nil },
		Local: func(address string) bool { return address == h.address }, KillHung: true,
		Registry: registry, Commands: commands, Leases: leases, Clock: h.clock, Boot: "boot",
		Promisers: promisers{h.c, h},
	}
	if h.c.logs != nil {
		cfg.Logger = h.c.logs.With("host", h.name)
	}
	if h.edit != nil {
		h.edit(&cfg)
	}
	started, err := agent.New(cfg)
	if err != nil {
		h.c.t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	h.agent, h.stop, h.done = started, cancel, make(chan error, 1)
	go func() { h.done <- started.Run(ctx) }()
}

// crash ends the agent as SIGKILL would.
func (h *host) crash() { h.end(agent.ErrAbandon) }

func (h *host) end(cause error) {
	if h.agent == nil {
		return
	}
	h.stop(cause)
	if err := <-h.done; err != nil {
		h.c.t.Errorf("the agent of %s returned %v", h.name, err)
	}
	h.agent = nil
}

// promisers asks the agents of the cluster, where hosts reach each other.
type promisers struct {
	c    *cluster
	from *host
}

func (p promisers) RequestPromise(ctx context.Context, address string, q shard.Promise, mac string) (string, error) {
	for _, h := range p.c.hosts {
		if "agent-"+h.name == address && h.agent != nil {
			if p.c.world.Engines(p.from.address).ProbePeer(ctx, h.address) == shard.TimedOut {
				return "", context.DeadlineExceeded
			}
			return h.agent.GrantPromise(q, mac)
		}
	}
	return "", errors.New("connection refused")
}

func (c *cluster) view() shard.View {
	v, err := c.store.Registry().ReadView(context.Background(), "s")
	if err != nil && !errors.Is(err, shard.ErrNotFound) {
		c.t.Fatal(err)
	}
	return v
}

// until waits for a condition, for at most so long, and returns how long it took.
func (c *cluster) until(what string, limit time.Duration, ok func() bool) time.Duration {
	c.t.Helper()
	began := time.Now()
	for !ok() {
		if time.Since(began) > limit {
			c.t.Fatalf("not within %v: %s\n%s", limit, what, c.describe())
		}
		step := time.Millisecond
		if time.Since(began) > timeout+timeout/2 {
			step = 20 * time.Millisecond // it has become a matter of patience
		}
		time.Sleep(step)
		synctest.Wait()
	}
	return time.Since(began)
}

func (c *cluster) describe() string {
	v := c.view()
	var b strings.Builder
	fmt.Fprintf(&b, "row rev %d epoch %d primary %.8s/%d plan %+v last %+v lease %+v\n", v.Row.Rev, v.Row.Epoch, v.Row.Primary, v.Row.PrimaryEpoch, v.Row.Plan, v.Row.Last, v.Lease)
	for _, h := range c.hosts {
		fmt.Fprintf(&b, "%s %s: %+v\n", h.name, h.address, h.node.State())
		if h.agent != nil {
			s := h.agent.Status()
			fmt.Fprintf(&b, "   %.8s assignment %s condition %s holding %t open %t blocked %q trouble %q finding %+v down %v promised %v\n", s.NodeID, s.Assignment, s.Condition, s.Holding, s.Open, s.Blocked, s.Trouble, s.Finding, s.StoreDown, s.PromisedFor)
		}
	}
	return b.String()
}

// up starts all agents and waits until the first host's node is the primary, the others follow it,
// and its fence is armed.
func (c *cluster) up() *cluster {
	c.t.Helper()
	c.hosts[0].start()
	c.until("the first node founds the shard", 5*time.Second, func() bool { return c.view().Row.Primary == c.hosts[0].id() && c.writes(c.hosts[0]) })
	for _, h := range c.hosts[1:] {
		h.start()
	}
	c.settled(c.hosts[0])
	return c
}

// settled waits until the host's node is the primary, alone, with all others that run behind it.
func (c *cluster) settled(h *host) {
	c.t.Helper()
	c.until("the shard is settled on "+h.name, 60*time.Second, func() bool {
		v := c.view()
		return v.Row.Primary == h.id() && c.settledAs(v)
	})
}

// settles waits until any host's node is, and returns it: what was asked for before may move the
// primary once more.
func (c *cluster) settles(what string) (h *host) {
	c.t.Helper()
	c.until(what, 3*time.Minute, func() bool {
		v := c.view()
		h = c.host(v.Row.Primary)
		return c.settledAs(v)
	})
	return h
}

// settledAs: what the view says is so, and nothing is left to do.
func (c *cluster) settledAs(v shard.View) bool {
	h := c.host(v.Row.Primary)
	if h == nil || v.Row.Plan != nil || !c.writes(h) || !v.Lease.Held() {
		return false
	}
	n := 0
	for _, o := range c.hosts {
		if o == h || !o.node.Running() || o.agent == nil {
			continue
		}
		n++
		s := o.node.State()
		if _, member := v.Row.Member(o.id()); !member || s.Role != shard.Replica || s.Link == nil || s.Link.Address != h.address || !s.Link.Up || !s.Synced {
			return false
		}
	}
	me, _ := v.Node(h.id())
	return n == 0 || me.Armed
}

func (h *host) id() string {
	if h.agent == nil {
		return ""
	}
	return h.agent.ID()
}

// writes reports whether the host's node accepts a write.
func (c *cluster) writes(h *host) bool {
	_, err := h.node.Write()
	return err == nil
}

// others do not accept writes, whatever happens.
func (c *cluster) oneWriter(h *host) {
	c.t.Helper()
	for _, o := range c.hosts {
		if o != h && c.writes(o) {
			c.t.Errorf("%s accepts writes beside %s\n%s", o.name, h.name, c.describe())
		}
	}
}

var (
	_ lease.Clock   = (*leasetest.BubbleClock)(nil)
	_ catalog.Views = (*agent.Agent)(nil)
)
