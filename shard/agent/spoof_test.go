package agent_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/understudy-ha/understudy/shard"
	"github.com/understudy-ha/understudy/shard/agent"
)

// spoofed are engines whose nodes answer as a test wants.
type spoofed struct {
	shard.Engines
	probe  func(shard.State, error) (shard.State, error)
	pauses *atomic.Int64
}

type spoofedNode struct {
	shard.Engine
	of spoofed
}

func (e spoofed) At(address string) shard.Engine { return spoofedNode{e.Engines.At(address), e} }

func (n spoofedNode) Probe(ctx context.Context) (shard.State, error) {
	return n.of.probe(n.Engine.Probe(ctx))
}

func (n spoofedNode) Pause(ctx context.Context, d time.Duration) error {
	if d > 0 {
		n.of.pauses.Add(1)
	}
	return n.Engine.Pause(ctx, d)
}

// A node that something else restarted with a password that its agent does not have may be open: it is not
// taken for dead any more, so that nothing is promoted beside it later.
func TestRestartedBehindAPassword(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var locked atomic.Bool
		c := newCluster(t, 2, func(cfg *agent.Config) {
			if cfg.AgentAddress == "agent-a" {
				cfg.Engines = spoofed{Engines: cfg.Engines, pauses: new(atomic.Int64), probe: func(s shard.State, err error) (shard.State, error) {
					if err == nil && locked.Load() {
						return shard.State{}, fmt.Errorf("%w: WRONGPASS", shard.ErrNodeAccess)
					}
					return s, err
				}}
			}
		}).up()
		a, b := c.hosts[0], c.hosts[1]
		desk := shard.Admin{Registry: c.store.Registry(), By: "test"}
		if err := desk.Pause(t.Context(), "s", "maintenance"); err != nil {
			t.Fatal(err)
		}
		locked.Store(true)
		a.node.Kill()
		c.until("its death is reported", time.Minute, func() bool { r, _ := c.view().Node(a.id()); return r.Condition == shard.Down })
		a.node.Start(false)
		c.until("it is not called down any more", time.Minute, func() bool { r, _ := c.view().Node(a.id()); return r.Condition == shard.Silent })
		time.Sleep(2 * timeout) // the other agent has tried to reach it since
		if err := desk.Resume(t.Context(), "s"); err != nil {
			t.Fatal(err)
		}
		for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
			if c.writes(a) && c.writes(b) {
				t.Fatalf("two primaries\n%s", c.describe())
			}
		}
	})
}

// A replica that fell behind after the latest reports is noticed before writes are paused for it.
func TestSwitchoverAfterABurst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const burst = 60 << 20
		var behind atomic.Bool
		var pauses atomic.Int64
		c := newCluster(t, 2, func(cfg *agent.Config) {
			cfg.Engines = spoofed{Engines: cfg.Engines, pauses: &pauses, probe: func(s shard.State, err error) (shard.State, error) {
				if behind.Load() && s.Role == shard.Primary {
					s.Txn += burst
				}
				return s, err
			}}
		}).up()
		time.Sleep(time.Minute)
		behind.Store(true)
		desk := shard.Admin{Registry: c.store.Registry(), By: "test"}
		if _, err := desk.RequestPlan(t.Context(), "s", shard.Request{Kind: shard.Switchover}, c.hosts[1].id()); err != nil {
			t.Fatal(err)
		}
		c.until("it is refused", time.Minute, func() bool { last := c.view().Row.Last; return last != nil && last.Failed != "" })
		if n := pauses.Load(); n != 0 {
			t.Errorf("writes were paused %d times", n)
		}
		if why := c.view().Row.Last.Failed; !strings.Contains(why, "behind the primary") {
			t.Errorf("it failed: %s", why)
		}
		c.until("writes go on", time.Minute, func() bool { return c.writes(c.hosts[0]) })
	})
}
