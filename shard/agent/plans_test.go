package agent_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/lease/leasetest"
	"github.com/understudy-ha/understudy/shard"
	"github.com/understudy-ha/understudy/shard/agent"
	"github.com/understudy-ha/understudy/shard/shardtest"
)

// slow makes every call to the store take a while, so that phases can be told apart.
func (c *cluster) slow(d time.Duration) {
	for _, h := range c.hosts {
		h.line.Intercept(func(string) error { time.Sleep(d); return nil })
	}
}

func (c *cluster) host(id string) *host {
	for _, h := range c.hosts {
		if h.id() == id {
			return h
		}
	}
	return nil
}

// allHave checks that the host's node has all acknowledged writes.
func (c *cluster) allHave(h *host) {
	c.t.Helper()
	lost := 0
	for _, w := range c.world.Accepted() {
		if !h.node.Has(w.ID) {
			lost++
		}
	}
	if lost > 0 {
		c.t.Errorf("%d acknowledged writes are lost\n%s", lost, c.describe())
	}
}

// The orchestrator's agent dies in each phase, and the plan is brought to an end without it.
func TestOrchestratorDies(t *testing.T) {
	for _, kind := range []shard.Kind{shard.Failover, shard.Switchover} {
		phases := []shard.Phase{shard.Detaching, shard.Promoting, shard.Following}
		if kind == shard.Switchover {
			phases = []shard.Phase{shard.Pausing, shard.Catching, shard.Promoting, shard.Following}
		}
		for _, phase := range phases {
			for _, both := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/%s/node too %t", kind, phase, both), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) { orchestratorDies(t, kind, phase, both) })
				})
			}
		}
	}
}

func orchestratorDies(t *testing.T, kind shard.Kind, phase shard.Phase, both bool) {
	c := newCluster(t, 4, nil).up()
	a := c.hosts[0]
	c.slow(5 * time.Millisecond)
	if kind == shard.Failover {
		a.node.Kill()
	} else {
		desk := shard.Admin{Registry: c.store.Registry(), By: "test"}
		if _, err := desk.RequestPlan(t.Context(), "s", shard.Request{Kind: kind}, c.hosts[3].id()); err != nil {
			t.Fatal(err)
		}
	}
	var dead *host
	c.until("the phase "+string(phase), 10*time.Second, func() bool {
		p := c.view().Row.Plan
		if p == nil || p.Phase != phase {
			return false
		}
		dead = c.host(p.ByNode)
		return true
	})
	dead.crash()
	if both {
		dead.node.Kill()
	}
	c.until("the plan ends, and one node accepts writes", 2*time.Minute, func() bool {
		v := c.view()
		p := c.host(v.Row.Primary)
		if p == nil && dead != nil && v.Lease.Holder.Address == "agent-"+dead.name {
			p = dead
		}
		return v.Row.Plan == nil && v.Row.Request == nil && p != nil && c.writes(p)
	})
	for _, h := range c.hosts {
		h.node.Start(false)
		if h.agent == nil {
			h.start()
		}
	}
	last := c.settles("all is settled")
	c.oneWriter(last)
	if !both {
		c.allHave(last)
	}
}

// A promotion whose plan is replaced on the way is never opened.
func TestPromotionOfReplacedPlan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, nil).up()
		a := c.hosts[0]
		var once sync.Once
		var old atomic.Pointer[shard.Plan]
		hold := make(chan struct{})
		for _, h := range c.hosts[1:] {
			h.line.Intercept(func(call string) error {
				if p := c.view().Row.Plan; call == "acquire" && p != nil && p.Phase == shard.Promoting {
					once.Do(func() { old.Store(p); <-hold })
				}
				return nil
			})
		}
		a.node.Kill()
		c.until("a promotion is on its way", 10*time.Second, func() bool { return old.Load() != nil })
		c.until("the plan is replaced", time.Minute, func() bool {
			v := c.view()
			return v.Row.Epoch > old.Load().Epoch
		})
		close(hold)
		b, _ := c.next(a, time.Minute)
		c.settled(b)
		c.oneWriter(b)
		if v := c.view(); v.Row.PrimaryEpoch <= old.Load().Epoch {
			t.Errorf("the node of epoch %d was opened: %s", old.Load().Epoch, c.describe())
		}
		c.allHave(b)
	})
}

