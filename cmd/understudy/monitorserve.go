package main

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/understudy-ha/understudy/api"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/monitor"
	"github.com/understudy-ha/understudy/monitor/intake"
	"github.com/understudy-ha/understudy/store"
)

// deadLetters is how many messages are kept that could not be read as beats.
const deadLetters = 200

// servedMonitor is an instance of the monitor, ready to run.
type servedMonitor struct {
	app    *app
	cfg    *monitorConfig
	table  monitor.Table
	keeper *lease.Keeper // of the server
	origin string        // of the event names that this instance was started with

	inlet   *monitor.Inlet
	watcher *monitor.Watcher
	http    *intake.HTTP
	routers []*intake.Router
	letters *intake.Letters
	sinks   []servedQueue
	lead    *activePart
	mu      sync.Mutex   // of the event names
	names   eventsConfig // that this instance would put into force

	reading sync.WaitGroup // routers that may still bring beats
	shut    chan struct{}  // closed when nothing comes over HTTP any more
}

// serveMonitor makes an instance of the monitor. Nothing runs yet, but its own event
// names are in force, and the queues of its sinks are there.
func (a *app) serveMonitor(ctx context.Context, cfg *serveConfig, st store.Store, k *lease.Keeper, keepers *claimKeepers) (*servedMonitor, error) {
	table, err := a.monitorOf(st)
	if err != nil {
		return nil, err
	}
	queues, err := a.queuesOf(st)
	if err != nil {
		return nil, err
	}
	s := &servedMonitor{
		app: a, cfg: cfg.Monitor, table: table, keeper: k, origin: originOf(cfg.file, cfg.Name), letters: intake.NewLetters(deadLetters),
		shut: make(chan struct{}),
	}
	s.lead, s.names = &activePart{mon: s, again: make(chan struct{}, 1)}, cfg.Monitor.eventsConfig
	if err := s.makeIntake(cfg); err != nil {
		return nil, err
	}
	if err := s.makeSinks(ctx, queues, keepers); err != nil {
		return nil, err
	}
	claims, err := keepers.of(cfg.Monitor.windows())
	if err != nil {
		return nil, err
	}
	s.watcher, err = monitor.NewWatcher(monitor.WatcherConfig{
		Keeper: claims, Claims: queues.Claims(), Table: table, Windows: cfg.Monitor.windows(),
		KeepAlarms: time.Duration(cfg.Monitor.KeepAlarms), Logger: a.log,
		Self: monitor.Member{Process: os.Getpid(), Host: hostname(), Service: os.Getenv("SERVICE_NAME"), Sinks: cfg.Monitor.sinkNames()},
	})
	if err != nil {
		return nil, err
	}
	return s, s.addEvents(ctx)
}

// makeIntake makes the ways that beats take.
func (s *servedMonitor) makeIntake(cfg *serveConfig) (err error) {
	if s.inlet, err = monitor.NewInlet(monitor.InletConfig{Intake: s.table, Logger: s.app.log}); err != nil {
		return err
	}
	// Nothing comes through it here: it is proven for those that write into the store.
	s.inlet.Path(monitorPath(storePath))
	keys, err := s.cfg.keys()
	if err != nil {
		return err
	}
	over := intake.HTTPConfig{Flow: s.inlet.Path(monitorPath("http")), Keys: keys, Letters: s.letters, Logger: s.app.log}
	if cfg.Token != "" {
		over.Authorize = api.MayIngest
	}
	s.http, err = intake.NewHTTP(over)
	if err != nil {
		return err
	}
	for i := range s.cfg.Routers {
		c, err := s.cfg.Routers[i].router(cfg.Name + "-" + portOf(cfg.Listen))
		if err != nil {
			return err
		}
		c.Flow, c.Letters, c.Logger = s.inlet.Path(routerPath(c)), s.letters, s.app.log
		r, err := intake.NewRouter(c)
		if err != nil {
			return fmt.Errorf("router %s: %w", c.Name, err)
		}
		s.routers = append(s.routers, r)
	}
	return nil
}

// makeSinks makes what tells the sinks.
func (s *servedMonitor) makeSinks(ctx context.Context, queues store.Queues, keepers *claimKeepers) error {
	for i := range s.cfg.Sinks {
		c := &s.cfg.Sinks[i]
		to, err := c.target(s.app.log)
		if err != nil {
			return err
		}
		q := servedQueue{app: s.app, cfg: c.queue(), queues: queues}
		k, err := keepers.of(q.cfg.windows())
		if err != nil {
			return err
		}
		if q.dispatcher, err = s.app.dispatcher(ctx, queues, k, q.cfg, to); err != nil {
			return fmt.Errorf("sink %s: %w", c.Sink, err)
		}
		s.sinks = append(s.sinks, q)
	}
	return nil
}

// api is what the server shows of it.
func (s *servedMonitor) api() *api.Monitor {
	return &api.Monitor{Intake: s.http, Inlet: s.inlet, Watcher: s.watcher, Routers: s.routers, Letters: s.letters}
}

// start hands over what runs until the server stops; the sinks' queues are among
// those of the server. close must be called when the server answers no more.
func (s *servedMonitor) start(part func(name string, run func(context.Context) error)) {
	part("intake", s.store)
	for i, r := range s.routers {
		s.reading.Add(1)
		part("router "+s.cfg.Routers[i].Router, func(ctx context.Context) error {
			defer s.reading.Done()
			return r.Run(ctx)
		})
	}
	part("watcher", s.watcher.Run)
	part("monitor", s.lead.run)
	s.app.log.Info("monitoring", "sinks", len(s.sinks), "routers", len(s.routers), "sources_taken_over_within", s.watcher.WorstTakeover())
	if len(s.sinks) == 0 {
		s.app.log.Warn("this instance has no sinks: others may, or nobody is told of alarms but those who look")
	}
}

// store stores beats for as long as any may come: somewhat longer than ctx.
func (s *servedMonitor) store(ctx context.Context) error {
	last, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	defer context.AfterFunc(ctx, func() {
		<-s.shut
		s.reading.Wait()
		stop()
	})()
	return s.inlet.Run(last)
}

// close tells that nothing comes over HTTP any more.
func (s *servedMonitor) close() { close(s.shut) }

// events are the event names of this instance's own configuration.
func (s *servedMonitor) events() monitor.Configuration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.names.configuration(s.origin)
}

// change puts other event names into force: at once if each instance adds its own, or if this
// one is the active one; otherwise when it becomes that.
func (s *servedMonitor) change(ctx context.Context, names eventsConfig) error {
	if names.Keep {
		if err := s.configure(ctx, names.configuration(s.origin)); err != nil {
			return err
		}
	}
	s.mu.Lock()
	s.names = names
	s.cfg.eventsConfig = names
	s.mu.Unlock()
	select {
	case s.lead.again <- struct{}{}:
	default: // it will look anyway
	}
	return nil
}
