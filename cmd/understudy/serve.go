package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/understudy-ha/understudy/api"
	"github.com/understudy-ha/understudy/elect"
	"github.com/understudy-ha/understudy/internal/sdnotify"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/store"
)

func (a *app) serveCommand() *cobra.Command {
	var file, listen, sentinel string
	c := &cobra.Command{
		Use:   "serve [-c FILE]",
		Short: "Serve the page and the HTTP API, run the roles, queues, monitor and cache of a file",
		Long: `Serve the page, the HTTP API (/v1, described at /openapi.json), server-sent events,
/metrics, /healthz and /readyz on one port, campaign for the roles, deliver the queues,
run the monitor and the peer of a cache that the file lists. It listens on 127.0.0.1:7600 unless told
otherwise; any other address needs a token. With --sentinel it also answers clients that find the primaries
of shards through Redis Sentinel. SIGINT, SIGTERM and SIGHUP stop it: the programs first, then the roles
and keys are given back.`,
		Example: `  understudy serve
  understudy serve -c /etc/understudy.yaml
  understudy serve --store postgres://db/app --listen 127.0.0.1:9000`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			cfg, err := readConfig(file)
			if err != nil {
				return err
			}
			if listen != "" {
				cfg.Listen = listen
			}
			if sentinel != "" {
				if err := cfg.sentinelAt(sentinel); err != nil {
					return err
				}
			}
			if cfg.Store != "" && !c.Flags().Changed("store") {
				a.storeURL = cfg.Store
			}
			// The file is not read again: who changes it restarts the server, and a
			// terminal that goes away must not leave programs to their deadlines.
			ctx, stop := signal.NotifyContext(c.Context(), syscall.SIGHUP)
			defer stop()
			return a.serve(ctx, cfg)
		},
	}
	c.Flags().StringVarP(&file, "config", "c", "", "configuration `FILE`")
	c.Flags().StringVar(&listen, "listen", "", "`ADDRESS` to listen on (default "+defaultListen+")")
	c.Flags().StringVar(&sentinel, "sentinel", "", "answer Sentinel clients on this `ADDRESS`, HOST:PORT (default: not at all)")
	return c
}

func (a *app) serve(ctx context.Context, cfg *serveConfig) error {
	listener, err := listen(cfg)
	if err != nil {
		return err
	}
	d := openDoor(listener, a.log, "the store has not been reached yet")
	defer d.close(ctx)
	if err := cfg.Sentinel.open(); err != nil {
		return err
	}
	defer cfg.Sentinel.close()
	a.connections = cfg.connections()
	st, err := a.openPatiently(ctx, true)
	if err != nil {
		return stoppedWith(err)
	}
	defer st.Close()
	err = a.withKeeper(ctx, st, cfg.instance(), func(ctx context.Context, k *lease.Keeper) error {
		return a.serveOn(ctx, cfg, d, st, k)
	})
	if ctx.Err() != nil {
		return stoppedWith(err)
	}
	return err
}

// listen refuses what is not safe to listen on.
func listen(cfg *serveConfig) (net.Listener, error) {
	secured := cfg.BehindTLS || cfg.TLSCert != ""
	if err := api.CheckListen(cfg.Listen, cfg.Token, secured); err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", cfg.Listen)
	if err != nil {
		var addr *net.AddrError
		if errors.As(err, &addr) {
			return nil, usagef("%v; use HOST:PORT", err)
		}
		return nil, err
	}
	if cfg.TLSCert == "" {
		return l, nil
	}
	pair, err := tls.LoadX509KeyPair(cfg.TLSCert, cfg.TLSKey)
	if err != nil {
		l.Close()
		return nil, usagef("tls_cert and tls_key: %v", err)
	}
	return tls.NewListener(l, &tls.Config{
		Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"},
	}), nil
}