// A replica that has more, and whose answer comes after the choice but before the chosen one is opened,
// is not passed over.
func TestLateCandidate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, func(cfg *agent.Config) { cfg.MinReplicas = 0 }).up()
		a, b, late := c.hosts[0], c.hosts[1], c.hosts[2]
		b.node.Lag(time.Hour)
		for range 10 {
			if !c.writes(a) {
				t.Fatal(c.describe())
			}
		}
		behind := func() (answered bool) {
			v := c.view()
			if p := v.Row.Plan; p != nil {
				r, _ := v.Node(late.id())
				_, answered = r.ResultOf(p.Epoch, shard.OrderDetach)
			}
			return answered
		}
		late.line.Intercept(func(call string) error {
			if p := c.view().Row.Plan; call == "report" && p != nil && p.Phase == shard.Detaching && len(p.Tried) == 0 {
				return lease.ErrUnavailable
			}
			return nil
		})
		chosen := make(chan struct{})
		var once sync.Once
		b.line.Intercept(func(call string) error {
			if p := c.view().Row.Plan; call == "acquire" && p != nil && p.To == b.id() && p.Phase == shard.Promoting {
				once.Do(func() { close(chosen) })
				for !behind() {
					time.Sleep(time.Millisecond)
				}
			}
			return nil
		})
		a.node.Kill()
		<-chosen
		c.until("the other is the primary", time.Minute, func() bool { return c.view().Row.Primary == late.id() })
		c.settled(late)
		c.allHave(late)
	})
}

// A switchover whose replica cannot catch up goes back, and nothing is lost.
func TestSwitchoverReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, nil).up()
		a, b := c.hosts[0], c.hosts[1]
		b.node.Lag(time.Hour)
		c.steady(a, 2*time.Second)
		desk := shard.Admin{Registry: c.store.Registry(), By: "test"}
		id, err := desk.RequestPlan(t.Context(), "s", shard.Request{Kind: shard.Switchover}, b.id())
		if err != nil {
			t.Fatal(err)
		}
		c.until("the switchover begins", 5*time.Second, func() bool { return !c.writes(a) })
		took := c.until("the old primary accepts writes again", time.Minute, func() bool { return c.writes(a) })
		t.Log("writes were held for", took)
		if took > shard.DefaultPause {
			t.Errorf("writes were held for %v", took)
		}
		if c.outcome(id) == "" {
			t.Error("the switchover is said to have succeeded")
		}
		c.oneWriter(a)
		b.node.Lag(0)
		c.settled(a)
		c.allHave(a)
	})
}

// The agent of a paused primary dies: the pause ends, and nobody else was opened.
func TestPauseExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, nil).up()
		a, b := c.hosts[0], c.hosts[1]
		b.node.Lag(time.Hour)
		c.steady(a, 2*time.Second)
		desk := shard.Admin{Registry: c.store.Registry(), By: "test"}
		if _, err := desk.RequestPlan(t.Context(), "s", shard.Request{Kind: shard.Switchover}, b.id()); err != nil {
			t.Fatal(err)
		}
		c.until("writes are paused", 5*time.Second, func() bool { return !c.writes(a) })
		for _, h := range c.hosts {
			h.line.Set(shardtest.Swallow)
		}
		began := time.Now()
		for time.Since(began) < 10*time.Second {
			time.Sleep(10 * time.Millisecond)
			for _, h := range c.hosts {
				if c.writes(h) {
					t.Fatalf("%s accepts writes %v after the store went away in a switchover", h.name, time.Since(began))
				}
			}
		}
		b.node.Lag(0)
		for _, h := range c.hosts {
			h.line.Set(shardtest.Well)
		}
		p := c.settles("the shard comes back")
		c.allHave(p)
	})
}

