package shard_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/understudy-ha/understudy/shard"
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

func TestFailoverOnDeath(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, nil).up()
		a, b := c.hosts[0], c.hosts[1]
		_ = b
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
		desk := shard.Desk{Registry: c.store.Registry(), By: "test"}
		if _, err := desk.Ask(t.Context(), "s", shard.Request{Kind: shard.Switchover}, c.hosts[2].id()); err != nil {
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
