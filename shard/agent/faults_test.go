package agent_test

import (
	"context"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/understudy-ha/understudy/shard"
	"github.com/understudy-ha/understudy/shard/agent"
	"github.com/understudy-ha/understudy/shard/shardtest"
)

const timeout = 5 * time.Second // T of the agents

// next waits until another node than old accepts writes.
func (c *cluster) next(old *host, limit time.Duration) (*host, time.Duration) {
	c.t.Helper()
	var found *host
	took := c.until("another node accepts writes", limit, func() bool {
		for _, h := range c.hosts {
			if h != old && c.writes(h) {
				found = h
			}
		}
		return found != nil
	})
	return found, took
}

// steady checks for a while that the host's node accepts every write, and no other any.
func (c *cluster) steady(h *host, d time.Duration) {
	c.t.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if _, err := h.node.Write(); err != nil {
			c.t.Fatalf("%s refuses a write: %v\n%s", h.name, err, c.describe())
		}
		c.oneWriter(h)
	}
}

// The host of the primary is cut off: from the other nodes, and from the store.
func TestFailoverOnSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, nil).up()
		a := c.hosts[0]
		c.world.Cut(a.address, c.hosts[1].address, true)
		c.world.Cut(a.address, c.hosts[2].address, true)
		a.line.Set(shardtest.Swallow)
		began := time.Now()
		var closed time.Duration
		b, took := func() (*host, time.Duration) {
			var found *host
			took := c.until("another node accepts writes", 3*timeout, func() bool {
				if c.writes(a) {
					closed = time.Since(began)
				}
				for _, h := range c.hosts[1:] {
					if c.writes(h) {
						found = h
					}
				}
				return found != nil
			})
			return found, took
		}()
		t.Logf("the old one closed after %v, the new one opened after %v", closed, took)
		if closed >= took || took > timeout+500*time.Millisecond {
			t.Errorf("the old primary accepted until %v, the new one from %v", closed, took)
		}
		c.steady(b, 10*time.Second)
		for _, h := range c.hosts[1:] {
			c.world.Cut(a.address, h.address, false)
		}
		a.line.Set(shardtest.Well)
		c.settled(b)
		c.oneWriter(b)
	})
}

// Node and agent die together: connections are refused.
func TestFailoverOnDeathOfBoth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, nil).up()
		a := c.hosts[0]
		a.crash()
		a.node.Kill()
		b, took := c.next(a, 3*timeout)
		t.Log("took", took)
		if took > timeout+300*time.Millisecond {
			t.Errorf("the failover took %v", took)
		}
		c.settled(b)
		a.node.Start(false)
		if c.writes(a); a.agent != nil {
			t.Error("it has no agent")
		}
	})
}

func TestAgentCrashChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, nil).up()
		a := c.hosts[0]
		a.crash()
		c.steady(a, time.Minute)
		if f := c.hosts[1].agent.Status().Finding; f.Health != shard.Unattended {
			t.Errorf("the others find %+v", f)
		}
		a.start()
		c.steady(a, time.Minute)
		c.settled(a)
		if v := c.view(); v.Row.PrimaryEpoch != v.Row.Epoch || v.Row.Last != nil {
			t.Errorf("a plan was made: %+v", v.Row.Last)
		}
	})
}

func TestStoreDown(t *testing.T) {
	for name, fail := range map[string]shardtest.Failure{"refuses": shardtest.Refused, "does not answer": shardtest.Swallow} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, 3, nil).up()
				a := c.hosts[0]
				for range 2 {
					for _, h := range c.hosts {
						h.line.Set(fail)
					}
					c.steady(a, time.Minute)
					for _, h := range c.hosts {
						h.line.Set(shardtest.Well)
					}
					c.steady(a, 30*time.Second)
					c.settled(a)
				}
				if v := c.view(); v.Row.Last != nil {
					t.Errorf("a plan was made: %+v", v.Row.Last)
				}
			})
		})
	}
}

