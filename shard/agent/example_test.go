package agent_test

import (
	"context"
	"fmt"
	"os"

	"github.com/understudy-ha/understudy/shard/agent"
	"github.com/understudy-ha/understudy/shard/shardtest"
	"github.com/understudy-ha/understudy/store/memory"
)

// An agent beside a node makes the shard; clients look the primary up in the store.
func Example() {
	dir, err := os.MkdirTemp("", "orders")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()

	store := memory.New(nil)      // or a store of package store/open
	nodes := shardtest.NewWorld() // or the engine of package shard/engine/redis
	nodes.Add("10.0.0.1:6379")

	a, err := agent.New(agent.Config{
		Shard: "orders", Node: "10.0.0.1:6379", Dir: dir, Engines: nodes.Engines("10.0.0.1:6379"),
		Registry: store.Registry(), Commands: store.Commands(), Leases: store,
	})
	if err != nil {
		panic(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()

	for {
		changed := a.Changed() // before the view, so that no change is missed
		view, _ := a.Shard("orders")
		if primary, err := view.PrimaryEndpoint(); err == nil {
			fmt.Println("the primary is", primary.Address)
			break
		}
		<-changed
	}
	stop()
	fmt.Println("stopped:", <-done)
	// Output:
	// the primary is 10.0.0.1:6379
	// stopped: <nil>
}
