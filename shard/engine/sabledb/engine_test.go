package sabledb_test

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	stand "github.com/understudy-ha/understudy/internal/testkit/sabledb"
	"github.com/understudy-ha/understudy/shard"
	"github.com/understudy-ha/understudy/shard/engine/redis"
	"github.com/understudy-ha/understudy/shard/engine/sabledb"
	"github.com/understudy-ha/understudy/shard/engine/wire"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// ample is longer than anything takes that does not hang, on whatever machine.
const ample = 20 * time.Second

// member is a node with the engine of its own agent.
type member struct {
	*stand.Node
	shard.Engine
	engines shard.Engines
}

// engineOf is an engine as the node's own agent has it, a new one at each call.
func engineOf(t *testing.T, n *stand.Node) member {
	t.Helper()
	e, err := sabledb.New(sabledb.Config{Node: n.Addr, Replication: n.Private, Folder: func() string { return n.Folder }, Timeout: ample})
	must(t, err)
	m := member{n, e.At(n.Addr), e}
	t.Cleanup(func() {
		_ = m.Close()
		_ = e.(io.Closer).Close()
	})
	return m
}

// startMembers starts nodes whose agents know of each other.
func startMembers(t *testing.T, c *stand.Cluster, count int) (all []member) {
	t.Helper()
	for range count {
		n := c.Start(t)
		all = append(all, engineOf(t, n))
		t.Cleanup(func() {
			// The engine must keep to what SableDB has.
			if r := n.Refused(); len(r) > 0 {
				t.Errorf("SableDB has no %q", r)
			}
		})
	}
	for _, m := range all {
		m.learn(t, all...)
	}
	return all
}

func (m member) learn(t *testing.T, all ...member) {
	var peers []shard.Peer
	for _, o := range all {
		s := probe(t, o)
		peers = append(peers, shard.Peer{NodeID: s.NodeID, Address: o.Addr, Replication: s.Replication})
	}
	m.engines.(shard.PeerLearner).LearnPeers(peers)
}

func (m member) do(t *testing.T, command string) wire.Reply {
	t.Helper()
	c := wire.New(m.Addr, wire.Config{Timeout: ample})
	defer c.Close()
	replies, err := c.Do(t.Context(), strings.Fields(command))
	must(t, err)
	return replies[0]
}

func (m member) set(t *testing.T, key string) error {
	t.Helper()
	return m.do(t, "SET "+key+" v").Err()
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

// await probes until the state is as wanted.
func await(t *testing.T, e shard.Engine, what string, ok func(s shard.State) bool) shard.State {
	t.Helper()
	var s shard.State
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); <-time.After(5 * time.Millisecond) {
		if s = probe(t, e); ok(s) {
			return s
		}
	}
	t.Fatalf("not %s: %+v, link %+v", what, s, s.Link)
	return s
}

func inStep(s shard.State) bool { return s.Synced && s.Link != nil && s.Link.Up }