// Without the promise of everyone the primary closes while the store is down.
func TestStoreDownWithoutPromises(t *testing.T) {
	for name, deny := range map[string]func(c *cluster){
		"an agent is dead": func(c *cluster) { c.hosts[1].crash() },
		"a host is cut off": func(c *cluster) {
			c.world.Cut(c.hosts[0].address, c.hosts[1].address, true)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, 3, nil).up()
				a := c.hosts[0]
				deny(c)
				for _, h := range c.hosts {
					h.line.Set(shardtest.Refused)
				}
				took := c.until("the primary closes", timeout, func() bool { return !c.writes(a) })
				t.Log("closed after", took)
				for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
					for _, h := range c.hosts {
						if c.writes(h) {
							t.Fatalf("%s accepts writes\n%s", h.name, c.describe())
						}
					}
				}
				if got := a.agent.Status().Trouble; !strings.Contains(got, "promise") {
					t.Errorf("why it is closed: %q", got)
				}
				for _, h := range c.hosts {
					h.line.Set(shardtest.Well)
				}
				c.until("the primary opens again", 3*timeout, func() bool { return c.writes(a) })
				c.steady(a, 10*time.Second)
				if got := a.agent.Status().Trouble; strings.Contains(got, "promise") {
					t.Errorf("after that: %q", got)
				}
			})
		})
	}
}

// The primary's agent closes it when it has lost the store, and dies before it can say so. The others hear
// from the node as before, and have to find out that it takes no writes.
func TestClosedByAnAgentThatDied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, func(cfg *agent.Config) { cfg.Promisers = nil }).up()
		a := c.hosts[0]
		id := a.id()
		a.line.Set(shardtest.Refused)
		c.until("the primary closes", timeout, func() bool { return !c.writes(a) })
		a.crash()
		if r, _ := c.view().Node(id); r.Fence == shard.Closed {
			t.Fatal("its agent has said so")
		}
		b, took := c.next(a, 4*timeout)
		t.Logf("another is open after %v", took)
		c.steady(b, 10*time.Second)
		a.line.Set(shardtest.Well)
		a.start()
		c.settled(b)
		c.oneWriter(b)
	})
}

// The store comes and goes; nobody promises. The fence must not flutter.
func TestStoreFlutters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 2, func(cfg *agent.Config) { cfg.Promisers = nil }).up()
		a := c.hosts[0]
		opened := func() int64 { return a.agent.Status().Stats.Opened + c.hosts[1].agent.Status().Stats.Opened }
		began := opened()
		for range 30 {
			for _, h := range c.hosts {
				h.line.Set(shardtest.Refused)
			}
			time.Sleep(3500 * time.Millisecond)
			for _, h := range c.hosts {
				h.line.Set(shardtest.Well)
			}
			time.Sleep(400 * time.Millisecond)
		}
		if n := opened() - began; n > 4 {
			t.Errorf("the fence was opened %d times in two minutes", n)
		}
		c.settles("the shard has a primary")
	})
}

// The primary hangs, and its agent kills it before it gives the lease away.
func TestHungNodeIsKilled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, nil).up()
		a := c.hosts[0]
		a.node.Hang()
		var before int
		b, took := c.next(a, 3*timeout)
		t.Log("took", took)
		if took > timeout+500*time.Millisecond {
			t.Errorf("the failover took %v", took)
		}
		if a.node.Running() {
			t.Error("the hung node still runs")
		}
		before = len(c.world.Accepted())
		a.node.Continue()
		if n := len(c.world.Accepted()); n != before {
			t.Errorf("%d writes were accepted when it went on", n-before)
		}
		c.settled(b)
		a.node.Start(false)
		c.settled(b)
		c.oneWriter(b)
	})
}

// The store and the node's registry hang: the fence is closed by the end of trust all the same.
func TestEndOfTrustCloses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1, func(cfg *agent.Config) { cfg.Promisers = nil }).up()
		a := c.hosts[0]
		b := newCluster(t, 2, func(cfg *agent.Config) { cfg.Promisers = nil }).up()
		for _, h := range b.hosts {
			h.line.Set(shardtest.Swallow)
		}
		took := b.until("the fence is closed", timeout, func() bool { return !b.writes(b.hosts[0]) })
		if took > timeout-time.Second {
			t.Errorf("it closed after %v", took)
		}
		// A shard of one node has nobody to ask.
		a.line.Set(shardtest.Swallow)
		c.steady(a, time.Minute)
		a.line.Set(shardtest.Well)
		c.steady(a, time.Minute)
	})
}

