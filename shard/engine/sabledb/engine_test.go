package sabledb_test

import (
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/internal/testkit/sabledbnode"
	"github.com/understudy-ha/understudy/shard"
	"github.com/understudy-ha/understudy/shard/engine/sabledb"
	"github.com/understudy-ha/understudy/shard/engine/wire"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type bench struct {
	t       *testing.T
	cluster *sabledbnode.Cluster
	engines shard.Engines
}

func begin(t *testing.T, c *sabledbnode.Cluster) *bench {
	e, err := sabledb.New(sabledb.Config{Timeout: 20 * time.Second})
	must(t, err)
	t.Cleanup(func() { _ = e.(io.Closer).Close() })
	return &bench{t, c, e}
}

func (b *bench) start() (*sabledbnode.Node, shard.Engine) {
	n, err := b.cluster.Start()
	must(b.t, err)
	e := b.engines.At(n.Addr)
	b.t.Cleanup(func() {
		_ = e.Close()
		n.Stop()
		// The engine must keep to what SableDB has.
		if r := n.Refused(); len(r) > 0 {
			b.t.Errorf("SableDB has no %q", r)
		}
	})
	return n, e
}

func (b *bench) set(n *sabledbnode.Node, key string) error {
	c := wire.New(n.Addr, wire.Config{Timeout: 20 * time.Second})
	defer c.Close()
	replies, err := c.Do(b.t.Context(), []string{"SET", key, "v"})
	must(b.t, err)
	return replies[0].Err()
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func probe(t *testing.T, e shard.Engine) shard.State {
	t.Helper()
	s, err := e.Probe(t.Context())
	must(t, err)
	return s
}

func TestFailover(t *testing.T) {
	for _, blanks := range []bool{false, true} {
		b := begin(t, &sabledbnode.Cluster{Name: "c", Blanks: blanks})
		p, ep := b.start()
		r, er := b.start()
		other, eo := b.start()
		must(t, b.set(p, "k"))
		must(t, ep.TryWrite(t.Context()))
		must(t, er.Follow(t.Context(), p.Addr))
		must(t, eo.Follow(t.Context(), p.Addr))
		other.Hold()
		must(t, b.set(p, "k2"))
		primary, replica, behind := probe(t, ep), probe(t, er), probe(t, eo)
		if primary.Role != shard.Primary || primary.Txn != 2 || primary.Lineage.ID != p.ID || primary.Fence != shard.Open ||
			len(primary.Followers) != 2 || primary.Followers[0].Address != r.Addr || primary.NodeID != p.ID || primary.Keys != 2 {
			t.Errorf("primary: %+v", primary)
		}
		if replica.Role != shard.Replica || !replica.Synced || replica.Txn != 2 || replica.Lineage != primary.Lineage ||
			replica.Fence != shard.Closed || !replica.Link.Up || replica.Link.Address != p.Addr || replica.Link.Input < 0 {
			t.Errorf("replica: %+v, link %+v", replica, replica.Link)
		}
		// Its own numbers would say otherwise: see weak point 7 of the original.
		if behind.Txn != 1 || !behind.Synced {
			t.Errorf("a replica that is behind: %+v", behind)
		}
		if err := er.TryWrite(t.Context()); !errors.Is(err, shard.ErrNodeRefused) {
			t.Errorf("a write to a replica: %v", err)
		}
		p.Stop()
		if v := b.engines.ProbePeer(t.Context(), p.Addr); v != shard.Refused {
			t.Errorf("probing: %s", v)
		}
		if _, err := ep.Probe(t.Context()); !errors.Is(err, shard.ErrNodeGone) {
			t.Errorf("Probe: %v", err)
		}
		must(t, er.Follow(t.Context(), ""))
		if s := probe(t, er); s.Role != shard.Replica || !s.Synced || s.Txn != 2 || s.Link.Up || s.Link.Address != "" {
			t.Errorf("detached: %+v, link %+v", s, s.Link)
		}
		must(t, er.Promote(t.Context()))
		closed := probe(t, er)
		if closed.Role != shard.Primary || closed.Fence != shard.Closed || closed.Lineage.ID != r.ID || closed.Before != (shard.Lineage{ID: p.ID, End: 2}) {
			t.Errorf("promoted: %+v", closed)
		}
		if err := b.set(r, "no"); err == nil || !strings.HasPrefix(err.Error(), "READONLY") {
			t.Errorf("a write to a closed primary: %v", err)
		}
		must(t, er.SetFence(t.Context(), shard.Open, 0))
		must(t, er.TryWrite(t.Context()))
		must(t, b.set(r, "yes"))
		if s := probe(t, er); s.Lineage != closed.Lineage || s.Fence != shard.Open || s.Keys != 3 {
			t.Errorf("open: %+v", s)
		}
	}
}

// The fence of a primary, by its own agent and by another one.
func TestFence(t *testing.T) {
	b := begin(t, &sabledbnode.Cluster{Name: "c"})
	p, e := b.start()
	must(t, b.set(p, "k"))
	before := probe(t, e)
	for range 2 {
		must(t, e.SetFence(t.Context(), shard.Closed, 0))
		if s := probe(t, e); s.Role != shard.Primary || s.Fence != shard.Closed || s.Lineage != before.Lineage || s.Txn != before.Txn {
			t.Errorf("closed: %+v, was %+v", s, before)
		}
		if err := e.TryWrite(t.Context()); !errors.Is(err, shard.ErrNodeRefused) {
			t.Errorf("a write: %v", err)
		}
	}
	// Another engine of this process knows as much.
	second := b.engines.At(p.Addr)
	defer second.Close()
	if s := probe(t, second); s.Role != shard.Primary {
		t.Errorf("seen by another engine: %+v", s)
	}
	must(t, e.SetFence(t.Context(), shard.Open, 0))
	must(t, e.SetFence(t.Context(), shard.Open, 0))
	must(t, e.TryWrite(t.Context()))
	stranger := begin(t, b.cluster).engines.At(p.Addr)
	defer stranger.Close()
	must(t, stranger.SetFence(t.Context(), shard.Closed, 0))
	if s := probe(t, e); s.Role != shard.Replica || s.Fence != shard.Closed || s.Synced {
		t.Errorf("closed by another process: %+v", s)
	}
	if err := e.SetFence(t.Context(), shard.Armed, 1); !errors.Is(err, shard.ErrUnsupported) {
		t.Errorf("armed: %v", err)
	}
	if err := e.Pause(t.Context(), time.Second); !errors.Is(err, shard.ErrUnsupported) {
		t.Errorf("pause: %v", err)
	}
	must(t, e.Pause(t.Context(), 0))
}

// Without a cluster's name nothing is known of a replica, and it says so.
func TestNothingKnown(t *testing.T) {
	b := begin(t, &sabledbnode.Cluster{})
	_, e := b.start()
	must(t, e.Follow(t.Context(), "127.0.0.1:2000"))
	if s := probe(t, e); s.Synced || s.Txn != 0 || s.Link.Up || s.Link.Input >= 0 || s.Link.Address != "127.0.0.1:2000" {
		t.Errorf("%+v, link %+v", s, s.Link)
	}
	for _, address := range []string{"db1:6379", "[::1]:6379", "nowhere", "127.0.0.1:65000"} {
		if err := e.Follow(t.Context(), address); err == nil {
			t.Errorf("it follows %s", address)
		}
	}
}

// The write probe finds a key in the node's slots.
func TestOtherSlots(t *testing.T) {
	b := begin(t, &sabledbnode.Cluster{Name: "c"})
	p, e := b.start()
	p.Foreign(func(key string) bool { return !strings.HasSuffix(key, ":77") })
	must(t, e.TryWrite(t.Context()))
	must(t, e.TryWrite(t.Context()))
	p.Foreign(func(string) bool { return true })
	if err := e.TryWrite(t.Context()); !errors.Is(err, shard.ErrNodeUnhealthy) {
		t.Errorf("none of its slots: %v", err)
	}
}

// The stand-in refuses what SableDB does not have.
func TestStandinIsStrict(t *testing.T) {
	c := &sabledbnode.Cluster{}
	n, err := c.Start()
	must(t, err)
	defer n.Stop()
	conn := wire.New(n.Addr, wire.Config{Timeout: 20 * time.Second})
	defer conn.Close()
	for _, line := range []string{
		"ROLE", "AUTH x", "WAIT 1 0", "CONFIG SET min-replicas-to-write 1", "CLIENT PAUSE 1", "SHUTDOWN", "HELLO 3",
		"CLUSTER SLOTS", "FAILOVER", "REPLICAOF localhost 1", "REPLICAOF ::1 1", "PING x", "EVAL x 0",
	} {
		replies, err := conn.Do(t.Context(), strings.Fields(line))
		must(t, err)
		if replies[0].Err() == nil {
			t.Errorf("%s is taken", line)
		}
	}
	if got := len(n.Refused()); got != 13 {
		t.Errorf("%d refused", got)
	}
}