// caughtUp has writes wait at the first host's node for a switchover to the second's, which has caught up and gets nothing
// any more. The plan goes on when goOn is called.
func (c *cluster) caughtUp() (goOn func()) {
	c.t.Helper()
	b := c.hosts[1]
	var held atomic.Bool
	held.Store(true)
	for _, h := range c.hosts {
		h.line.Intercept(func(call string) error {
			p := c.view().Row.Plan
			if call == "decide" && held.Load() && p != nil && p.Phase == shard.Catching || call == "lock" && h == c.hosts[0] { // it does not orchestrate
				return lease.ErrUnavailable
			}
			return nil
		})
	}
	desk := shard.Admin{Registry: c.store.Registry(), By: "test"}
	if _, err := desk.RequestPlan(c.t.Context(), "s", shard.Request{Kind: shard.Switchover}, b.id()); err != nil {
		c.t.Fatal(err)
	}
	c.until("the replica has caught up", timeout, func() bool {
		v := c.view()
		r, _ := v.Node(b.id())
		return v.Row.Plan != nil && len(r.Results) > 0 && r.Results[len(r.Results)-1].Order == shard.OrderCatchUp
	})
	b.node.Lag(time.Hour)
	return func() { held.Store(false) }
}

// replaced waits until another than the first host's node is the primary: it has all that was acknowledged.
func (c *cluster) replaced() {
	c.t.Helper()
	before := c.view().Row.Primary
	c.until("another is the primary", time.Minute, func() bool { return c.view().Row.Primary != before })
	c.allHave(c.host(c.view().Row.Primary))
	c.hosts[1].node.Lag(0)
	c.oneWriter(c.settles("all is settled"))
}

// A paused primary's pause ends without its agent, and it accepts more than the replica has that had caught up. That does not take
// the lease, whatever became of it.
func TestSwitchoverTakesOnlyALeaseReleasedForIt(t *testing.T) {
	for name, end := range map[string]func(c *cluster, session string) error{
		"lapsed":           func(*cluster, string) error { return nil },
		"renewed too late": func(c *cluster, id string) error { _, err := c.store.RenewSession(c.t.Context(), id); return err },
		"ended after that": func(c *cluster, id string) error { return c.store.EndSession(c.t.Context(), id, "lapsed") },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, 3, nil).up()
				a := c.hosts[0]
				goOn := c.caughtUp()
				a.crash()
				c.until("the pause has ended", 2*shard.DefaultPause, func() bool { return c.writes(a) })
				time.Sleep(time.Second) // its session, last renewed before the crash, has lapsed
				if err := end(c, c.view().Lease.Session); err != nil && !errors.Is(err, lease.ErrLapsed) || c.view().Lease.Held() {
					t.Fatal(err, c.describe())
				}
				goOn()
				c.replaced()
			})
		})
	}
	t.Run("released by an agent that stops", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t, 3, nil).up()
			a := c.hosts[0]
			goOn := c.caughtUp()
			a.end(nil)
			c.until("the pause has ended", 2*shard.DefaultPause, func() bool { return c.writes(a) })
			goOn()
			c.replaced()
		})
	})
}

// hooks records what it was called for.
type hooks struct {
	mu    sync.Mutex
	fail  map[string]bool
	takes time.Duration
	calls []string
}

func (h *hooks) Before(ctx context.Context, call shard.HookCall) error {
	if !lease.Sleep(ctx, &leasetest.BubbleClock{}, h.takes) {
		return context.Cause(ctx)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.calls = append(h.calls, fmt.Sprintf("before %s %s %s", call.Event, call.Role, call.Node))
	if h.fail[call.Node] {
		return errors.New("not here")
	}
	return nil
}

func (h *hooks) After(_ context.Context, call shard.HookCall) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.calls = append(h.calls, fmt.Sprintf("after %s %s %s", call.Event, call.Role, call.Node))
}

