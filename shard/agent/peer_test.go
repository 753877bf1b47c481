package agent

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/understudy-ha/understudy/shard"
	"github.com/understudy-ha/understudy/shard/shardtest"
	"github.com/understudy-ha/understudy/store/memory"
)

// While the primary is probed again, what the probe before found is reported, as old as it is.
func TestProbeSoonLeavesTheOpinion(t *testing.T) {
	p := &peerProbe{opinion: shard.Opinion{Of: "a", Reachability: shard.TimedOut}, unattended: []shard.Opinion{{Of: "b"}}, probedAt: time.Hour}
	p.probeSoon()
	now := time.Hour + time.Second
	if own, other := p.current(now), p.currentUnattended(now); own.Age != time.Second || other[0].Age != time.Second {
		t.Errorf("opinions formed a second ago are reported as %v and %v old", own.Age, other[0].Age)
	}
}

// slowEngines answer questions about a node after a while, as over a new connection.
type slowEngines struct{ shard.Engines }

type slowEngine struct{ shard.Engine }

func (e slowEngines) At(address string) shard.Engine { return slowEngine{e.Engines.At(address)} }

func (e slowEngine) Probe(ctx context.Context) (shard.State, error) {
	select {
	case <-time.After(10 * time.Millisecond):
		return e.Engine.Probe(ctx)
	case <-ctx.Done():
		return shard.State{}, context.Cause(ctx)
	}
}

// A primary that refuses does so at once. A replica whose agent is silent is heard all the same: it may hear from the primary.
func TestSlowReplicaOfAPrimaryThatRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		world, store := shardtest.NewWorld(), memory.New(nil)
		for _, address := range []string{"10.0.0.1:6379", "10.0.0.2:6379", "10.0.0.3:6379"} {
			world.Add(address)
		}
		world.At("10.0.0.1:6379").Kill()
		a := newStill(t, Config{Node: "10.0.0.2:6379", Engines: slowEngines{world.Engines("10.0.0.2:6379")}, Registry: store.Registry()}, store)
		a.view.Row = shard.Row{Name: "s", Rev: 7, Epoch: 2, Primary: "a", Members: []shard.Member{{ID: "a", Address: "10.0.0.1:6379"}, {ID: a.id, Address: "10.0.0.2:6379"}, {ID: "c", Address: "10.0.0.3:6379"}}}
		a.watch.takeable = true
		a.peer.step(a.now())
		(<-a.posts)()
		if of := a.peer.opinion; of.Of != "a" || of.Reachability != shard.Refused {
			t.Fatalf("the primary is %+v", of)
		}
		if u := a.peer.unattended; len(u) != 1 || u[0].Of != "c" || u[0].Reachability != shard.Reachable {
			t.Errorf("the replica without an agent is %+v", u)
		}
	})
}
