package main

import (
	"context"
	"net"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/understudy-ha/understudy/internal/door"
	"github.com/understudy-ha/understudy/internal/plain"
	"github.com/understudy-ha/understudy/internal/sdnotify"
	"github.com/understudy-ha/understudy/shard"
	"github.com/understudy-ha/understudy/shard/proxy"
)

func (a *app) shardProxyCommand() *cobra.Command {
	var addr string
	var replicas bool
	var cfg proxy.Config
	c := &cobra.Command{
		Use:   "proxy SHARD --listen HOST:PORT",
		Short: "Listen here, and lead every connection to the primary",
		Long: `Listen on an address, and lead every connection to the primary of the shard. When it changes, connections to
the deposed one are closed, so that clients connect again. While there is none, new clients wait up to --hold.
While the store is down, they are led to the primary that was known last.

It runs beside each client: a proxy of its own host is no other thing that can fail. SIGINT, SIGTERM and SIGHUP
stop it; connections may go on for --drain.`,
		Example: `  understudy shard proxy orders --listen 127.0.0.1:6379
  understudy shard proxy orders --listen 127.0.0.1:6380 --replicas`,
		Args: shardName,
		RunE: func(c *cobra.Command, args []string) error {
			l, err := door.Listen("--listen", addr)
			if err != nil {
				return err
			}
			ctx, stop := signal.NotifyContext(c.Context(), syscall.SIGHUP)
			defer stop()
			cfg.Shard, cfg.Logger = args[0], a.Log
			if replicas {
				cfg.Route = proxy.Replicas
			}
			return a.serveProxy(ctx, l, cfg)
		},
	}
	c.Flags().StringVar(&addr, "listen", "", "listen on this `ADDRESS`, HOST:PORT")
	c.Flags().BoolVar(&replicas, "replicas", false, "lead to the replicas, in turn, instead of to the primary")
	c.Flags().IntVar(&cfg.MaxConns, "max-conns", 1000, "let at most so many clients in at once")
	c.Flags().DurationVar(&cfg.Wait, "hold", 10*time.Second, "a client waits so long while nobody can be connected to")
	c.Flags().DurationVar(&cfg.DialTimeout, "dial-timeout", 2*time.Second, "connecting to a node may take so long")
	c.Flags().DurationVar(&cfg.Drain, "drain", 0, "connections may go on for so long when the proxy is stopped")
	return c
}

func (a *app) serveProxy(ctx context.Context, l net.Listener, cfg proxy.Config) error {
	defer l.Close()
	return a.withDirectory(ctx, cfg.Shard, func(ctx context.Context, dir *shard.Directory) error {
		cfg.Where = dir
		p, err := proxy.New(cfg)
		if err != nil {
			return err
		}
		a.Log.Info("leading to the shard", "shard", cfg.Shard, "listen", l.Addr().String(), "store", plain.URL(a.StoreURL))
		sdnotify.Ready()
		err = p.Serve(ctx, l)
		sdnotify.Stopping()
		return err
	})
}
