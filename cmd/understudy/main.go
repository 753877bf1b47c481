//go:build !manpages

// Command understudy keeps one primary per role, delivers messages in order, and more, on the database that its users
// already run. See `understudy --help`.
//
// The package is the command line alone: a file for each noun, and more where a noun has many verbs (shard.go,
// shardact.go, shardshow.go). A command that reads or changes something calls the API, through api/client: that of the
// server named by --server, else one that answers within this process, on the store (inprocess.go). The exceptions:
//
//   - These open the store themselves: the commands that run something on it, "doctor" and "store …". needStore (connect.go)
//     refuses them if only a server is named.
//   - "source beat" calls a server's API with --server, and else stores the heartbeat itself (sourcebeat.go).
//   - "cache …" calls the API of a cache peer, named by --server or else this host's (cache.go); "cache serve" needs no store.
//
// Other packages do the work: internal/settings declares
// the settings (flags, variables and keys), internal/server runs the parts, internal/shardagent runs the agent of a
// shard, internal/doctor checks, internal/demo demonstrates.
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