// outcome waits until a request has ended, and returns why it failed, or "".
func (c *cluster) outcome(id string) (failed string) {
	c.t.Helper()
	c.until("the request ends", time.Minute, func() bool {
		v, err := c.store.Registry().ReadView(c.t.Context(), "s")
		if err != nil || v.Row.Last == nil || v.Row.Last.Request != id {
			return false
		}
		failed = v.Row.Last.Failed
		return true
	})
	return failed
}

// A hook that fails makes the promotion fail, and another node is tried.
func TestHooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &hooks{fail: map[string]bool{}}
		c := newCluster(t, 3, func(cfg *agent.Config) { cfg.Hooks = h }).up()
		a := c.hosts[0]
		desk := shard.Admin{Registry: c.store.Registry(), By: "test"}
		h.mu.Lock()
		h.fail[c.hosts[1].address] = true
		h.mu.Unlock()
		for _, to := range []int{1, 2} {
			id, err := desk.RequestPlan(t.Context(), "s", shard.Request{Kind: shard.Switchover}, c.hosts[to].id())
			if err != nil {
				t.Fatal(err)
			}
			if failed := c.outcome(id); (failed != "") != (to == 1) {
				t.Errorf("switchover to %s: %q", c.hosts[to].name, failed)
			}
			if to == 1 {
				c.settled(a)
			}
		}
		c.settled(c.hosts[2])
		h.mu.Lock()
		defer h.mu.Unlock()
		all := strings.Join(h.calls, "\n")
		for _, want := range []string{"after promote primary " + c.hosts[2].address, "after role replica " + a.address} {
			if !strings.Contains(all, want) {
				t.Errorf("no call %q in\n%s", want, all)
			}
		}
	})
}

// A hook may take as long as it was given: the promotion waits for it.
func TestSlowHook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &hooks{takes: 4800 * time.Millisecond}
		c := newCluster(t, 3, func(cfg *agent.Config) { cfg.Hooks = h }).up()
		desk := shard.Admin{Registry: c.store.Registry(), By: "test"}
		id, err := desk.RequestPlan(t.Context(), "s", shard.Request{Kind: shard.Switchover, Timeout: 30 * time.Second}, c.hosts[1].id())
		if err != nil {
			t.Fatal(err)
		}
		if failed := c.outcome(id); failed != "" {
			t.Error(failed)
		}
		c.settled(c.hosts[1])
	})
}

// A promise holds after the agent was started again.
func TestPromiseIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, nil).up()
		a, b := c.hosts[0], c.hosts[1]
		row := c.view().Row
		p := shard.Promise{Shard: "s", From: a.id(), To: b.id(), Epoch: row.PrimaryEpoch, For: time.Minute, Seq: 7}
		if _, err := b.agent.GrantPromise(p, p.Sign("wrong", "ask")); err == nil {
			t.Error("a promise was given to a stranger")
		}
		began := time.Now()
		for _, h := range c.hosts[1:] {
			p.To = h.id()
			answer, err := h.agent.GrantPromise(p, p.Sign(row.Secret, "ask"))
			if err != nil || !p.Verify(row.Secret, "give", answer) {
				t.Fatal("no promise:", err)
			}
			h.crash()
			h.start()
			c.until("the agent knows the shard again", time.Minute, func() bool { return h.agent.Status().View.Row.Primary == a.id() })
			if _, err := h.agent.GrantPromise(p, p.Sign(row.Secret, "ask")); err == nil {
				t.Error("a question that was answered counts again")
			}
		}
		a.crash()
		a.node.Kill()
		c.until("another node accepts writes", 5*time.Minute, func() bool { return c.writes(b) || c.writes(c.hosts[2]) })
		if took := time.Since(began); took < time.Minute {
			t.Errorf("a failover came %v after a promise for a minute", took)
		}
	})
}

