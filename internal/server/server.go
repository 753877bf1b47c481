package server

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/understudy-ha/understudy/api"
	"github.com/understudy-ha/understudy/internal/backoff"
	"github.com/understudy-ha/understudy/internal/instance"
	"github.com/understudy-ha/understudy/internal/memtrim"
	"github.com/understudy-ha/understudy/internal/sdnotify"
	"github.com/understudy-ha/understudy/internal/settings"
	"github.com/understudy-ha/understudy/internal/shardagent"
	"github.com/understudy-ha/understudy/internal/termtext"
	"github.com/understudy-ha/understudy/job"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/store"
)

// Reload says how the configuration is read again, and when.
type Reload struct {
	// Load reads and checks it.
	Load func() (*settings.Server, error)
	// When gives a signal for each time that it is to be read.
	When <-chan os.Signal
}

// Run runs the server until ctx ends. again is how it reads its configuration again; nil is never.
func Run(ctx context.Context, h *instance.Host, cfg *settings.Server, again *Reload) error {
	enqueues := slices.ContainsFunc(cfg.Jobs, func(j settings.Job) bool { return j.Message != nil })
	for _, part := range []struct {
		feature string // of the store
		runs    bool
	}{{"queues", len(cfg.Queues) > 0 || enqueues}, {"jobs", len(cfg.Jobs) > 0}, {"sources", cfg.Monitor != nil}} {
		if part.runs {
			if err := h.CheckStoreSupports(part.feature); err != nil {
				return err
			}
		}
	}
	e, err := openEntrance(cfg, "the store has not been reached yet", h.Log)
	if err != nil {
		return err
	}
	defer e.closeAll(ctx)
	on := *h
	on.Connections = cfg.Connections()
	return on.Run(ctx, instance.Opening{Patient: true}, cfg.Instance(), func(ctx context.Context, st store.Store, k *lease.Keeper) error {
		return serveOn(ctx, &on, cfg, e, st, k, again)
	})
}

// serveOn runs everything until ctx ends or a part fails for good, and returns
// when all of it has stopped.
func serveOn(ctx context.Context, h *instance.Host, cfg *settings.Server, e *entrance, st store.Store, k *lease.Keeper, again *Reload) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	s := &served{host: h, entrance: e, cfg: cfg, store: st, keeper: k, held: newHeldRoles()}
	defer s.letGo()
	if err := s.makePatiently(ctx); err != nil {
		return err
	}
	if err := s.makeAgents(ctx); err != nil {
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
	e.Lead(s.server.Handler())
	part("http", e.Wait)
	// Who waits for READY=1 asks /readyz at once. The first poll has a deadline.
	select {
	case <-s.server.Polled():
	case <-ctx.Done():
	}
	part("watchdog", func(ctx context.Context) error { return watchServer(ctx, e, s.keepers) })
	h.Log.Info("serving", "url", cfg.Scheme()+"://"+e.Addr, "store", termtext.URL(h.StoreURL), "roles", len(cfg.Roles), "jobs", len(cfg.Jobs), "queues", len(cfg.Queues), "cache", cfg.Cache != nil,
		"monitor", s.monitor != nil, "sentinel", e.sentinelAt(), "shards", len(cfg.Shards), "dns", e.sockets.where(), "hooks", len(cfg.Hooks))
	sdnotify.Ready()
	parts.Go(func() { memtrim.AfterStart(ctx) })
	if again != nil {
		part("reload", func(ctx context.Context) error {
			return (&reloader{Reload: *again, served: s, roles: roles}).run(ctx)
		})
	}

	<-ctx.Done()
	sdnotify.Stopping()
	e.Close(ctx)
	if s.monitor != nil {
		s.monitor.close()
	}
	parts.Wait()
	return context.Cause(ctx)
}

// served are the parts of a server, ready to run.
type served struct {
	host *instance.Host
	*entrance
	cfg     *settings.Server
	store   store.Store
	keeper  *lease.Keeper
	keepers []*lease.Keeper // with those of the queues
	held    *heldRoles

	queues  *servedQueues
	jobs    *job.Config // nil without one, as what follows
	monitor *servedMonitor
	peer    *servedCache
	shards  *servedShards
	names   *servedNames
	hooks   *servedHooks
	agents  []*shardagent.Agent
	server  *api.Server
}

// make makes the parts. Nothing runs yet.
func (s *served) make(ctx context.Context) (err error) {
	h, cfg := s.host, s.cfg
	if s.queues, err = serveQueues(ctx, h, cfg, s.store, s.keeper.Instance()); err != nil {
		return err
	}
	if err := s.serveJobs(ctx); err != nil {
		return err
	}
	if cfg.Monitor != nil {
		if s.monitor, err = serveMonitor(ctx, h, cfg, s.store, s.keeper, &s.queues.keepers); err != nil {
			return fmt.Errorf("monitor: %w", err)
		}
		s.queues.list = append(s.queues.list, s.monitor.sinks...)
	}
	if cfg.Cache != nil {
		if s.peer, err = newCache(h.Log, cfg.Cache); err != nil {
			return fmt.Errorf("cache: %w", err)
		}
	}
	if s.shards, err = serveShards(h.Log, cfg, s.sentinel, s.store); err != nil {
		return err
	}
	if s.names, err = serveNames(cfg.DNS, s.entrance.sockets, h.Log, cfg.RoleNames(), s.store, s.keeper, s.shards); err != nil {
		return err
	}
	if s.hooks, err = serveHooks(ctx, h.Log, cfg.Hooks, s.store, s.keeper, s.held); err != nil {
		return err
	}
	s.keepers = append([]*lease.Keeper{s.keeper}, s.queues.keepers.list...)
	of := s.api(s.Addr)
	if of.Clients, err = cfg.ClientScopes(); err != nil {
		return err
	}
	s.server, err = api.New(of)
	return err
}

