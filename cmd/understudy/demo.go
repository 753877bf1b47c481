package main

import (
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/understudy-ha/understudy/api/client"
	"github.com/understudy-ha/understudy/internal/demo"
	"github.com/understudy-ha/understudy/internal/instance"
	"github.com/understudy-ha/understudy/internal/server"
	"github.com/understudy-ha/understudy/internal/settings"
	"github.com/understudy-ha/understudy/internal/usererr"
	"github.com/understudy-ha/understudy/lease"
)

func (a *app) demoCommand() *cobra.Command {
	f := demo.Config{Out: a.stdout, OpenPage: a.openDemoPage}
	c := &cobra.Command{
		Use:   "demo",
		Short: "Three instances on this machine with all parts: kill any process and watch it recover",
		Long: `Start three instances as processes of their own, which compete for a role, deliver messages
in order, raise an alarm when a source falls silent and fetch slow values once for all; and, where
redis-server is installed, a shard of three nodes under a writer that counts what it loses. Kill any
process as printed or with a button of the page, and watch here and there what the others do, with the
promise beside what was measured. A killed process comes back after a while. Ctrl-C ends everything and leaves nothing behind: without --store, the store is an
SQLite file in a temporary directory, which is in memory where the host has room for that.

With --auto the demonstration kills by itself, act by act, measures, and ends with a table: exit 0 if
all that is promised was kept, 1 if not.`,
		Example: `  understudy demo
  understudy demo --auto
  understudy demo --store postgres://localhost/test`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := f.Validate(); err != nil {
				return err
			}
			var err error
			if f.Self, err = os.Executable(); err != nil {
				return err
			}
			if a.storeNamed {
				if err := a.needStore(); err != nil {
					return err
				}
				f.StoreURL = a.StoreURL
			}
			ctx, stop := signal.NotifyContext(c.Context(), syscall.SIGHUP) // the terminal went away
			defer stop()
			return demo.Run(ctx, f)
		},
	}
	fs := c.Flags()
	fs.StringVar(&f.Listen, "listen", settings.DefaultListen(), "`ADDRESS` of the page; if it is taken, another one is found")
	fs.DurationVar(&f.Timing.Interval, "interval", lease.DefaultInterval, "renew every `I`")
	fs.DurationVar(&f.Timing.Timeout, "timeout", lease.DefaultTimeout, "lapse after `T`")
	fs.BoolVar(&f.Auto, "auto", false, "kill, show and measure by itself, act by act, and end")
	fs.BoolVar(&f.NoShard, "no-shard", false, "leave the shard out")
	fs.DurationVar(&f.Slack, "slack", 2*time.Second, "with --auto: a busy machine may be later by so much")
	c.AddCommand(a.demoSensorCommand())
	return c
}

// demoSensorCommand is a source that sends heartbeats until it is killed.
func (a *app) demoSensorCommand() *cobra.Command {
	var every time.Duration
	var to []string
	c := &cobra.Command{
		Use: "sensor NAME --to URL,…", Short: "A source of the demonstration: it sends heartbeats until it is stopped", Hidden: true,
		Long:    "Send heartbeats of the check \"" + demo.CheckName + "\" as the source NAME, to the first server that takes them, until stopped. The demonstration starts one.",
		Example: "  understudy demo sensor sensor-4 --to http://127.0.0.1:7600",
		Args:    exactly("NAME"),
		RunE: func(c *cobra.Command, args []string) error {
			if every <= 0 {
				return usererr.Errorf("--every %v: it must be above 0", every)
			}
			var servers []*client.Client
			for _, url := range to {
				server, err := client.New(client.Config{URL: url})
				if err != nil {
					return usererr.Errorf("--to: %v", err)
				}
				servers = append(servers, server)
			}
			if len(servers) == 0 {
				return usererr.Errorf("--to is missing: which servers take the heartbeats?")
			}
			demo.SendHeartbeats(c.Context(), servers, every, args[0])
			return nil
		},
	}
	c.Flags().DurationVar(&every, "every", time.Second, "send one every `D`")
	c.Flags().StringSliceVar(&to, "to", nil, "`URL`s of the servers")
	return c
}

// openDemoPage serves the page of the demonstration in this process.
func (a *app) openDemoPage(settings []byte, storeURL string, log *slog.Logger) (demo.Page, error) {
	p, err := server.OpenPage(settings, &instance.Host{Log: log, StoreURL: storeURL, Version: a.Version})
	if err != nil {
		return nil, err
	}
	return p, nil
}
