package agent

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/understudy-ha/understudy/shard"
	"github.com/understudy-ha/understudy/shard/shardtest"
	"github.com/understudy-ha/understudy/store/memory"
)

// newStill makes the agent of a node of shard "s" whose loop nobody runs: the test calls its components.
func newStill(t *testing.T, cfg Config, store *memory.Store) *Agent {
	t.Helper()
	cfg.Shard, cfg.Dir, cfg.Commands, cfg.Leases, cfg.Clock = "s", t.TempDir(), store.Commands(), store, bubbleClock{time.Now()}
	a, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.folder.close)
	a.ctx = t.Context()
	return a
}

// A promotion that comes after its plan has ended is not started: it would cost the node a full copy, and run the user's hook.
func TestPromotionOfAPlanThatHasEnded(t *testing.T) {
	for name, c := range map[string]struct {
		plan   *shard.Plan
		order  shard.Order
		starts bool
	}{
		"the plan is under way":      {&shard.Plan{Epoch: 2, Phase: shard.Promoting}, shard.OrderPromote, true},
		"the plan has ended":         {nil, shard.OrderPromote, false},
		"copying outlasts its plan":  {nil, shard.OrderFollow, true},
		"a detachment came too late": {nil, shard.OrderDetach, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				world, store := shardtest.NewWorld(), memory.New(nil)
				world.Add("10.0.0.1:6379")
				a := newStill(t, Config{Node: "10.0.0.1:6379", Engines: world.Engines("10.0.0.1:6379"), Registry: store.Registry()}, store)
				close(a.ended) // nobody runs the loop
				a.view.Row = shard.Row{Name: "s", Rev: 7, Epoch: 2, Plan: c.plan}
				a.inbox.queue = []shard.Command{{ID: "c", Shard: "s", Node: a.id, Epoch: 2, Order: c.order, Address: "10.0.0.2:6379"}}
				a.reconcile.startCommand()
				if started := a.reconcile.task != nil; started != c.starts || len(a.inbox.queue) > 0 {
					t.Errorf("started: %t, still queued: %d", started, len(a.inbox.queue))
				}
				a.reconcile.cancelTask("the test ends")
				a.wg.Wait()
			})
		})
	}
}