// A replica counts as synchronised although CLUSTER NODES is empty; a failover goes by changes.seq.
func TestFailover(t *testing.T) {
	all := startMembers(t, &stand.Cluster{}, 3)
	p, r, behind := all[0], all[1], all[2]
	must(t, p.set(t, "k"))
	must(t, p.TryWrite(t.Context()))
	must(t, r.Follow(t.Context(), p.Addr))
	must(t, behind.Follow(t.Context(), p.Addr))
	await(t, r, "in step", inStep)
	old := await(t, behind, "in step", inStep)
	if stand.Real() == "" {
		behind.Hold(true)
	}
	must(t, p.set(t, "k2"))
	primary := probe(t, p)
	if primary.Role != shard.Primary || primary.Fence != shard.Open || primary.Lineage.ID != primary.NodeID || primary.Keys < 1 || primary.Replication != p.Private {
		t.Errorf("primary: %+v", primary)
	}
	replica := await(t, r, "at the primary's place", func(s shard.State) bool { return s.Txn == primary.Txn })
	if replica.Lineage != primary.Lineage || replica.Fence != shard.Closed || replica.Link.Address != p.Addr || replica.Link.Input < 0 ||
		replica.Link.CopyTook <= 0 || replica.Link.CopyBytes <= 0 {
		t.Errorf("replica: %+v, link %+v", replica, replica.Link)
	}
	if got := probe(t, p).Followers; len(got) != 2 || got[0].Address != r.Addr {
		t.Errorf("followers: %+v", got)
	}
	if err := r.TryWrite(t.Context()); !errors.Is(err, shard.ErrNodeRefused) {
		t.Errorf("a write to a replica: %v", err)
	}
	p.Kill()
	if v := r.engines.ProbePeer(t.Context(), p.Addr); v != shard.Refused {
		t.Errorf("probing: %s", v)
	}
	if _, err := p.Probe(t.Context()); !errors.Is(err, shard.ErrNodeGone) {
		t.Errorf("Probe: %v", err)
	}
	must(t, r.Follow(t.Context(), ""))
	must(t, behind.Follow(t.Context(), ""))
	if s := probe(t, r); s.Role != shard.Replica || !s.Synced || s.Txn != primary.Txn || !s.Link.Detached() {
		t.Errorf("detached: %+v, link %+v", s, s.Link)
	}
	if s := probe(t, behind); stand.Real() == "" && (s.Txn != old.Txn || !s.Synced) {
		t.Errorf("a replica that is behind: %+v, was %+v", s, old)
	}
	must(t, r.Promote(t.Context()))
	closed := probe(t, r)
	if closed.Role != shard.Primary || closed.Fence != shard.Closed || closed.Lineage.ID != closed.NodeID || closed.Before != (shard.Lineage{ID: primary.NodeID, End: primary.Txn}) || closed.PromotedAt() != primary.Txn {
		t.Errorf("promoted: %+v", closed)
	}
	if err := r.set(t, "no"); err == nil || !strings.HasPrefix(err.Error(), "READONLY") {
		t.Errorf("a write to a closed primary: %v", err)
	}
	must(t, r.SetFence(t.Context(), shard.Open, 0))
	must(t, r.TryWrite(t.Context()))
	if s := probe(t, r); s.Lineage != closed.Lineage || s.Fence != shard.Open {
		t.Errorf("open: %+v", s)
	}
}

// A switchover loses nothing: the replica is promoted once it has the last number of the closed primary.
func TestCatchUp(t *testing.T) {
	for name, c := range map[string]struct {
		folder string // "" is its own
		after  string // a write that changes nothing, between the last that did and the close
		within time.Duration
		copy   time.Duration // how long a full copy takes
		copies bool
		fails  string
	}{
		"last write changed something": {within: ample},
		"last write changed nothing":   {after: "DEL none", within: ample, copy: 200 * time.Millisecond, copies: true},
		"no time for a copy":           {after: "DEL none", within: 400 * time.Millisecond, copy: 3 * time.Second, fails: "--timeout"},
		"folder cannot be read":        {folder: "/nowhere", within: ample, fails: "--node-data"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := &stand.Cluster{}
			all := startMembers(t, cluster, 2)
			p, r := all[0], all[1]
			if c.folder != "" {
				r.Folder = c.folder
			}
			must(t, p.TryWrite(t.Context()))
			must(t, r.Follow(t.Context(), p.Addr))
			await(t, r, "in step", inStep)
			copies := r.Copies()
			cluster.SetCopyTime(c.copy)
			for range 100 {
				must(t, p.set(t, "k"))
			}
			if c.after == "" {
				if err := p.Pause(t.Context(), time.Second); !errors.Is(err, shard.ErrUnsupported) {
					t.Fatal(err)
				}
			} else {
				must(t, p.do(t, c.after).Err())
				must(t, p.SetFence(t.Context(), shard.Closed, 0))
			}
			must(t, p.SetFence(t.Context(), shard.Closed, 0))
			if p.set(t, "late") == nil {
				t.Error("a closed primary takes a write")
			}
			last := probe(t, p)
			ctx, cancel := context.WithTimeout(t.Context(), c.within)
			defer cancel()
			err := r.Engine.(shard.CatchUpper).CatchUp(ctx, last.Txn)
			if c.fails != "" {
				if err == nil || !strings.Contains(err.Error(), c.fails) {
					t.Errorf("CatchUp: %v, want %q", err, c.fails)
				}
				return
			}
			must(t, err)
			if s := probe(t, r); s.Txn < last.Txn || !s.Synced || s.Lineage != last.Lineage {
				t.Errorf("%+v, want what %+v has", s, last)
			}
			if stand.Real() == "" && (r.Copies() > copies) != c.copies {
				t.Errorf("led %d times before and %d after; copied: want %v", copies, r.Copies(), c.copies)
			}
		})
	}
}