// The fence is armed with replicas, and disarmed without; with a bound it never is.
func TestArming(t *testing.T) {
	for _, least := range []int{0, 1} {
		t.Run(fmt.Sprint("at least ", least), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, 2, func(cfg *agent.Config) { cfg.MinReplicas = least })
				a, b := c.hosts[0], c.hosts[1]
				a.start()
				c.until("the shard is made", 5*time.Second, func() bool { return c.view().Row.Primary == a.id() })
				b.start()
				c.settled(a)
				b.crash()
				b.node.Kill()
				time.Sleep(20 * time.Second)
				me, _ := c.view().Node(a.id())
				if open := c.writes(a); open != (least == 0) || me.Armed != (least > 0) {
					t.Errorf("without its replica it accepts writes: %t, armed: %t", open, me.Armed)
				}
				b.node.Start(false)
				b.start()
				c.settled(a)
			})
		})
	}
}

// Without --min-replicas the next agent lifts what the one before had asked of the node: its replicas are gone.
func TestMinReplicasTakenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		least := 2
		c := newCluster(t, 1, func(cfg *agent.Config) { cfg.MinReplicas = least })
		a := c.hosts[0]
		a.start()
		c.until("it is armed", 4*timeout, func() bool { return a.node.State().Fence == shard.Armed })
		if c.writes(a) {
			t.Fatal("it accepts writes without two replicas")
		}
		a.crash()
		least = 0
		a.start()
		c.until("it accepts writes", 4*timeout, func() bool { return c.writes(a) })
		c.steady(a, timeout)
	})
}

// A node that cannot write for T gives its place to one that can.
func TestSickNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, nil).up()
		a := c.hosts[0]
		a.node.Sick(true)
		b, took := c.next(a, 5*timeout)
		t.Log("took", took)
		a.node.Sick(false)
		c.settled(b)
		c.oneWriter(b)
	})
}

// While failover is paused nobody would take its place: it stays open, for those who read, and gives its place up when
// failover is resumed.
func TestSickNodeWhilePaused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, nil).up()
		a := c.hosts[0]
		admin := shard.Admin{Registry: c.store.Registry(), By: "ops"}
		if err := admin.Pause(t.Context(), c.view().Row.Name, "work on the disks"); err != nil {
			t.Fatal(err)
		}
		c.until("its agent knows of the pause", time.Minute, func() bool { return a.agent.Status().View.Row.Paused != nil })
		a.node.Sick(true)
		time.Sleep(5 * timeout)
		if me, _ := c.view().Node(a.id()); c.view().Row.Primary != a.id() || me.Fence == shard.Closed || me.Condition != shard.Up {
			t.Errorf("while failover is paused its record says: fence %s, %s", me.Fence, me.Condition)
		}
		if err := admin.Resume(t.Context(), c.view().Row.Name); err != nil {
			t.Fatal(err)
		}
		b, took := c.next(a, 5*timeout)
		t.Log("took", took)
		a.node.Sick(false)
		c.settled(b)
		c.oneWriter(b)
	})
}

// Of two replicas one is away and the other lacks more than MaxLag, and copies no more: nobody would take the place of the
// primary. It stays open, for those who read, and accepts writes again once it can.
func TestSickNodeWhoseReplicaLacksTooMuch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, func(cfg *agent.Config) { cfg.Policy.MaxLag = 2 }).up()
		a, b, d := c.hosts[0], c.hosts[1], c.hosts[2]
		d.crash()
		c.world.Cut(a.address, b.address, true)
		c.until("the link is known to be down", 5*time.Minute, func() bool {
			r, _ := c.view().Node(b.id())
			return r.Link != nil && !r.Link.Up
		})
		for range 10 {
			if _, err := a.node.Write(); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(2 * timeout)
		a.node.Sick(true)
		time.Sleep(5 * timeout)
		if me, _ := c.view().Node(a.id()); c.view().Row.Primary != a.id() || me.Fence == shard.Closed || me.Condition != shard.Up {
			t.Errorf("with nobody in its place its record says: fence %s, %s", me.Fence, me.Condition)
		}
		a.node.Sick(false)
		c.until("it accepts writes again", 2*timeout, func() bool { return c.writes(a) })
	})
}