// makePatiently makes the parts. While the store refuses what they need, as one does that accepts no writes, it tries again:
// probes are answered that the server is not ready, and why.
func (s *served) makePatiently(ctx context.Context) error {
	unmade := *s
	for retry := (backoff.Backoff{First: 100 * time.Millisecond, Most: 5 * time.Second}); ; {
		err := s.make(ctx)
		if err == nil || !instance.Unreachable(err) {
			return err
		}
		s.letGo()
		*s = unmade
		s.host.Log.Warn("the store cannot be reached; trying again", "err", err)
		s.Explain(lease.TruncateReason(err.Error()))
		if !retry.Wait(ctx) {
			return context.Cause(ctx)
		}
	}
}

// makeAgents makes the agents of the file.
func (s *served) makeAgents(ctx context.Context) error {
	for i, f := range s.beside {
		agent, err := f.OnStore(s.host, s.store)
		if err != nil {
			for _, made := range s.agents {
				made.GiveUp(ctx)
			}
			return fmt.Errorf("shard %q: %w", s.cfg.Shards[i].Shard, err)
		}
		s.agents = append(s.agents, agent)
	}
	return nil
}

// api is what the server shows of its parts.
func (s *served) api(addr string) api.Config {
	cfg := s.cfg
	out := api.Config{
		Store: s.store, Notifier: s.keeper.Notifier(), Keepers: s.keepers, Self: s.held.term, Roles: cfg.RoleNames(),
		Dispatchers: s.queues.stats(),
		Counters:    func() []api.Counter { return append(s.names.counters(), s.hooks.counters()...) },
		Demo:        s.demo, Token: cfg.Token, Limits: cfg.Limits.Limits(), Listen: addr, Version: s.host.Version, Logger: s.host.Log,
	}
	if s.cert != nil {
		out.CertificateExpires = s.cert.expires
	}
	if s.monitor != nil {
		out.Monitor = s.monitor.api()
		out.Dispatchers = append(out.Dispatchers, s.monitor.lead.streams.stats)
	}
	if s.peer != nil {
		out.Cache, out.CacheType = s.peer.Peer, cfg.Cache.ContentType
	}
	if s.shards != nil {
		out.Shards = s.shards.catalog
	}
	return out
}

// letGo lets go of what was made and never ran.
func (s *served) letGo() {
	if s.queues != nil {
		s.queues.close()
	}
	if s.peer != nil {
		s.peer.close()
	}
}

// startFirst starts what stands before queues and monitor.
func (s *served) startFirst(part func(string, func(context.Context) error)) *campaigns {
	log := s.host.Log
	part("api", s.server.Run)
	s.shards.start(part)
	s.names.start(part)
	s.hooks.start(part)
	part("history", func(ctx context.Context) error { return trim(ctx, s.store, s.cfg.HistoryKeep, log) })
	part("vacant", s.forgetVacant)
	roles := &campaigns{log: log, keeper: s.keeper, held: s.held, store: s.host.StoreURL, part: part, running: map[string]campaign{}}
	for _, role := range s.cfg.Roles {
		roles.start(role)
	}
	for _, agent := range s.agents {
		part("shard "+agent.Name(), agent.Run)
	}
	return roles
}

// startLast starts what claims keys, the jobs, and the peer of a cache, which it waits for.
func (s *served) startLast(ctx context.Context, part func(string, func(context.Context) error)) {
	for _, q := range s.queues.list {
		part("queue "+q.cfg.Queue, q.run)
	}
	if s.jobs != nil {
		part("jobs", func(ctx context.Context) error { return job.Serve(ctx, *s.jobs) })
	}
	if s.jobs != nil || s.monitor != nil {
		s.watchJobs(part)
	}
	if s.monitor != nil {
		s.monitor.start(part)
	}
	s.peer.start(ctx, part)
}

// each does something once per interval, until ctx ends.
func each(ctx context.Context, interval time.Duration, do func()) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			do()
		}
	}
}

// trim keeps the history bounded.
func trim(ctx context.Context, st store.Store, keep int, log *slog.Logger) error {
	each(ctx, 10*time.Minute, func() {
		call, cancel := context.WithTimeout(ctx, 6*instance.CallTimeout)
		defer cancel()
		n, err := st.Trim(call, keep)
		if err != nil {
			log.Warn("the history could not be trimmed", "err", err)
		} else if n > 0 {
			log.Debug("history trimmed", "events", n)
		}
	})
	return nil
}