// Write probes leave no key behind, and no replica at rest seems to lag for them.
func TestProbesDoNotLag(t *testing.T) {
	all := startMembers(t, &stand.Cluster{}, 2)
	p, r := all[0], all[1]
	must(t, r.Follow(t.Context(), p.Addr))
	await(t, r, "in step", inStep)
	for range 20 {
		must(t, p.TryWrite(t.Context()))
	}
	primary := probe(t, p)
	await(t, r, "at the primary's place", func(s shard.State) bool { return s.Txn == primary.Txn })
	if primary.Keys != 0 {
		t.Errorf("%d keys are left", primary.Keys)
	}
}

// A replica whose thread has ended shows as stalled, and is led to its primary again.
func TestEndedThread(t *testing.T) {
	if stand.Real() != "" {
		t.Skip("a real one ends its thread when it likes")
	}
	all := startMembers(t, &stand.Cluster{}, 2)
	p, r := all[0], all[1]
	must(t, r.Follow(t.Context(), p.Addr))
	await(t, r, "in step", inStep)
	r.EndThread()
	must(t, p.set(t, "k"))
	s := await(t, r, "stalled", func(s shard.State) bool { return s.Link.Stalled })
	if s.Link.Up || s.Link.Address != p.Addr {
		t.Errorf("stalled: link %+v", s.Link)
	}
	must(t, r.Follow(t.Context(), p.Addr))
	await(t, r, "in step again", func(s shard.State) bool { return inStep(s) && !s.Link.Stalled })
}

// After a restart of its agent a replica of the right primary is left alone.
func TestFollowAfterRestart(t *testing.T) {
	all := startMembers(t, &stand.Cluster{}, 2)
	p, r := all[0], all[1]
	must(t, r.Follow(t.Context(), p.Addr))
	await(t, r, "in step", inStep)
	copies := r.Copies()
	again := engineOf(t, r.Node)
	if s := probe(t, again); s.Link.Detached() {
		t.Errorf("before it knows the others: link %+v, want one that is not detached", s.Link)
	}
	again.learn(t, all...)
	if s := probe(t, again); s.Link.Address != p.Addr || !inStep(s) {
		t.Errorf("%+v, link %+v", s, s.Link)
	}
	must(t, again.Follow(t.Context(), p.Addr))
	if r.Copies() != copies {
		t.Error("it was led to its primary again, which is a full copy")
	}
}

