package robfigcron_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/understudy-ha/understudy/adapters/robfigcron"
	"github.com/understudy-ha/understudy/elect"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/store/memory"
)

// The same program on every host: one of them writes the report.
func ExampleOnce() {
	keeper, err := lease.NewKeeper(lease.KeeperConfig{
		Store:    memory.New(nil), // in production: open.Open of package store/open
		Instance: lease.NewInstance("web-1", ""),
	})
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	kept := make(chan error, 1)
	go func() { kept <- keeper.Run(ctx) }()

	done := make(chan struct{})
	report := func(ctx context.Context, term elect.Term) error {
		defer close(done)
		fmt.Println("writing the report; send the term along:", term.Number > 0)
		return nil
	}
	c := cron.New()
	cfg := elect.OnceConfig{Keeper: keeper, Job: "report", Every: 30 * time.Minute}
	if _, err := c.AddJob("@every 1s", robfigcron.Once(ctx, cfg, report)); err != nil { // the line that changes
		log.Fatal(err)
	}
	c.Start()
	<-done
	<-c.Stop().Done()
	stop()
	fmt.Println(<-kept)
	// Output:
	// writing the report; send the term along: true
	// <nil>
}
