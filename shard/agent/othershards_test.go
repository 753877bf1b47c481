package agent_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/shard/agent"
)

// A node that is in a shard is not taken into another under another address, not even when both start together.
func TestOneNodeInTwoShards(t *testing.T) {
	for name, wait := range map[string]time.Duration{"later": time.Minute, "together": 0} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, 1, nil)
				a := c.hosts[0]
				other := &host{c: c, name: "o", address: a.address, dir: t.TempDir(), node: a.node, line: a.line, clock: a.clock,
					edit: func(cfg *agent.Config) { cfg.Shard, cfg.Private = "t", "localhost:6379" }}
				t.Cleanup(func() { other.crash() })
				if wait == 0 {
					other.start()
				}
				a.start()
				time.Sleep(wait)
				if wait != 0 {
					c.settled(a)
					other.start()
				}
				var loser, winner *host
				c.until("one of them leads", time.Minute, func() bool {
					loser, winner = other, a
					if other.agent.Status().Open {
						loser, winner = a, other
					}
					return winner.agent.Status().Open
				})
				if wait != 0 && winner != a {
					t.Error("the later one has it")
				}
				for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
					if !c.writes(a) {
						t.Fatalf("the agent of another shard closed it\n%s", c.describe())
					}
				}
				s := loser.agent.Status()
				if s.Open || s.Holding || s.View.Row.Rev != 0 || !strings.Contains(s.Trouble, "is the same node as that of ") || !strings.Contains(s.Trouble, "in shard") {
					t.Errorf("open %v, holding %v, row %+v, trouble %q", s.Open, s.Holding, s.View.Row, s.Trouble)
				}
			})
		})
	}
}

// A store that refuses at once is asked again after a pause.
func TestOtherShardsCannotBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1, nil)
		a := c.hosts[0]
		var asked atomic.Int64
		a.line.Intercept(func(call string) error {
			if call != "list" {
				return nil
			}
			asked.Add(1)
			time.Sleep(time.Millisecond)
			return lease.ErrUnavailable
		})
		a.start()
		time.Sleep(10 * time.Second)
		if n := asked.Load(); n < 3 || n > 40 {
			t.Errorf("asked %d times in 10 s", n)
		}
		a.line.Intercept(nil)
		c.until("it leads", time.Minute, func() bool { return a.agent.Status().Open })
	})
}