// A primary that comes back empty is not the primary any more.
func TestRestartedEmpty(t *testing.T) {
	for name, empty := range map[string]bool{"empty": true, "with its data": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, 3, nil).up()
				a := c.hosts[0]
				last, _ := a.node.Write()
				a.node.Kill()
				time.Sleep(5 * time.Millisecond)
				a.node.Start(empty)
				b, took := c.next(a, time.Minute)
				t.Log("took", took)
				c.settled(b)
				c.oneWriter(b)
				if !b.node.Has(last) {
					t.Error("the last acknowledged write is lost")
				}
			})
		})
	}
}

func TestRestartAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1, nil).up()
		a := c.hosts[0]
		a.node.Kill()
		time.Sleep(10 * time.Second)
		a.node.Start(false)
		c.settled(a)
		a.node.Kill()
		a.node.Start(true)
		time.Sleep(time.Minute)
		if c.writes(a) {
			t.Error("a node that came back empty accepts writes")
		}
	})
}

// Wrong registrations: a clear trouble, and nothing is done with the node.
func TestMistakenIdentity(t *testing.T) {
	t.Run("node in two shards", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t, 2, nil).up()
			x := c.hosts[1]
			c.steady(c.hosts[0], time.Second)
			other := &host{c: c, name: "x", address: x.address, dir: t.TempDir(), node: x.node, line: c.hosts[0].line, clock: x.clock,
				edit: func(cfg *agent.Config) { cfg.Shard = "another" }}
			c.hosts = append(c.hosts, other)
			other.start()
			time.Sleep(10 * time.Second)
			if st := other.agent.Status(); st.Trouble == "" || st.Registered {
				t.Errorf("no trouble: %+v", st)
			}
			c.hosts = c.hosts[:2]
			c.steady(c.hosts[0], 5*time.Second)
			c.settled(c.hosts[0])
			other.crash()
		})
	})
	t.Run("the address is not the node's", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t, 2, nil).up()
			a := c.hosts[0]
			other := &host{c: c, name: "x", address: a.address, dir: t.TempDir(), node: a.node, line: c.hosts[1].line, clock: c.hosts[1].clock,
				edit: func(cfg *agent.Config) { cfg.Private = "10.0.0.9:6379" }}
			c.hosts = append(c.hosts, other)
			other.start()
			c.hosts = c.hosts[:2]
			c.steady(a, 30*time.Second)
			if st := other.agent.Status(); st.Trouble == "" {
				t.Errorf("no trouble: %+v", st)
			}
			other.crash()
		})
	})
}

func TestStopping(t *testing.T) {
	t.Run("not supervised", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t, 3, nil).up()
			a := c.hosts[0]
			a.end(context.Canceled)
			c.steady(a, 30*time.Second)
			a.start()
			c.steady(a, 30*time.Second)
			c.settled(a)
		})
	})
	var c *cluster
	for name, edit := range map[string]func(*agent.Config){
		"supervised":                func(cfg *agent.Config) { cfg.Process = c.world.At(cfg.Node).Process() },
		"the node stops with agent": func(cfg *agent.Config) { cfg.HandOver = true },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c = newCluster(t, 3, edit)
				c.up()
				a := c.hosts[0]
				a.end(context.Canceled)
				b, took := c.next(a, time.Second)
				t.Log("took", took)
				for _, w := range c.world.Accepted() {
					if w.Node == a.address && !b.node.Has(w.ID) {
						t.Errorf("write %d is lost", w.ID)
					}
				}
				c.settled(b)
				c.oneWriter(b)
			})
		})
	}
}

// An agent that could not close its node says so to the end.
func TestStoppingWithoutClosing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c *cluster
		c = newCluster(t, 1, func(cfg *agent.Config) { cfg.Process = c.world.At(cfg.Node).Process() })
		a := c.up().hosts[0]
		for _, hangs := range []bool{false, true} {
			if hangs {
				a.start()
				c.settled(a)
				a.node.Hang()
			}
			stopped := a.agent
			a.end(context.Canceled)
			if stopped.Status().Open != hangs {
				t.Errorf("hangs %t: open %t", hangs, stopped.Status().Open)
			}
		}
	})
}

