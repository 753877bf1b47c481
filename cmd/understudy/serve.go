package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/understudy-ha/understudy/api"
	"github.com/understudy-ha/understudy/internal/sdnotify"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/store"
)

// serveFlags are what the command line says of the server. It goes before the environment,
// and that before the file.
type serveFlags struct {
	file, listen, sentinel, store string
}

func (a *app) serveCommand() *cobra.Command {
	var f serveFlags
	c := &cobra.Command{
		Use:   "serve [-c FILE]",
		Short: "Serve the page and the HTTP API, and run every part that a file configures",
		Long: `Serve the page, the HTTP API (/v1, described at /openapi.json), server-sent events,
/metrics, /healthz and /readyz on one port, and run what the file lists: campaign for roles, deliver
queues, monitor, be the peer of a cache, stand beside the nodes of shards. "understudy config example" prints a
file with every key. It listens on 127.0.0.1:7600 unless told otherwise; any other address needs a token. With
--sentinel it also answers clients that find the primaries of shards through Redis Sentinel.

A flag goes before the environment (UNDERSTUDY_LISTEN and so on), and that before the file.

SIGINT and SIGTERM stop it: the programs first, then the roles and keys are given back. SIGHUP reads the file
again: certificate, token, log level, roles that are new or gone and the monitor's events change at once; of
everything else the log says that it waits for a restart. A file with a mistake changes nothing.`,
		Example: `  understudy serve
  understudy serve -c /etc/understudy.yaml
  understudy serve --store postgres://db/app --listen 127.0.0.1:9000`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if c.Flags().Changed("store") {
				f.store = a.storeURL
			}
			load := func() (*serveConfig, error) { return readConfigWith(f.file, os.Environ(), a.over(f)) }
			cfg, err := load()
			if err != nil {
				return err
			}
			r := &reloader{app: a, load: load, cfg: cfg, hup: make(chan os.Signal, 1)}
			signal.Notify(r.hup, syscall.SIGHUP)
			defer signal.Stop(r.hup)
			if err := a.logAs(cfg.LogLevel, cfg.LogFormat); err != nil {
				return err
			}
			tellEnv(a.log, environTaken(), os.Environ())
			if cfg.Store != "" {
				a.storeURL = cfg.Store
			}
			return a.serve(c.Context(), cfg, r)
		},
	}
	c.Flags().StringVarP(&f.file, "config", "c", "", "configuration `FILE`")
	c.Flags().StringVar(&f.listen, "listen", "", "`ADDRESS` to listen on (default "+defaultListen+")")
	c.Flags().StringVar(&f.sentinel, "sentinel", "", "answer Sentinel clients on this `ADDRESS`, HOST:PORT (default: not at all)")
	return c
}

// over puts what the command line says in the place of what the file says.
func (a *app) over(f serveFlags) func(*serveConfig) {
	return func(c *serveConfig) {
		if f.store != "" {
			c.Store, c.StoreFile = f.store, ""
		}
		c.Listen = cmp.Or(f.listen, c.Listen)
		c.LogLevel, c.LogFormat = cmp.Or(a.logLevel, c.LogLevel), cmp.Or(a.logFormat, c.LogFormat)
		if f.sentinel == "" {
			return
		}
		if c.Sentinel == nil {
			c.Sentinel = &sentinelConfig{}
		}
		c.Sentinel.Listen = f.sentinel
	}
}

// serve runs the server until ctx ends; r reads its file again when it is told to, and nil never
// does.
func (a *app) serve(ctx context.Context, cfg *serveConfig, r *reloader) error {
	listener, err := a.listen(cfg)
	if err != nil {
		return err
	}
	d := openDoor(listener, a.log, "the store has not been reached yet")
	defer d.close(ctx)
	if err := cfg.Sentinel.open(); err != nil {
		return err
	}
	defer cfg.Sentinel.close()
	if err := cfg.DNS.open(); err != nil {
		return err
	}
	defer cfg.DNS.close()
	closeAgents, err := a.openAgents(cfg)
	if err != nil {
		return err
	}
	defer closeAgents()
	a.connections = cfg.connections()
	st, err := a.openPatiently(ctx, true)
	if err != nil {
		return stoppedWith(err)
	}
	defer st.Close()
	err = a.withKeeper(ctx, st, cfg.instance(), func(ctx context.Context, k *lease.Keeper) error {
		return a.serveOn(ctx, cfg, d, st, k, r)
	})
	if ctx.Err() != nil {
		return stoppedWith(err)
	}
	return err
}

// listen reads the certificate, if there is one, and listens.
func (a *app) listen(cfg *serveConfig) (_ net.Listener, err error) {
	if cfg.TLSCert != "" {
		if cfg.cert, err = openCertificate(cfg.TLSCert, cfg.TLSKey, a.log); err != nil {
			return nil, err
		}
	}
	return listen(cfg)
}

