package agent_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/understudy-ha/understudy/shard"
)

// Every agent keeps how far the primary's log reached: what a restart of its process cannot lose at once, and what one of
// its host cannot lose only after a while.
func TestMembersKnowThePrimarysLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, nil).up()
		p := c.hosts[0]
		known := func(part func(shard.PrimaryLog) shard.AppendLog) bool {
			v := c.view()
			for _, h := range c.hosts {
				r, ok := v.Node(h.id())
				if !ok || r.PrimaryLog.Node != p.id() || part(r.PrimaryLog).Lacks(p.node.State().AppendLog) {
					return false
				}
			}
			return true
		}
		written := func(l shard.PrimaryLog) shard.AppendLog { return l.Written }
		synced := func(l shard.PrimaryLog) shard.AppendLog { return l.Synced }
		c.until("the log is known", time.Minute, func() bool { return known(synced) })
		for range 10 {
			if !c.writes(p) {
				t.Fatal("the primary takes no writes")
			}
		}
		if known(written) {
			t.Fatal("what was written just now is known already")
		}
		c.until("what was written is known", time.Minute, func() bool { return known(written) })
		if known(synced) {
			t.Error("what was written just now counts as synced")
		}
		c.until("it is synced", time.Minute, func() bool { return known(synced) })

		// Another primary's log takes its place.
		p.crash()
		p.node.Kill()
		p, _ = c.next(p, time.Minute)
		c.until("the log of the next primary is known to those that live", time.Minute, func() bool {
			v := c.view()
			r, _ := v.Node(p.id())
			return r.PrimaryLog.Node == p.id()
		})
	})
}

// A primary that was restarted with less than it had, and stays closed for that, goes on with it if an operator says so: at
// once, and when nothing else would help any more.
func TestOperatorChoosesTheShorterLog(t *testing.T) {
	for why, after := range map[string]time.Duration{"have not reported yet": 8 * time.Second, "To go on now": 20 * time.Second, "its log is shorter": 2 * time.Minute} {
		t.Run(why, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, 3, nil).up()
				a := c.hosts[0]
				had := a.node.Snapshot()
				if !c.writes(a) {
					t.Fatal("the primary takes no writes")
				}
				time.Sleep(timeout) // its agent has seen that write
				for _, h := range c.hosts[1:] {
					h.crash()
					h.node.Kill()
				}
				a.node.Kill()
				time.Sleep(time.Second)
				a.node.StartFromLog(had)
				time.Sleep(after)
				if trouble := a.agent.Status().Trouble; c.writes(a) || !strings.Contains(trouble, why) {
					t.Fatalf("it is open, or for another reason closed: %q", trouble)
				}
				desk := shard.Admin{Registry: c.store.Registry(), By: "ann"}
				id, err := desk.RequestPlan(t.Context(), "s", shard.Request{Kind: shard.Failover, Force: true}, a.id())
				if err != nil {
					t.Fatal(err)
				}
				if failed := c.outcome(id); failed != "" {
					t.Fatal(failed)
				}
				c.steady(a, timeout)
				for _, h := range c.hosts[1:] {
					h.node.Start(false)
					h.start()
				}
				c.settled(a)
			})
		})
	}
}
