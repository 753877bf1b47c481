package main

import (
	"cmp"
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/understudy-ha/understudy/internal/server"
	"github.com/understudy-ha/understudy/internal/settings"
	"github.com/understudy-ha/understudy/internal/strictyaml"
	"github.com/understudy-ha/understudy/internal/usererr"
)

// serveFlags are what the command line says of the server. It goes before the environment,
// and that before the file.
type serveFlags struct {
	file     string
	server   settings.Server
	sentinel settings.Sentinel
}

func (a *app) serveCommand() *cobra.Command { return a.serveCommandOf(new(serveFlags)) }

// serveCommandOf makes the command, whose flags are f.
func (a *app) serveCommandOf(f *serveFlags) *cobra.Command {
	c := &cobra.Command{
		Use:   "serve [-c FILE]",
		Short: "Serve the page and the HTTP API, and run every part that a file configures",
		Long: `Serve the page, the HTTP API (/v1, described at /openapi.json), server-sent events,
/metrics, /healthz and /readyz on one port, and run what the file lists: campaign for roles, deliver
queues, monitor, be the peer of a cache, run agents of shard nodes. "understudy config example" prints a file with
every key. It listens on 127.0.0.1:7600 by default; an address that is not loopback needs a token and TLS.
With --sentinel it also answers clients that find the primaries of shards through Redis Sentinel.

Flags override the environment (UNDERSTUDY_LISTEN and so on), which overrides the file.

SIGINT and SIGTERM stop it: the programs first, then the roles and keys are released. SIGHUP reads the file
again: certificate, token, log level, roles that are new or gone, the monitor's checks and the
cache's peers change at once; of everything else the log says that it waits for a restart. A file with
a mistake changes nothing.`,
		Example: `  understudy serve
  understudy serve -c /etc/understudy.yaml
  understudy serve --store postgres://db/app --listen 127.0.0.1:9000`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if c.Flags().Changed("server") {
				return usererr.Errorf("%s asks no server: leave --server out, and name the store with --store or in the file", c.Name())
			}
			load := func() (*settings.Server, error) {
				return settings.ReadWith(f.file, os.Environ(), a.applyFlags(f, c.Flags().Changed))
			}
			cfg, err := load()
			if err != nil {
				return err
			}
			hup := make(chan os.Signal, 1)
			signal.Notify(hup, syscall.SIGHUP)
			defer signal.Stop(hup)
			if err := a.logAs(cfg.LogLevel, cfg.LogFormat); err != nil {
				return err
			}
			settings.LogEnvironment(a.Log, settings.Environment(), os.Environ())
			a.warnedOfVariables = true
			if cfg.Store != "" {
				a.StoreURL = cfg.Store
			}
			return a.serve(c.Context(), cfg, &server.Reload{Load: load, When: hup})
		},
	}
	c.Flags().StringVarP(&f.file, "config", "c", "", "configuration `FILE`")
	strictyaml.Bind(c.Flags(), &f.server, "listen", "token_file") // token_file in place of the global flag, which is a client's
	strictyaml.Bind(c.Flags(), &f.sentinel, "listen")
	return c
}

// applyFlags returns a function that replaces settings of the file with those of the command line.
func (a *app) applyFlags(f *serveFlags, changed func(flag string) bool) func(*settings.Server) {
	return func(c *settings.Server) {
		if changed("store") && a.StoreURL != "" {
			c.Store, c.StoreFile = a.StoreURL, ""
		}
		if changed("listen") {
			c.Listen = f.server.Listen
		}
		if changed("token-file") {
			c.Token, c.TokenFile = "", f.server.TokenFile
		}
		c.LogLevel, c.LogFormat = cmp.Or(a.logLevel, c.LogLevel), cmp.Or(a.logFormat, c.LogFormat)
		if f.sentinel.Listen == "" {
			return
		}
		if c.Sentinel == nil {
			c.Sentinel = &settings.Sentinel{}
		}
		c.Sentinel.Listen = f.sentinel.Listen
	}
}

// serve runs the server until ctx ends.
func (a *app) serve(ctx context.Context, cfg *settings.Server, again *server.Reload) error {
	if err := a.needStore(); err != nil {
		return err
	}
	for _, w := range cfg.Warnings() {
		a.Log.Warn("warning about the configuration", "warning", w)
	}
	return withAdvice(server.Run(ctx, &a.Host, cfg, again))
}
