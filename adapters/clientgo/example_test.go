package clientgo_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/klog/v2"

	"github.com/understudy-ha/understudy/adapters/clientgo"
	"github.com/understudy-ha/understudy/store/memory"
)

// An existing program with client-go's leader election, without a Kubernetes API server.
func ExampleLock() {
	lock, err := clientgo.NewLock(clientgo.Config{
		Store: memory.New(nil), // in production: open.Open of package store/open
		Role:  "controller", Identity: "web-1",
	})
	if err != nil {
		log.Fatal(err)
	}
	work := func(ctx context.Context, term int64) {
		fmt.Println("leading; send the term along:", ctx.Err() == nil && term > 0)
	}
	ctx, stop := context.WithCancel(klog.NewContext(context.Background(), logr.Discard()))
	leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{
		Lock:          lock, // a line that changes
		LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second,
		ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) {
				work(lock.Context(ctx), lock.Term()) // the other: client-go's own context outlives the term after a pause
				stop()
			},
			OnStoppedLeading: func() {},
		},
	})
	// Output: leading; send the term along: true
}
