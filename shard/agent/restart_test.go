package agent_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/understudy-ha/understudy/internal/testkit/syncbuffer"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/shard"
	"github.com/understudy-ha/understudy/shard/agent"
	"github.com/understudy-ha/understudy/shard/shardtest"
)

// A primary that something else starts again at once, open, is closed within a few probes: a replica has been promoted.
func TestRestartedBySomethingElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, nil).up()
		a := c.hosts[0]
		for round := range 10 {
			old := a
			if r := c.view().Row; r.Primary != "" {
				for _, h := range c.hosts {
					if h.id() == r.Primary {
						old = h
					}
				}
			}
			old.node.Kill()
			time.Sleep(time.Duration(round+1) * 10 * time.Millisecond)
			old.node.Start(false)
			began := time.Now()
			c.until("it is closed", timeout, func() bool { return !c.writes(old) })
			if took := time.Since(began); took > 60*time.Millisecond {
				t.Errorf("round %d: it was open for %v", round, took)
			}
			c.until("the shard has a primary, and its replicas follow", time.Minute, func() bool {
				v, well := c.view(), 0
				for _, r := range v.Nodes {
					if r.Role == shard.Replica && r.Link != nil && r.Link.Up {
						well++
					}
				}
				return v.Row.Settled() && v.Row.Plan == nil && well == 2
			})
		}
	})
}

// … and its record says so long before the next interval: the plan that replaces it waits for that.
func TestRestartedPrimaryIsReportedClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, func(cfg *agent.Config) {
			cfg.Timing = lease.Timing{Interval: 4 * time.Second, Timeout: 16 * time.Second}
		}).up()
		a := c.hosts[0]
		for _, h := range c.hosts[1:] {
			h.line.Intercept(func(string) error { time.Sleep(time.Second); return nil })
		}
		a.node.Kill()
		time.Sleep(50 * time.Millisecond)
		a.node.Start(false)
		took := c.until("its record says that it is closed", time.Minute, func() bool {
			r, _ := c.view().Node(a.id())
			return r.Run == a.node.State().Run && r.Fence == shard.Closed
		})
		if took > time.Second {
			t.Errorf("after %v", took)
		}
	})
}

// A node that is not safe to keep is left alone, as long as it is not; what is only doubtful about it is reported.
func TestInspectedNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refuse, warning := true, "it starts open"
		c := newCluster(t, 1, func(cfg *agent.Config) {
			cfg.Inspect = func(shard.State) (string, error) {
				if refuse {
					return "", fmt.Errorf("%w: it is another", shard.ErrNotManaged)
				}
				return warning, nil
			}
		})
		a := c.hosts[0]
		a.start()
		time.Sleep(time.Minute)
		if s := a.agent.Status(); s.Condition != shard.Silent || s.Trouble != shard.ErrNotManaged.Error()+": it is another" || s.View.Row.Rev != 0 {
			t.Errorf("it was managed: %+v", s)
		}
		if r, _ := c.view().Node(a.id()); r.Trouble == "" || !c.writes(a) {
			t.Errorf("it was changed, or its record says nothing: %+v", r)
		}
		refuse = false
		c.until("it leads", time.Minute, func() bool { return a.agent.Status().Open })
		if s := a.agent.Status(); s.Trouble != warning {
			t.Errorf("trouble %q", s.Trouble)
		}
		if r, _ := c.view().Node(a.id()); r.Trouble != warning {
			t.Errorf("reported trouble %q", r.Trouble)
		}
	})
}

// What keeps a node from answering is named.
func TestReasonOfSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1, nil).up()
		a := c.hosts[0]
		a.node.Hang()
		c.until("the reason is reported", time.Minute, func() bool {
			return a.agent.Status().Trouble == fmt.Sprintf("node %s does not answer in time", a.address)
		})
		stranger := newCluster(t, 1, nil)
		b := stranger.hosts[0]
		b.node.Hang()
		b.start()
		stranger.until("the reason is another where it never answered", time.Minute, func() bool {
			return strings.HasPrefix(b.agent.Status().Trouble, "node "+b.address+" has never answered in time")
		})
	})
}

// A primary hangs when its agent has just been started again, and has not got the lease yet: it is killed before
// another is promoted.
func TestHangsBeforeItsNewAgentLeads(t *testing.T) {
	for _, c := range []struct {
		away, after time.Duration
		cut         bool // from the store: it is about to close the node for that reason
	}{
		{away: 100 * time.Millisecond, after: 4 * time.Second}, {away: 100 * time.Millisecond, after: 4800 * time.Millisecond}, // still reported by the one before
		{away: 11 * time.Second, after: 200 * time.Millisecond}, {away: 11 * time.Second, after: 600 * time.Millisecond},
		{away: 11 * time.Second, after: 2 * time.Second}, {away: 11 * time.Second, after: 4 * time.Second},
		{away: 11 * time.Second, after: 3800 * time.Millisecond, cut: true},
	} {
		t.Run(fmt.Sprintf("away for %v, hung after %v, cut off %t", c.away, c.after, c.cut), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newCluster(t, 3, nil).up()
				a := s.hosts[0]
				time.Sleep(10 * time.Second)
				a.crash()
				time.Sleep(c.away)
				a.start()
				time.Sleep(200 * time.Millisecond)
				if c.cut {
					a.line.Set(shardtest.Swallow)
				}
				time.Sleep(c.after - 200*time.Millisecond)
				a.node.Hang()
				if c.cut {
					time.Sleep(700 * time.Millisecond)
					a.line.Set(shardtest.Well)
				}
				b, took := s.next(a, 4*timeout)
				t.Log("took", took)
				if a.node.Running() {
					t.Error("it hangs, and was not killed")
				}
				a.node.Start(false)
				s.settled(b)
				s.oneWriter(b)
			})
		})
	}
}