// serveOn runs everything until ctx ends or a part fails for good, and returns
// when all of it has stopped.
func (a *app) serveOn(ctx context.Context, cfg *serveConfig, d *door, st store.Store, k *lease.Keeper) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	held := newHeldRoles()
	queues, err := a.serveQueues(ctx, cfg, st, k.Instance())
	if err != nil {
		return err
	}
	defer queues.close()
	var mon *servedMonitor
	if cfg.Monitor != nil {
		if mon, err = a.serveMonitor(ctx, cfg, st, k, &queues.keepers); err != nil {
			return fmt.Errorf("monitor: %w", err)
		}
		queues.list = append(queues.list, mon.sinks...)
	}
	apiConfig := api.Config{
		Store: st, Hub: k.Hub(), Keepers: append([]*lease.Keeper{k}, queues.keepers.list...), Self: held.term, Roles: cfg.roleNames(),
		Dispatchers: queues.stats(),
		Token:       cfg.Token, Listen: d.addr, Version: version(), Logger: a.log,
	}
	var peer *servedCache
	if mon != nil {
		apiConfig.Monitor = mon.api()
	}
	if cfg.Cache != nil {
		if peer, err = a.cachePeer(cfg.Cache); err != nil {
			return fmt.Errorf("cache: %w", err)
		}
		defer peer.close() // if it never runs
		apiConfig.Cache, apiConfig.CacheType = peer.Peer, cfg.Cache.ContentType
	}
	shards, err := a.serveShards(cfg, st)
	if err != nil {
		return err
	}
	if shards != nil {
		apiConfig.Shards = shards.dir
	}
	server, err := api.New(apiConfig)
	if err != nil {
		return err
	}
	var parts sync.WaitGroup
	part := func(name string, run func(context.Context) error) {
		parts.Go(func() {
			if err := run(ctx); err != nil && ctx.Err() == nil {
				cancel(fmt.Errorf("%s: %w", name, err))
			}
		})
	}
	part("api", server.Run)
	shards.start(part)
	part("history", func(ctx context.Context) error { return trim(ctx, st, cfg.HistoryKeep, a.log) })
	for _, r := range cfg.Roles {
		part("role "+r.Role, func(ctx context.Context) error { return a.serveRole(ctx, k, r, held) })
	}
	defer queues.keepers.start(ctx, cancel)() // the sessions end when the queues have given everything back
	for _, q := range queues.list {
		part("queue "+q.cfg.Queue, q.run)
	}
	if mon != nil {
		mon.start(part)
	}
	peer.start(ctx, part)
	d.lead(server.Handler())
	part("http", d.wait)
	a.log.Info("serving", "url", cfg.scheme()+"://"+d.addr, "store", redact(a.storeURL), "roles", len(cfg.Roles), "queues", len(cfg.Queues), "cache", cfg.Cache != nil, "monitor", mon != nil, "sentinel", cfg.Sentinel.where())
	sdnotify.Ready()

	<-ctx.Done()
	sdnotify.Stopping()
	d.close(ctx)
	if mon != nil {
		mon.close()
	}
	parts.Wait()
	return context.Cause(ctx)
}

// serveRole campaigns for one role for as long as the server runs.
func (a *app) serveRole(ctx context.Context, k *lease.Keeper, r roleConfig, held *heldRoles) error {
	program := &guarded{app: a, argv: r.Command, stopGrace: time.Duration(r.StopGrace)}
	for {
		err := elect.Run(ctx, elect.Config{
			Keeper: k, Role: r.Role, Holders: r.Holders, With: r.With,
			StopGrace: time.Duration(r.StopGrace), Logger: a.log,
		}, func(ctx context.Context, term elect.Term) error {
			defer held.enter(term)()
			if len(r.Command) > 0 {
				return program.run(ctx, term)
			}
			<-ctx.Done()
			return context.Cause(ctx)
		})
		if ctx.Err() != nil {
			return nil
		}
		if errors.Is(err, lease.ErrInvalid) || errors.Is(err, lease.ErrUnsafeTiming) {
			return err
		}
		// The program ended by itself: the role was given back. Stand by again, not
		// at once, so that a program that cannot start does not spin.
		a.log.Warn("the program of a role ended; standing by again", "role", r.Role, "err", err, "in", k.Timing().Interval)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(k.Timing().Interval):
		}
	}
}

// trim keeps the history bounded.
func trim(ctx context.Context, st store.Store, keep int, log *slog.Logger) error {
	tick := time.NewTicker(10 * time.Minute)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		call, cancel := context.WithTimeout(ctx, 6*callTimeout)
		n, err := st.Trim(call, keep)
		cancel()
		if err != nil {
			log.Warn("the history could not be trimmed", "err", err)
		} else if n > 0 {
			log.Debug("history trimmed", "events", n)
		}
	}
}

// heldRoles knows which roles this process holds now.
type heldRoles struct {
	mu    sync.Mutex
	terms map[string]elect.Term
}

func newHeldRoles() *heldRoles { return &heldRoles{terms: map[string]elect.Term{}} }

func (h *heldRoles) enter(t elect.Term) (leave func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.terms[t.Role] = t
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.terms, t.Role)
	}
}

// term returns the term under which this process is primary of a role, if it may
// believe so now.
func (h *heldRoles) term(role string) (elect.Term, bool) {
	h.mu.Lock()
	t, ok := h.terms[role]
	h.mu.Unlock()
	return t, ok && t.Live.Valid()
}
