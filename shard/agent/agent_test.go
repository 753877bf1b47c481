package agent_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/understudy-ha/understudy/shard"
	"github.com/understudy-ha/understudy/shard/agent"
)

func TestFoundAndJoin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, nil).up()
		c.oneWriter(c.hosts[0])
		time.Sleep(time.Minute)
		c.oneWriter(c.hosts[0])
		if v := c.view(); v.Row.Epoch == 0 || v.Row.Plan != nil || len(v.Row.Members) != 3 {
			t.Errorf("after a minute: %s", c.describe())
		}
	})
}

// A node that follows a server outside the shard is left alone, and says why no shard comes of it.
func TestFollowsANodeOutsideTheShard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 2, nil)
		stranger := c.world.Add("10.9.9.9:6379")
		if _, err := stranger.Write(); err != nil {
			t.Fatal(err)
		}
		a := c.hosts[0]
		if err := c.world.Engines(a.address).At(a.address).Follow(t.Context(), "10.9.9.9:6379"); err != nil {
			t.Fatal(err)
		}
		c.until("it has copied", time.Minute, func() bool { return a.node.State().Synced })
		a.start()
		c.until("it says why", 10*time.Second, func() bool {
			r, _ := c.view().Node(a.id())
			return strings.Contains(r.Trouble, "this node is a replica")
		})
		c.hosts[1].start() // an empty one, which founds no shard beside it
		time.Sleep(10 * time.Second)
		if link := a.node.State().Link; link == nil || link.Address != "10.9.9.9:6379" || c.view().Row.Rev != 0 {
			t.Errorf("it was not left alone:\n%s", c.describe())
		}
	})
}

// What the record says of a primary that nothing ends when it hangs, its agent's status says, too.
func TestUnwatchedPrimary(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1, func(cfg *agent.Config) {
			cfg.Adopt = func(int) (shard.Process, error) { return nil, errors.New("not permitted") }
		})
		c.world.FenceDelay = 0
		a := c.up().hosts[0]
		time.Sleep(timeout)
		r, _ := c.view().Node(a.id())
		if s := a.agent.Status(); !strings.Contains(r.Trouble, "if it hangs, it stays so: not permitted") || s.Trouble != r.Trouble {
			t.Errorf("the record says %q, the status %q", r.Trouble, s.Trouble)
		}
	})
}

func TestFailoverOnDeath(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, nil).up()
		a := c.hosts[0]
		last, err := a.node.Write()
		if err != nil {
			t.Fatal(err)
		}
		a.node.Kill()
		took := c.until("a replica accepts writes", 5*time.Second, func() bool { return c.writes(c.hosts[1]) || c.writes(c.hosts[2]) })
		t.Log("took", took)
		if took > 150*time.Millisecond {
			t.Errorf("the failover took %v", took)
		}
		next := c.hosts[1]
		if !c.writes(next) {
			next = c.hosts[2]
		}
		if !next.node.Has(last) {
			t.Error("an acknowledged write is lost, though nothing lagged")
		}
		c.settled(next)
		a.node.Start(false)
		c.settled(next)
		c.oneWriter(next)
	})
}

func TestSwitchover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, nil).up()
		desk := shard.Admin{Registry: c.store.Registry(), By: "test"}
		if _, err := desk.RequestPlan(t.Context(), "s", shard.Request{Kind: shard.Switchover}, c.hosts[2].id()); err != nil {
			t.Fatal(err)
		}
		took := c.until("the replica accepts writes", 5*time.Second, func() bool { return c.writes(c.hosts[2]) })
		t.Log("took", took)
		c.settled(c.hosts[2])
		c.oneWriter(c.hosts[2])
		for _, w := range c.world.Accepted() {
			if !c.hosts[2].node.Has(w.ID) {
				t.Errorf("write %d of %s is lost", w.ID, w.Node)
			}
		}
		for _, h := range c.hosts[:2] {
			if h.node.Copies() > 1 {
				t.Errorf("%s made %d full copies", h.name, h.node.Copies())
			}
		}
	})
}

// countedReports counts the reports of each node, together with those of other agents.
type countedReports struct {
	shard.Registry
	*reportCounts
}

type reportCounts struct {
	mu sync.Mutex
	n  map[string]int
}

func (c countedReports) Report(ctx context.Context, r shard.Record, urgent bool) (shard.View, error) {
	c.mu.Lock()
	c.n[r.ID]++
	c.mu.Unlock()
	return c.Registry.Report(ctx, r, urgent)
}

// readAndReset returns the counts, and begins anew.
func (c *reportCounts) readAndReset() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.n
	c.n = map[string]int{}
	return n
}

// deafRegistry has no notifications, as behind a pooler.
type deafRegistry struct {
	shard.Registry
	asked *atomic.Int64 // how often Watch was called
}

func (d deafRegistry) Watch(context.Context, string, func(string)) error {
	d.asked.Add(1)
	return errors.ErrUnsupported
}

// A store that has no notifications is asked again: seldom, but not never.
func TestWatchIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int64
		newCluster(t, 1, func(cfg *agent.Config) { cfg.Registry = deafRegistry{cfg.Registry, &asked} }).up()
		time.Sleep(10 * time.Minute)
		if n := asked.Load(); n < 8 || n > 11 {
			t.Errorf("asked %d times in 10 minutes, want about once a minute", n)
		}
	})
}

// Reports that say nothing new are written every second interval; what is new is written at once.
func TestQuietReports(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		counts := &reportCounts{n: map[string]int{}}
		c := newCluster(t, 3, func(cfg *agent.Config) { cfg.Registry = countedReports{cfg.Registry, counts} }).up()
		time.Sleep(5 * timeout)
		counts.readAndReset()
		time.Sleep(20 * time.Second)
		counted := counts.readAndReset()
		if len(counted) != 3 {
			t.Errorf("%d agents reported", len(counted))
		}
		for id, n := range counted {
			if n < 9 || n > 12 {
				t.Errorf("%.8s reported %d times in 20 intervals", id, n)
			}
		}
		c.hosts[1].node.Hang()
		began := time.Now()
		c.until("it is reported", timeout, func() bool {
			r, _ := c.view().Node(c.hosts[1].id())
			return r.Condition == shard.Silent
		})
		if took := time.Since(began); took > 2500*time.Millisecond { // the next probe, and its deadline
			t.Errorf("it was reported after %v", took)
		}
	})
}