// The fence of a primary, by its own agent and by another one.
func TestFence(t *testing.T) {
	p := startMembers(t, &stand.Cluster{}, 1)[0]
	must(t, p.set(t, "k"))
	before := probe(t, p)
	for range 2 {
		must(t, p.SetFence(t.Context(), shard.Closed, 0))
		if s := probe(t, p); s.Role != shard.Primary || s.Fence != shard.Closed || s.Lineage != before.Lineage || s.Txn != before.Txn {
			t.Errorf("closed: %+v, was %+v", s, before)
		}
		if err := p.TryWrite(t.Context()); !errors.Is(err, shard.ErrNodeRefused) {
			t.Errorf("a write: %v", err)
		}
	}
	// Another engine of this process knows as much.
	second := p.engines.At(p.Addr)
	defer second.Close()
	if s := probe(t, second); s.Role != shard.Primary {
		t.Errorf("seen by another engine: %+v", s)
	}
	// After a restart of the agent it is a detached node with its own data.
	again := engineOf(t, p.Node)
	if s := probe(t, again); s.Role != shard.Replica || !s.Link.Detached() || !s.Synced || s.Lineage != before.Lineage {
		t.Errorf("after a restart: %+v, link %+v", s, s.Link)
	}
	must(t, p.SetFence(t.Context(), shard.Open, 0))
	must(t, p.SetFence(t.Context(), shard.Open, 0))
	must(t, p.TryWrite(t.Context()))
	if err := p.SetFence(t.Context(), shard.Armed, 1); !errors.Is(err, shard.ErrUnsupported) {
		t.Errorf("armed: %v", err)
	}
	must(t, p.Pause(t.Context(), 0))
}

// REPLICAOF is carried out, and its answer comes too late: the node shows as what it is all the same, with what it has. It was
// a replica once, which the same process had led elsewhere.
func TestLateAnswer(t *testing.T) {
	if stand.Real() != "" {
		t.Skip("it needs the stand-in")
	}
	open := func(ctx context.Context, r member) error { return r.SetFence(ctx, shard.Open, 0) }
	closeFence := func(ctx context.Context, r member) error { return r.SetFence(ctx, shard.Closed, 0) }
	pause := func(ctx context.Context, r member) error { return r.Pause(ctx, time.Second) }
	for name, c := range map[string]struct {
		act        func(ctx context.Context, r member) error
		lateOpen   bool
		seenBefore bool // it was probed before it carried the command out
		role       shard.Role
	}{
		"SetFence":            {closeFence, false, false, shard.Primary},
		"Pause":               {pause, false, false, shard.Primary},
		"SetFence, seen open": {closeFence, false, true, shard.Replica},
		"Pause, seen open":    {pause, false, true, shard.Replica},
		"open":                {open, true, false, shard.Primary},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			all := startMembers(t, &stand.Cluster{}, 2)
			p, r := all[0], all[1]
			must(t, r.Follow(t.Context(), p.Addr))
			await(t, r, "in step", inStep)
			must(t, r.Promote(t.Context()))
			var before shard.State
			if !c.lateOpen {
				must(t, open(t.Context(), r))
				must(t, r.set(t, "k"))
				before = probe(t, r)
			}
			late(t, r, c.act, func() {
				if c.seenBefore && probe(t, r).Fence != shard.Open {
					t.Error("it is shown as closed before it is")
				}
			})
			if c.lateOpen {
				before = probe(t, r)
			}
			must(t, r.SetFence(t.Context(), shard.Closed, 0))
			s := probe(t, r)
			if s.Role != c.role || s.Fence != shard.Closed || s.Lineage != before.Lineage || s.Txn < before.Txn || !s.Synced || s.Before != before.Before {
				t.Errorf("closed: %+v, link %+v, was %+v", s, s.Link, before)
			}
		})
	}
}

// late calls act, which fails before the node carries out the REPLICAOF in it, and returns once it has.
func late(t *testing.T, m member, act func(ctx context.Context, m member) error, meanwhile func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	goOn := make(chan struct{})
	m.Node.Before(func(args []string) {
		if args[0] == "REPLICAOF" {
			cancel()
			<-goOn
		}
	})
	if err := act(ctx, m); !errors.Is(err, context.Canceled) {
		t.Errorf("without an answer: %v", err)
	}
	meanwhile()
	done := m.Copies()
	m.Node.Before(nil)
	close(goOn)
	for deadline := time.Now().Add(ample); m.Copies() == done; <-time.After(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it is not carried out")
		}
	}
}

