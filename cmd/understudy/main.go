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
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
	_ "time/tzdata" // schedules name time zones, also on hosts without any

	"github.com/spf13/cobra"

	"github.com/understudy-ha/understudy/internal/guard"
	"github.com/understudy-ha/understudy/internal/instance"
	"github.com/understudy-ha/understudy/internal/shardagent"
	"github.com/understudy-ha/understudy/internal/termtext"
	"github.com/understudy-ha/understudy/internal/usererr"
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

// run is the whole program, as tests run it too.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	a := &app{Host: instance.Host{Version: version()}, stdout: stdout, stderr: stderr}
	root := a.root()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	var child instance.Exit
	if err != nil && !errors.As(err, &child) {
		fmt.Fprintf(stderr, "understudy: %s\n", termtext.Text(err.Error()))
	}
	return exitCode(err)
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "understudy",
		Short: "High availability for services, on the database their users already run",
		Long: `Understudy lets exactly one instance hold a role, and one other take over when it fails (leader election);
delivers messages in order per key (transactional outbox); raises an alarm when a source falls silent (dead man's
switch); promotes a replica when a Redis primary fails (failover); and lets the peers of a cache fetch each slow value
once for all. It needs no cluster of its own: an SQLite file on one host, PostgreSQL or Redis across hosts, and no
database for the cache.

Exit codes: 0 done; 1 failed; 2 wrong usage; 3 vacant, absent or not found;
4 the store, a server or the peer of a cache cannot be reached; 5 the role was lost. "role run" otherwise exits
as the program that it guards did.`,
		Example: `  # Run a program on whichever host is primary for "billing":
  understudy role run billing --store postgres://db/app -- ./billing

  # Who is it?
  understudy role who billing --store postgres://db/app

  # Try it here, with three instances on one machine:
  understudy demo`,
		SilenceUsage:  true,
		SilenceErrors: true,
		Version:       version(),
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usererr.Errorf("%v", err) })
	f := root.PersistentFlags()
	f.StringVar(&a.StoreURL, "store", "", "store `URL`: sqlite:PATH, postgres://…, redis://…, sabledb://… (default $UNDERSTUDY_STORE, else an SQLite file in the state directory)")
	f.StringVar(&a.serverURL, "server", "", "ask the server at this `URL` instead of a store (default $UNDERSTUDY_SERVER)")
	f.StringVar(&a.tokenFile, "token-file", "", "show the server the token in this `FILE` (default: that in $UNDERSTUDY_TOKEN, if any)")
	f.StringVarP(&a.output, "output", "o", "table", "output `format`: table or json")
	f.StringVar(&a.logLevel, "log-level", "", "debug, info, warn or error (default $UNDERSTUDY_LOG_LEVEL, else info)")
	f.StringVar(&a.logFormat, "log-format", "", "text or json (default $UNDERSTUDY_LOG_FORMAT, else text)")
	root.PersistentPreRunE = func(c *cobra.Command, _ []string) error {
		a.command = c.CommandPath()
		return a.prepare()
	}
	root.AddCommand(a.roleCommand(), a.jobCommand(), a.monitorCommand(), a.sourceCommand(), a.alarmCommand(), a.shardCommand(), a.cacheCommand(), a.serveCommand(), a.configCommand(), a.demoCommand(), a.statusCommand(),
		a.historyCommand(), a.doctorCommand(), a.storeCommand(), a.tokenCommand(), a.versionCommand())
	root.AddCommand(a.queueCommands()...)
	root.SetUsageFunc(printUsage)
	root.InitDefaultCompletionCmd()
	describeCompletion(root)
	onlySubcommands(root)
	return root
}

// describeCompletion makes cobra's own command answer as the others do.
func describeCompletion(root *cobra.Command) {
	for _, c := range root.Commands() {
		if c.Name() != "completion" {
			continue
		}
		c.Args, c.Example = nil, "  source <(understudy completion bash)"
		for _, shell := range c.Commands() {
			shell.Args, shell.Example = noArgs, "  understudy completion "+shell.Name()
		}
	}
}

// onlySubcommands makes a noun without its verb, or with a wrong one, a usage
// error instead of a silent help text.
func onlySubcommands(c *cobra.Command) {
	for _, sub := range c.Commands() {
		onlySubcommands(sub)
	}
	if c.HasSubCommands() && !c.Runnable() {
		c.Args = cobra.ArbitraryArgs
		c.RunE = func(c *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usererr.Errorf("%q is no command of %q; see %s --help", args[0], c.CommandPath(), c.CommandPath())
			}
			if c.HasParent() {
				_ = c.Help()
				return usererr.Errorf("%q needs a command", c.CommandPath())
			}
			return c.Help()
		}
	}
}

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version",
		Example: "  understudy version -o json",
		Args:    noArgs,
		RunE: func(*cobra.Command, []string) error {
			return a.print(map[string]string{"version": version(), "go": goVersion()}, "understudy %s (%s)", version(), goVersion())
		},
	}
}

func version() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}

func goVersion() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		return info.GoVersion
	}
	return "unknown"
}
