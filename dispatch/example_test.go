package dispatch_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/understudy-ha/understudy/claim"
	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/store/sqlite"
)

// printer is a target that prints. Package target has webhooks and programs.
type printer struct{ delivered chan string }

func (printer) Name() string { return "printer" }

// Semantics: printing twice does no harm, and a printer cannot be asked.
func (printer) Semantics() dispatch.Semantics { return dispatch.Semantics{Resend: true} }

func (p printer) Submit(_ context.Context, a dispatch.Assignment) dispatch.Answer {
	p.delivered <- fmt.Sprintf("%s: %s", a.Key, a.Payload)
	return dispatch.Answer{Outcome: dispatch.Done}
}

func (printer) Status(context.Context, []dispatch.Assignment) []dispatch.Answer { return nil }

// Orders of one customer are delivered one after the other.
func ExampleDispatcher() {
	dir, err := os.MkdirTemp("", "dispatch")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	store, err := sqlite.Open(ctx, sqlite.Config{Path: filepath.Join(dir, "work.db")})
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()

	// Your program would call sqlite.Enqueue in the transaction that takes the order.
	admin := store.QueueAdmin()
	if err := admin.CreateQueue(ctx, "orders"); err != nil {
		log.Fatal(err)
	}
	for _, payload := range []string{"an apple", "two pears", "a plum"} {
		if _, err := admin.Add(ctx, []dispatch.Message{{Queue: "orders", Key: "acme", Payload: []byte(payload)}}); err != nil {
			log.Fatal(err)
		}
	}

	keeper, err := lease.NewKeeper(lease.KeeperConfig{
		Store: store, Instance: lease.NewInstance("worker-1", ""), Timing: claim.Windows{}.WithDefaults().Timing(),
	})
	if err != nil {
		log.Fatal(err)
	}
	keeping, stop := context.WithCancel(context.Background())
	kept := make(chan error, 1)
	go func() { kept <- keeper.Run(keeping) }()

	target := printer{make(chan string)}
	d, err := dispatch.New(dispatch.Config{
		Name: "orders", Keeper: keeper, Claims: store.Claims(), Queue: store.Queue(), Target: target,
	})
	if err != nil {
		log.Fatal(err)
	}
	stopped := make(chan error, 1)
	go func() { stopped <- d.Run(ctx) }()
	for range 3 {
		fmt.Println(<-target.delivered)
	}
	cancel() // releases its keys: another instance continues at once
	fmt.Println(<-stopped)
	stop()
	fmt.Println(<-kept)
	// Output:
	// acme: an apple
	// acme: two pears
	// acme: a plum
	// <nil>
	// <nil>
}
