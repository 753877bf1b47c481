package agent_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/shard"
	"github.com/understudy-ha/understudy/shard/agent"
	"github.com/understudy-ha/understudy/shard/shardtest"
)

// separateNetwork reaches other agents although their nodes do not reach each other.
type separateNetwork struct{ c *cluster }

func (p separateNetwork) RequestPromise(_ context.Context, address string, q shard.Promise, mac string) (string, error) {
	for _, h := range p.c.hosts {
		if "agent-"+h.name == address && h.agent != nil {
			return h.agent.GrantPromise(q, mac)
		}
	}
	return "", errors.New("connection refused")
}

// A primary whose replicas do not acknowledge refuses writes by itself: its agent does not ask others to leave it so.
func TestNoPromisesForOneThatRefusesWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c *cluster
		c = newCluster(t, 3, func(cfg *agent.Config) { cfg.Promisers = separateNetwork{c} }).up()
		a, b, d := c.hosts[0], c.hosts[1], c.hosts[2]
		c.until("the fence is armed", time.Minute, func() bool { r, _ := c.view().Node(a.id()); return r.Armed })
		a.line.Set(shardtest.Refused)
		c.world.Cut(a.address, b.address, true)
		c.world.Cut(a.address, d.address, true)
		took := c.until("another node accepts writes", 4*timeout, func() bool { return c.writes(b) || c.writes(d) })
		t.Log("after", took)
	})
}

// An operator's force takes a promise back: who forces says that the primary is dead.
func TestForceGoesBeforePromise(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, nil).up()
		a, b, d := c.hosts[0], c.hosts[1], c.hosts[2]
		row := c.view().Row
		p := shard.Promise{Shard: "s", From: a.id(), Epoch: row.PrimaryEpoch, For: time.Minute, Seq: 7}
		for _, h := range []*host{b, d} {
			p.To = h.id()
			if _, err := h.agent.GrantPromise(p, p.Sign(row.Secret, "ask")); err != nil {
				t.Fatal("no promise:", err)
			}
		}
		a.crash()
		a.node.Kill()
		desk := shard.Admin{Registry: c.store.Registry(), By: "ann"}
		if _, err := desk.RequestPlan(t.Context(), "s", shard.Request{Kind: shard.Failover, Force: true}, ""); err != nil {
			t.Fatal(err)
		}
		p.To, p.Seq = b.id(), 8
		c.until("the request is seen", timeout, func() bool { return b.agent.Status().View.Row.IsForced() })
		if _, err := b.agent.GrantPromise(p, p.Sign(row.Secret, "ask")); err == nil {
			t.Error("a promise was given although an operator asks to replace the primary")
		}
		c.until("another node accepts writes", 4*timeout, func() bool { return c.writes(b) || c.writes(d) })
	})
}

// A forced failover of a primary that died a moment ago waits for the end of its lease, however much longer that takes than
// an order.
func TestForceWaitsForTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, func(cfg *agent.Config) {
			cfg.Timing = lease.Timing{Interval: 4 * time.Second, Timeout: 30 * time.Second}
		}).up()
		a := c.hosts[0]
		a.crash()
		a.node.Kill()
		time.Sleep(3 * time.Second)
		desk := shard.Admin{Registry: c.store.Registry(), By: "ann"}
		id, err := desk.RequestPlan(t.Context(), "s", shard.Request{Kind: shard.Failover, Force: true}, c.hosts[1].id())
		if err != nil {
			t.Fatal(err)
		}
		if failed := c.outcome(id); failed != "" {
			t.Error(failed)
		}
		c.settled(c.hosts[1])
	})
}

// A promise that has ended is not waited out after a reboot, whose clock is another: the node of the agent that gave it follows
// its primary again at once.
func TestRebootAfterPromise(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, nil).up()
		a, b := c.hosts[0], c.hosts[1]
		for _, h := range c.hosts {
			h.line.Set(shardtest.Refused)
		}
		time.Sleep(2 * timeout)
		for _, h := range c.hosts {
			h.line.Set(shardtest.Well)
		}
		if c.settled(a); a.agent.Status().Stats.Promised == 0 {
			t.Fatal("nothing was promised")
		}
		time.Sleep(2 * timeout)
		b.crash()
		b.node.Kill()
		b.edit = func(cfg *agent.Config) { cfg.Boot = "another boot" }
		b.node.Start(false)
		b.start()
		took := c.until("it follows", 2*shard.MaxPromise, func() bool { l := b.node.State().Link; return l != nil && l.Up })
		if t.Log("after", took); took > 2*timeout {
			t.Errorf("it follows after %v", took)
		}
	})
}
