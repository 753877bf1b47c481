package lease_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/store/memory"
)

// One of several processes writes a report. Each runs this; one holds the lease.
func ExampleKeeper_Acquire() {
	store := memory.New(nil) // in production: sqlite, postgres or redis
	keeper, err := lease.NewKeeper(lease.KeeperConfig{
		Store: store, Instance: lease.NewInstance("worker-1", "10.0.0.1:8080"),
	})
	if err != nil {
		log.Fatal(err)
	}
	keeping, stop := context.WithCancel(context.Background())
	kept := make(chan error, 1)
	go func() { kept <- keeper.Run(keeping) }() // one heartbeat for all leases

	report := lease.ID{Space: "jobs", Key: "report"}
	held, err := keeper.Acquire(context.Background(), lease.AcquireRequest{Leases: []lease.ID{report}})
	if err != nil {
		log.Fatal(err)
	}
	// Bound work is cancelled one second before the lease can no longer be trusted.
	ctx, release := held.Active.Bind(context.Background(), time.Second)
	if ctx.Err() == nil {
		fmt.Println("writing the report; send the term along:", held.Term > 0)
	}
	release()
	if err := held.Release(context.Background(), "", "report written"); err != nil {
		log.Fatal(err)
	}

	now, err := store.Get(context.Background(), report)
	fmt.Println("free for the next:", now.Free(), err)
	stop()
	fmt.Println(<-kept)
	// Output:
	// writing the report; send the term along: true
	// free for the next: true <nil>
	// <nil>
}