// Membership, say, changes the row while a stopping agent asks that another take over: it asks again.
func TestStoppingWhileTheRowChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, func(cfg *agent.Config) { cfg.HandOver = true }).up()
		a := c.hosts[0]
		var changed atomic.Bool
		a.line.Intercept(func(call string) error {
			if call == "decide" && !changed.Swap(true) {
				return shard.ErrChanged
			}
			return nil
		})
		a.end(context.Canceled)
		b, took := c.next(a, time.Second)
		t.Log("took", took)
		if last := c.view().Row.Last; !changed.Load() || last == nil || last.Kind != shard.Switchover {
			t.Errorf("changed: %v; the last plan: %+v", changed.Load(), last)
		}
		c.settled(b)
	})
}

// What the tests of this package look at would show a primary that is not closed.
func TestBrokenFenceIsSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, nil).up()
		a := c.hosts[0]
		c.world.Lying = true
		for _, h := range c.hosts[1:] {
			c.world.Cut(a.address, h.address, true)
		}
		a.line.Set(shardtest.Swallow)
		b, _ := c.next(a, 3*timeout)
		if !c.writes(a) || !c.writes(b) {
			t.Error("two nodes should accept writes")
		}
		last, _ := a.node.Write()
		for _, h := range c.hosts[1:] {
			c.world.Cut(a.address, h.address, false)
		}
		a.line.Set(shardtest.Well)
		c.until("the old one follows", time.Minute, func() bool { return a.node.State().Role == shard.Replica })
		if b.node.Has(last) {
			t.Error("the write under the old epoch should be lost")
		}
	})
}

// A primary that is asked to stop while the others do not follow it yet, after a failover, hands over once they do.
func TestStoppingWhileAPlanEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, func(cfg *agent.Config) { cfg.HandOver = true }).up()
		a := c.hosts[0]
		a.node.Kill()
		b, _ := c.next(a, time.Minute)
		a.node.Start(true)
		c.until("the plan follows", time.Minute, func() bool { row := c.view().Row; return row.Plan != nil && row.Primary == b.id() })
		b.end(context.Canceled)
		d, took := c.next(b, time.Second)
		t.Log("took", took)
		c.settled(d)
	})
}

// The agents of a shard are started again while the store is down. One that has waited for the store for longer than T sees old records first: it
// gives the others the time to report before it takes their silence for their end.
func TestStartedWhileTheStoreIsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, nil).up()
		primary, ahead, behind := c.hosts[0], c.hosts[1], c.hosts[2]
		behind.end(nil)
		behind.node.Lag(time.Hour)
		c.steady(primary, time.Minute)
		ahead.end(nil)
		primary.end(nil)
		primary.node.Kill()
		behind.start()
		behind.line.Set(shardtest.Refused)
		time.Sleep(time.Minute)
		behind.line.Set(shardtest.Well)
		time.Sleep(300 * time.Millisecond)
		ahead.start()
		if h := c.settles("the shard has a primary"); h != ahead {
			t.Errorf("%s is the primary, and lacks what %s has\n%s", h.name, ahead.name, c.describe())
		}
	})
}

// An agent that cannot write its folder tries again after a pause, and holds up no failover.
func TestFolderCannotBeWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, nil).up()
		if err := os.RemoveAll(c.hosts[1].dir); err != nil {
			t.Fatal(err)
		}
		c.hosts[0].node.Kill()
		c.until("another leads", time.Minute, func() bool {
			v := c.view()
			return v.Row.Primary != c.hosts[0].id() && v.Row.Settled() && c.writes(c.host(v.Row.Primary))
		})
		time.Sleep(time.Minute)
		if err := os.MkdirAll(c.hosts[1].dir, 0o700); err != nil {
			t.Fatal(err)
		}
		c.hosts[0].node.Start(false)
		c.settles("all is settled")
	})
}
