package main

import (
	"context"
	"errors"
	"net"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/understudy-ha/understudy/internal/instance"
	"github.com/understudy-ha/understudy/internal/sdnotify"
	"github.com/understudy-ha/understudy/internal/startlistener"
	"github.com/understudy-ha/understudy/internal/strictyaml"
	"github.com/understudy-ha/understudy/internal/termtext"
	"github.com/understudy-ha/understudy/shard"
	"github.com/understudy-ha/understudy/shard/catalog"
	"github.com/understudy-ha/understudy/shard/proxy"
)

func (a *app) shardProxyCommand() *cobra.Command {
	var addr string
	var replicas bool
	var cfg proxy.Config
	c := &cobra.Command{
		Use:   "proxy SHARD --listen HOST:PORT",
		Short: "Listen on an address, and forward every connection to the primary",
		Long: `Listen on an address, and forward every connection to the primary of the shard. When it changes, connections to
the deposed one are closed, so that clients connect again. While there is none, new clients wait up to --wait.
While the store is down, they go to the primary that was known last.

Run it beside each client: a proxy on the client's own host adds no other host that can fail. SIGINT, SIGTERM and SIGHUP
stop it; connections may go on for --drain.`,
		Example: `  understudy shard proxy orders --listen 127.0.0.1:6379
  understudy shard proxy orders --listen 127.0.0.1:6380 --replicas`,
		Args: startingWith(shard.ValidateName, "SHARD"),
		RunE: func(c *cobra.Command, args []string) error {
			l, err := startlistener.Listen("--listen", addr)
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
	c.Flags().BoolVar(&replicas, "replicas", false, "forward to the replicas, in turn, instead of to the primary")
	c.Flags().IntVar(&cfg.MaxConns, "max-conns", 1000, "let at most this many clients in at once")
	c.Flags().DurationVar(&cfg.Wait, "wait", 10*time.Second, "a client waits this long while no node is reachable")
	strictyaml.Renamed(c.Flags(), "hold", "wait")
	c.Flags().DurationVar(&cfg.DialTimeout, "dial-timeout", 2*time.Second, "connecting to a node may take this long")
	c.Flags().DurationVar(&cfg.Drain, "drain", 0, "connections may go on for this long when the proxy is stopped")
	return c
}

func (a *app) serveProxy(ctx context.Context, l net.Listener, cfg proxy.Config) error {
	defer l.Close()
	return a.withCatalog(ctx, cfg.Shard, func(ctx context.Context, dir *catalog.Catalog) error {
		cfg.Where = dir
		p, err := proxy.New(cfg)
		if err != nil {
			return err
		}
		a.Log.Info("leading to the shard", "shard", cfg.Shard, "listen", l.Addr().String(), "store", termtext.URL(a.StoreURL))
		sdnotify.Ready()
		err = p.Serve(ctx, l)
		sdnotify.Stopping()
		return err
	})
}

// withCatalog keeps the view of one shard fresh while f runs.
func (a *app) withCatalog(ctx context.Context, name string, f func(context.Context, *catalog.Catalog) error) error {
	st, err := a.openStore(ctx)
	if err != nil {
		return err
	}
	defer st.Close()
	shards, err := instance.Shards(st)
	if err != nil {
		return err
	}
	dir, err := catalog.New(catalog.Config{Registry: onlyShard{shards.Registry(), name}, Logger: a.Log})
	if err != nil {
		return err
	}
	return alongside(ctx, dir.Run, func(ctx context.Context) error { return f(ctx, dir) })
}

// onlyShard is a registry in which there is one shard: who follows it alone need not
// read all others.
type onlyShard struct {
	shard.Registry
	name string
}

// List implements [shard.Registry].
func (o onlyShard) List(ctx context.Context, after string, _ int) ([]shard.View, error) {
	if after >= o.name {
		return nil, nil
	}
	v, err := o.ReadView(ctx, o.name)
	if errors.Is(err, shard.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return []shard.View{v}, nil
}

// Watch implements [shard.Registry].
func (o onlyShard) Watch(ctx context.Context, _ string, wake func(string)) error {
	return o.Registry.Watch(ctx, o.name, wake)
}