// undetachable nodes answer probes, and do not leave the primary that they follow.
type undetachable struct {
	shard.Engines
	address string
	tries   *atomic.Int64
}

func (u undetachable) At(address string) shard.Engine {
	e := u.Engines.At(address)
	if address == u.address {
		return undetachableEngine{e, u.tries}
	}
	return e
}

type undetachableEngine struct {
	shard.Engine
	tries *atomic.Int64
}

func (u undetachableEngine) Follow(context.Context, string) error {
	u.tries.Add(1)
	return errors.New("it does not answer in time")
}

// A replica without an agent, which cannot be detached, reaches a silent primary without an agent again after the plan to replace
// that has started: its acknowledgements open the armed fence, so that nobody may be promoted.
func TestSilentPrimaryWithAReplicaThatStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tries atomic.Int64
		c := newCluster(t, 3, nil)
		a, b, d := c.hosts[0], c.hosts[1], c.hosts[2]
		d.edit = func(cfg *agent.Config) { cfg.Engines = undetachable{cfg.Engines, b.address, &tries} }
		c.up()
		b.crash()
		time.Sleep(2 * timeout)
		c.world.Cut(a.address, b.address, true)
		c.world.Cut(a.address, d.address, true)
		a.crash()
		c.until("a plan has started", 4*timeout, func() bool { return tries.Load() > 0 })
		c.world.Cut(a.address, b.address, false)
		c.until("the primary accepts writes behind the cut", timeout, func() bool { return c.writes(a) })
		for end := time.Now().Add(2 * timeout); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
			if c.writes(a) && c.writes(d) {
				t.Fatalf("two primaries, after %d tries to detach the replica\n%s", tries.Load(), c.describe())
			}
		}
		c.world.Cut(a.address, d.address, false)
		a.start()
		b.start()
		c.settles("all are back")
	})
}

// A former primary that has followed nobody since it was replaced is promoted again. It has more than where it was promoted first, and
// the row says so: a replica that stands there is not promoted after it.
func TestPromotedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, nil).up()
		a, b, p := c.hosts[0], c.hosts[1], c.hosts[2]
		desk := shard.Admin{Registry: c.store.Registry(), By: "test"}
		request := func(r shard.Request, to *host) {
			if _, err := desk.RequestPlan(t.Context(), "s", r, to.id()); err != nil {
				t.Fatal(err)
			}
		}
		request(shard.Request{Kind: shard.Switchover}, p)
		c.settled(p)
		b.node.Lag(time.Hour)
		c.steady(p, 2*time.Second)
		c.world.Cut(b.address, a.address, true)
		c.world.Cut(b.address, p.address, true)
		id := p.id()
		p.crash()
		request(shard.Request{Kind: shard.Failover, Force: true}, a)
		c.until("the other is the primary", time.Minute, func() bool { v := c.view(); r, _ := v.Node(id); return v.Row.Primary == a.id() && !r.Live() })
		// Its agent returns, and neither is told nor decides to follow the new primary.
		p.line.Intercept(func(call string) error {
			if plan := c.view().Row.Plan; plan == nil || call == "next" && plan.Phase == shard.Following {
				return lease.ErrUnavailable
			}
			return nil
		})
		p.start()
		c.until("its agent reports", time.Minute, func() bool { v := c.view(); r, _ := v.Node(id); return r.Live() })
		a.node.Kill()
		c.until("it is the primary again", time.Minute, func() bool { return c.view().Row.Primary == id })
		p.line.Intercept(nil)
		c.until("it accepts writes", time.Minute, func() bool { return c.writes(p) })
		p.node.Kill()
		time.Sleep(4 * timeout)
		if v := c.view(); v.Row.Primary != id {
			t.Errorf("a node that lacks what the primary had acknowledged before was promoted: %s", c.describe())
		}
	})
}