// listen refuses what is not safe to listen on.
func listen(cfg *serveConfig) (net.Listener, error) {
	if err := api.CheckListen(cfg.Listen, cfg.Token, cfg.BehindTLS || cfg.cert != nil); err != nil {
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
	if cfg.cert != nil {
		l = tls.NewListener(l, cfg.cert.config())
	}
	return l, nil
}

// serveOn runs everything until ctx ends or a part fails for good, and returns
// when all of it has stopped.
func (a *app) serveOn(ctx context.Context, cfg *serveConfig, d *door, st store.Store, k *lease.Keeper, r *reloader) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	s := &served{app: a, cfg: cfg, store: st, keeper: k, held: newHeldRoles()}
	defer s.close()
	if err := s.make(ctx, d); err != nil {
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
	roles := s.startFirst(part)
	defer s.queues.keepers.start(ctx, cancel)() // the sessions end when the queues have given everything back
	s.startLast(ctx, part)
	d.lead(s.server.Handler())
	part("http", d.wait)
	part("watchdog", func(ctx context.Context) error { return watchServer(ctx, d, s.keepers) })
	a.log.Info("serving", "url", cfg.scheme()+"://"+d.addr, "store", redact(a.storeURL), "roles", len(cfg.Roles), "queues", len(cfg.Queues), "cache", cfg.Cache != nil,
		"monitor", s.monitor != nil, "sentinel", cfg.Sentinel.where(), "shards", len(cfg.Shards), "dns", cfg.DNS.where(), "hooks", len(cfg.Hooks))
	sdnotify.Ready()
	if r != nil {
		part("reload", func(ctx context.Context) error {
			return r.run(ctx, live{roles: roles, monitor: s.monitor, server: s.server})
		})
	}

	<-ctx.Done()
	sdnotify.Stopping()
	d.close(ctx)
	if s.monitor != nil {
		s.monitor.close()
	}
	parts.Wait()
	return context.Cause(ctx)
}

// served are the parts of a server, ready to run.
type served struct {
	app     *app
	cfg     *serveConfig
	store   store.Store
	keeper  *lease.Keeper
	keepers []*lease.Keeper // with those of the queues
	held    *heldRoles

	queues  *servedQueues
	monitor *servedMonitor // nil without one, as what follows
	peer    *servedCache
	shards  *servedShards
	names   *servedNames
	hooks   *servedHooks
	agents  []servedAgent
	server  *api.Server
}

// make makes the parts. Nothing runs yet.
func (s *served) make(ctx context.Context, d *door) (err error) {
	a, cfg := s.app, s.cfg
	if s.queues, err = a.serveQueues(ctx, cfg, s.store, s.keeper.Instance()); err != nil {
		return err
	}
	if cfg.Monitor != nil {
		if s.monitor, err = a.serveMonitor(ctx, cfg, s.store, s.keeper, &s.queues.keepers); err != nil {
			return fmt.Errorf("monitor: %w", err)
		}
		s.queues.list = append(s.queues.list, s.monitor.sinks...)
	}
	if cfg.Cache != nil {
		if s.peer, err = a.cachePeer(cfg.Cache); err != nil {
			return fmt.Errorf("cache: %w", err)
		}
	}
	if s.shards, err = a.serveShards(cfg, s.store); err != nil {
		return err
	}
	if s.names, err = a.serveNames(cfg.DNS, cfg.roleNames(), s.store, s.keeper, s.shards); err != nil {
		return err
	}
	s.hooks = a.serveHooks(cfg.Hooks, s.store, s.keeper, s.held)
	s.keepers = append([]*lease.Keeper{s.keeper}, s.queues.keepers.list...)
	if s.server, err = api.New(s.api(d.addr)); err != nil {
		return err
	}
	s.agents, err = a.serveAgents(ctx, cfg, s.store)
	return err
}

// api is what the server shows of its parts.
func (s *served) api(addr string) api.Config {
	cfg := s.cfg
	out := api.Config{
		Store: s.store, Hub: s.keeper.Hub(), Keepers: s.keepers, Self: s.held.term, Roles: cfg.roleNames(),
		Dispatchers: s.queues.stats(),
		Counters:    func() []api.Counter { return append(s.names.counters(), s.hooks.counters()...) },
		Token:       cfg.Token, Limits: cfg.Limits.limits(), Listen: addr, Version: version(), Logger: s.app.log,
	}
	if cfg.cert != nil {
		out.CertificateExpires = cfg.cert.expires
	}
	if s.monitor != nil {
		out.Monitor = s.monitor.api()
	}
	if s.peer != nil {
		out.Cache, out.CacheType = s.peer.Peer, cfg.Cache.ContentType
	}
	if s.shards != nil {
		out.Shards = s.shards.dir
	}
	return out
}

// close lets go of what was made and never ran.
func (s *served) close() {
	if s.queues != nil {
		s.queues.close()
	}
	if s.peer != nil {
		s.peer.close()
	}
}

// startFirst starts what stands before queues and monitor.
func (s *served) startFirst(part func(string, func(context.Context) error)) *campaigns {
	a := s.app
	part("api", s.server.Run)
	s.shards.start(part)
	s.names.start(part)
	s.hooks.start(part)
	part("history", func(ctx context.Context) error { return trim(ctx, s.store, s.cfg.HistoryKeep, a.log) })
	roles := &campaigns{app: a, keeper: s.keeper, held: s.held, part: part, running: map[string]campaign{}}
	for _, role := range s.cfg.Roles {
		roles.start(role)
	}
	for _, agent := range s.agents {
		part("shard "+agent.name, func(ctx context.Context) error { return a.serveAgent(ctx, agent) })
	}
	return roles
}

// startLast starts what claims keys, and the peer of a cache, which it waits for.
func (s *served) startLast(ctx context.Context, part func(string, func(context.Context) error)) {
	for _, q := range s.queues.list {
		part("queue "+q.cfg.Queue, q.run)
	}
	if s.monitor != nil {
		s.monitor.start(part)
	}
	s.peer.start(ctx, part)
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
