package gocron_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/go-co-op/gocron/v2"

	understudy "github.com/understudy-ha/understudy/adapters/gocron"
	"github.com/understudy-ha/understudy/elect"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/store/memory"
)

// The same program on every host: one of them writes the report.
func ExampleLocker() {
	keeper, err := lease.NewKeeper(lease.KeeperConfig{
		Store:    memory.New(nil), // in production: open.Open of package store/open
		Instance: lease.NewInstance("web-1", ""),
	})
	if err != nil {
		log.Fatal(err)
	}
	keeping, stop := context.WithCancel(context.Background())
	kept := make(chan error, 1)
	go func() { kept <- keeper.Run(keeping) }()

	locker, err := understudy.NewLocker(elect.OnceConfig{Keeper: keeper, Every: 30 * time.Minute})
	if err != nil {
		log.Fatal(err)
	}
	scheduler, err := gocron.NewScheduler(gocron.WithDistributedLocker(locker)) // the line that changes
	if err != nil {
		log.Fatal(err)
	}
	done := make(chan struct{})
	report := func() error {
		defer close(done)
		return locker.RunLocked("report", func(ctx context.Context, term elect.Term) error {
			fmt.Println("writing the report; send the term along:", term.Number > 0)
			return nil
		})
	}
	when := gocron.OneTimeJob(gocron.OneTimeJobStartImmediately()) // or gocron.CronJob("0 * * * *", false)
	if _, err := scheduler.NewJob(when, gocron.NewTask(report), gocron.WithName("report")); err != nil {
		log.Fatal(err)
	}
	scheduler.Start()
	<-done
	if err := scheduler.Shutdown(); err != nil {
		log.Fatal(err)
	}
	stop()
	fmt.Println(<-kept)
	// Output:
	// writing the report; send the term along: true
	// <nil>
}
