package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/understudy-ha/understudy/internal/instance"
	"github.com/understudy-ha/understudy/internal/termtext"
	"github.com/understudy-ha/understudy/internal/usererr"
)

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
		Short: "High availability for services, on the database you already run",
		Long: `Understudy lets exactly one instance hold a role, and one other take over when it fails (leader election);
delivers messages in order per key (transactional outbox); raises an alarm when a source falls silent (dead man's
switch); promotes a replica when a Redis primary fails (failover); and lets the peers of a cache fetch each slow value
once for all. It needs no cluster of its own: an SQLite file on one host, PostgreSQL or Redis across hosts, and no
database for the cache.

Exit codes: 0 done; 1 failed; 2 wrong usage; 3 vacant, absent or not found;
4 the store, a server or the peer of a cache cannot be reached, or did not answer: a change may have been made;
5 the role was lost. "role run" otherwise exits as the program that it guards did.`,
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
	f.StringVar(&a.StoreURL, "store", "", "store `URL`: sqlite:PATH, postgres://…, redis://…, sabledb://… (default that of $UNDERSTUDY_STORE or $UNDERSTUDY_STORE_FILE, else an SQLite file in the state directory)")
	f.StringVar(&a.serverURL, "server", "", "ask the server at this `URL` instead of a store (default $UNDERSTUDY_SERVER)")
	f.StringVar(&a.tokenFile, "token-file", "", "show the server the token in this `FILE` (default: that of $UNDERSTUDY_TOKEN or $UNDERSTUDY_TOKEN_FILE)")
	f.StringVarP(&a.output, "output", "o", "table", "output `format`: table or json")
	f.StringVar(&a.logLevel, "log-level", "", "debug, info, warn or error (default $UNDERSTUDY_LOG_LEVEL, else info)")
	f.StringVar(&a.logFormat, "log-format", "", "text or json (default $UNDERSTUDY_LOG_FORMAT, else text)")
	root.PersistentPreRunE = func(c *cobra.Command, _ []string) error {
		a.command, a.requiredFeature, a.flags = c.CommandPath(), requiredFeatureOf(c), c.Flags()
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
				return usererr.Errorf("%q is not a command of %q; see %s --help", args[0], c.CommandPath(), c.CommandPath())
			}
			if c.HasParent() {
				_ = c.Help()
				return usererr.Errorf("%q needs a command", c.CommandPath())
			}
			return c.Help()
		}
	}
}