// What a node has is known although DBSIZE is old.
func TestKeys(t *testing.T) {
	p := startMembers(t, &stand.Cluster{}, 1)[0]
	if s := probe(t, p); s.Keys != 0 {
		t.Errorf("an empty node has %d keys", s.Keys)
	}
	must(t, p.set(t, "k"))
	if s := probe(t, p); s.Keys == 0 {
		t.Error("a node with a key counts as empty")
	}
}

// The write probe finds a key in the node's slots.
func TestOtherSlots(t *testing.T) {
	if stand.Real() != "" {
		t.Skip("a stand-in plays the other shard")
	}
	p := startMembers(t, &stand.Cluster{}, 1)[0]
	p.Foreign(func(key string) bool { return !strings.HasSuffix(key, ":77") })
	must(t, p.TryWrite(t.Context()))
	must(t, p.TryWrite(t.Context()))
	p.Foreign(func(string) bool { return true })
	if err := p.TryWrite(t.Context()); !errors.Is(err, shard.ErrNodeUnhealthy) {
		t.Errorf("none of its slots: %v", err)
	}
}

func TestAddresses(t *testing.T) {
	p := startMembers(t, &stand.Cluster{}, 1)[0]
	for _, address := range []string{"db1:6379", "[::1]:6379", "nowhere", "127.0.0.1:65000"} {
		if err := p.Follow(t.Context(), address); err == nil {
			t.Errorf("it follows %s", address)
		}
	}
	if _, err := sabledb.New(sabledb.Config{Replication: "db1:7379"}); err == nil {
		t.Error("a name is taken as replication address")
	}
}

// Each engine names the other's node as what it is, and one whose own failover is on is not touched.
func TestWrongProduct(t *testing.T) {
	if stand.Real() != "" {
		t.Skip("a stand-in plays them")
	}
	p := startMembers(t, &stand.Cluster{}, 1)[0]
	p.ManagedBy("127.0.0.1:9999")
	if _, err := p.Probe(t.Context()); !errors.Is(err, shard.ErrNodeAccess) || !strings.Contains(err.Error(), "management_database") {
		t.Errorf("with a cluster database: %v", err)
	}
	other, err := redis.New(redis.Config{Timeout: ample})
	must(t, err)
	defer other.(io.Closer).Close()
	n := (&stand.Cluster{}).Start(t)
	e := other.At(n.Addr)
	defer e.Close()
	if _, err := e.Probe(t.Context()); err == nil || !strings.Contains(err.Error(), "--engine sabledb") {
		t.Errorf("a SableDB behind the engine for Redis: %v", err)
	}
	n.InfoText("redis_version:7.2.4\r\nrole:master\r\n")
	if _, err := engineOf(t, n).Probe(t.Context()); !errors.Is(err, shard.ErrNodeAccess) || !strings.Contains(err.Error(), "--engine redis") {
		t.Errorf("a Redis behind the engine for SableDB: %v", err)
	}
	if _, err := os.Stat(filepath.Join(n.Folder, "changes.seq")); err == nil {
		t.Error("a primary has a place")
	}
}

// An answer of the node that was asked for before its fence was closed does not open it again in what is shown.
func TestProbeWhileClosing(t *testing.T) {
	if stand.Real() != "" {
		t.Skip("it needs the stand-in")
	}
	p := startMembers(t, &stand.Cluster{}, 1)[0]
	closed := false
	p.Before(func(args []string) {
		if args[0] == "DBSIZE" && !closed { // INFO has been answered
			closed = true
			must(t, p.SetFence(t.Context(), shard.Closed, 0))
		}
	})
	for range 2 {
		if s := probe(t, p); s.Role != shard.Primary || s.Fence != shard.Closed {
			t.Errorf("closed while it was asked: %s, fence %s", s.Role, s.Fence)
		}
	}
}
