//go:build !manpages

package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	_ "time/tzdata" // schedules name time zones, also on hosts without any

	"github.com/understudy-ha/understudy/internal/guard"
	"github.com/understudy-ha/understudy/internal/instance"
	"github.com/understudy-ha/understudy/internal/shardagent"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == guard.WatcherArg {
		os.Exit(guard.Watch(os.Args[2:]))
	}
	if len(os.Args) == 2 && os.Args[1] == instance.ReleaseArg {
		// The watcher ignored it before it became this process, but Go's runtime does not inherit that.
		signal.Ignore(syscall.SIGTERM)
		if instance.ReleaseFor(context.Background(), os.Stdin) != nil {
			os.Exit(1) // nobody is left to tell; the lease lapses
		}
		return
	}
	if len(os.Args) > 1 && os.Args[1] == shardagent.LaunchArg {
		fmt.Fprintln(os.Stderr, shardagent.Launch(os.Args[2:])) // to the node's log
		os.Exit(1)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}