// TestOpenWithoutALease: an agent that was started beside an open primary, and has no store, closes it, and says so once.
func TestOpenWithoutALease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var logs syncbuffer.Buffer
		c := newCluster(t, 1, func(cfg *agent.Config) { cfg.Logger = slog.New(slog.NewTextHandler(&logs, nil)) }).up()
		a := c.hosts[0]
		a.crash()
		a.start()
		time.Sleep(time.Second)
		a.line.Set(shardtest.Refused)
		c.until("the primary closes", 3*timeout, func() bool { return !c.writes(a) })
		time.Sleep(timeout)
		if n := strings.Count(logs.String(), "open without a lease; closing its fence"); n != 1 {
			t.Errorf("it says %d times that it closes the fence:\n%s", n, logs.String())
		}
	})
}

// restartOnce restarts a node, empty, when it is about to be promoted for the first time.
type restartOnce struct {
	node func(address string) *shardtest.Node
	once sync.Once
}

func (h *restartOnce) Before(_ context.Context, call shard.HookCall) error {
	if node := h.node(call.Node); call.Event == shard.OnPromote && node != nil {
		h.once.Do(func() { node.Kill(); node.Start(true) })
	}
	return nil
}

func (*restartOnce) After(context.Context, shard.HookCall) {}

// A node that has lost its data between the choice and its promotion is not promoted, whatever it was chosen for: the others
// would copy what is left.
func TestChosenNodeLosesItsData(t *testing.T) {
	for name, c := range map[string]struct {
		request shard.Request
		nodes   int
		to      int  // the host that the request names; -1 is none
		lags    bool // the second replica never catches up
		loses   int  // the host that restarts
		alone   bool // as a replica of nobody
		late    bool // while the lease is waited for, after the promotion
	}{
		"a switchover goes back":              {shard.Request{Kind: shard.Switchover}, 3, 1, true, 0, true, false},
		"a switchover goes back to a primary": {shard.Request{Kind: shard.Switchover}, 3, 1, true, 0, false, false},
		"a switchover":                        {shard.Request{Kind: shard.Switchover}, 3, 1, false, 1, true, false},
		"a forced failover to any node":       {shard.Request{Kind: shard.Failover, Force: true}, 2, -1, false, 1, true, false},
		"… which starts as a primary":         {shard.Request{Kind: shard.Failover, Force: true}, 2, -1, false, 1, false, false},
		"… after it was promoted":             {shard.Request{Kind: shard.Failover, Force: true}, 2, -1, false, 1, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var all *cluster
				hook := &restartOnce{node: func(address string) *shardtest.Node {
					if h := all.hosts[c.loses]; h.address == address && !c.late {
						return h.node
					}
					return nil
				}}
				all = newCluster(t, c.nodes, func(cfg *agent.Config) {
					cfg.Hooks = hook
					cfg.Local, cfg.KillHung = func(string) bool { return false }, false // its agent does not see the process end
				})
				for _, h := range all.hosts {
					if h.node.Fenced(); c.alone {
						h.node.Alone()
					}
				}
				all.up()
				a := all.hosts[0]
				last, err := a.node.Write()
				if err != nil {
					t.Fatal(err, all.describe())
				}
				to := ""
				if c.to >= 0 {
					to = all.hosts[c.to].id()
				}
				if c.lags {
					all.hosts[1].node.Lag(time.Hour)
					all.steady(a, 2*time.Second)
				}
				if c.late {
					lost := all.hosts[c.loses]
					lost.line.Intercept(func(call string) error {
						if call == "acquire" {
							hook.once.Do(func() { lost.node.Kill(); lost.node.Start(true) })
						}
						return nil
					})
				}
				desk := shard.Admin{Registry: all.store.Registry(), By: "test"}
				id, err := desk.RequestPlan(t.Context(), "s", c.request, to)
				if err != nil {
					t.Fatal(err)
				}
				all.outcome(id)
				all.hosts[1].node.Lag(0)
				p := all.settles("the shard has a primary")
				all.oneWriter(p)
				if !p.node.Has(last) {
					t.Errorf("what was acknowledged is lost: %s", all.describe())
				}
			})
		})
	}
}
