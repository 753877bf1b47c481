package memory_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/elect"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/store/memory"
)

// A program that campaigns for a role is tested with a store in memory: no server, nothing to clean up.
func Example() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	keeper, err := lease.NewKeeper(lease.KeeperConfig{
		Store: memory.New(nil), Instance: lease.NewInstance("web-1", "10.0.0.1:80"),
		Timing: lease.Timing{Interval: time.Second, Timeout: 5 * time.Second},
	})
	if err != nil {
		log.Fatal(err)
	}
	keeping, end := context.WithCancel(ctx)
	kept := make(chan error, 1)
	go func() { kept <- keeper.Run(keeping) }()

	err = elect.Campaign(ctx, elect.Config{Keeper: keeper, Role: "billing"}, func(context.Context, elect.Term) error {
		fmt.Println("web-1 is primary")
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	end()
	<-kept
	// Output: web-1 is primary
}

// The store's clock is a function: a test moves it instead of waiting.
func ExampleNew() {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	st, ctx := memory.New(func() time.Time { return now }), context.Background()
	timing := lease.Timing{Interval: time.Second, Timeout: 5 * time.Second}
	if _, err := st.StartSession(ctx, lease.Session{ID: "s1", Instance: lease.NewInstance("web-1", ""), Timing: timing}); err != nil {
		log.Fatal(err)
	}
	now = now.Add(6 * time.Second)
	_, err := st.RenewSession(ctx, "s1")
	fmt.Println(err)
	// Output: session s1: lease: session lapsed
}

// Queues are looked into after the code under test has filled them.
func ExampleStore_QueueAdmin() {
	st, ctx := memory.New(nil), context.Background()
	if err := st.QueueAdmin().CreateQueue(ctx, "orders"); err != nil {
		log.Fatal(err)
	}
	if _, err := st.QueueAdmin().Add(ctx, []dispatch.Message{{Queue: "orders", Key: "customer-7", ID: "o-1", Payload: []byte("{}")}}); err != nil {
		log.Fatal(err)
	}
	messages, err := st.QueueAdmin().Messages(ctx, dispatch.MessageQuery{Queue: "orders"})
	if err != nil {
		log.Fatal(err)
	}
	for _, m := range messages {
		fmt.Println(m.Key, m.ID, m.State)
	}
	// Output: customer-7 o-1 queued
}
