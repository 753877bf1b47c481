package server

import (
	"context"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"github.com/understudy-ha/understudy/api"
	"github.com/understudy-ha/understudy/internal/instance"
	"github.com/understudy-ha/understudy/internal/settings"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/monitor"
	"github.com/understudy-ha/understudy/monitor/intake"
	"github.com/understudy-ha/understudy/store"
)

// deadLetters is how many messages are kept that could not be read as beats.
const deadLetters = 200

// servedMonitor is an instance of the monitor, ready to run.
type servedMonitor struct {
	host   *instance.Host
	cfg    *settings.Monitor
	table  monitor.Store
	keeper *lease.Keeper // of the server
	origin string        // of the event names that this instance was started with

	inlet   *monitor.Intake
	watcher *monitor.Watcher
	http    *intake.HTTP
	routers []*intake.Router
	letters *intake.DeadLetters
	sinks   []servedQueue
	lead    *activePart
	mu      sync.Mutex         // of the event names
	names   settings.Monitored // that this instance would put into force

	reading sync.WaitGroup // routers that may still bring beats
	shut    chan struct{}  // closed when nothing comes over HTTP any more
}

// serveMonitor makes an instance of the monitor. Nothing runs yet, but its own event
// names are in force, and the queues of its sinks are there.
func serveMonitor(ctx context.Context, h *instance.Host, cfg *settings.Server, st store.Store, k *lease.Keeper, keepers *claimKeepers) (*servedMonitor, error) {
	table, err := h.Monitor(st)
	if err != nil {
		return nil, err
	}
	queues, err := h.Queues(st)
	if err != nil {
		return nil, err
	}
	s := &servedMonitor{
		host: h, cfg: cfg.Monitor, table: table, keeper: k, origin: originOf(cfg.From(), cfg.Name), letters: intake.NewDeadLetters(deadLetters),
		shut: make(chan struct{}),
	}
	s.lead, s.names = &activePart{mon: s, again: make(chan struct{}, 1)}, cfg.Monitor.Monitored
	if err := s.makeIntake(cfg); err != nil {
		return nil, err
	}
	if err := s.makeSinks(ctx, queues, keepers); err != nil {
		return nil, err
	}
	claims, err := keepers.of(cfg.Monitor.Windows())
	if err != nil {
		return nil, err
	}
	s.watcher, err = monitor.NewWatcher(monitor.WatcherConfig{
		Keeper: claims, Claims: queues.Claims(), Store: table, Windows: cfg.Monitor.Windows(),
		KeepAlarms: time.Duration(cfg.Monitor.KeepAlarms), Logger: h.Log,
		Self: monitor.Member{Process: os.Getpid(), Host: instance.Hostname(), Service: os.Getenv("SERVICE_NAME"), Sinks: cfg.Monitor.SinkNames()},
	})
	if err != nil {
		return nil, err
	}
	return s, s.addEvents(ctx)
}

// makeIntake makes the ways that beats take.
func (s *servedMonitor) makeIntake(cfg *settings.Server) (err error) {
	if s.inlet, err = monitor.NewIntake(monitor.IntakeConfig{Store: s.table, Logger: s.host.Log}); err != nil {
		return err
	}
	// Nothing comes through it here: it is proven for those that write into the store.
	s.inlet.OpenPath(settings.ProvenPath(settings.StorePath))
	keys, err := s.cfg.Keys()
	if err != nil {
		return err
	}
	over := intake.HTTPConfig{Flow: s.inlet.OpenPath(settings.ProvenPath("http")), Keys: keys, Letters: s.letters, Reports: s.table, Logger: s.host.Log}
	if cfg.Token != "" {
		over.Authorize = api.MayIngest
	}
	s.http, err = intake.NewHTTP(over)
	if err != nil {
		return err
	}
	for i := range s.cfg.Routers {
		c, err := s.cfg.Routers[i].Intake(cfg.Name + "-" + portOf(cfg.Listen))
		if err != nil {
			return err
		}
		c.Flow, c.Letters, c.Logger = s.inlet.OpenPath(settings.RouterPath(c)), s.letters, s.host.Log
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
		to, err := c.Target(s.host.Log)
		if err != nil {
			return err
		}
		q := servedQueue{host: s.host, cfg: c.Queue(), queues: queues}
		k, err := keepers.of(q.cfg.Windows())
		if err != nil {
			return err
		}
		if q.dispatcher, err = newDispatcher(ctx, s.host, queues, k, q.cfg, to); err != nil {
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
	s.host.Log.Info("monitoring", "sinks", len(s.sinks), "routers", len(s.routers), "sources_taken_over_within", s.watcher.WorstTakeover())
	if len(s.sinks) == 0 {
		s.host.Log.Warn("this instance has no sinks: others may, or nobody is told of alarms but those who look")
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
	return s.names.Configuration(s.origin)
}

// change puts other event names into force: at once if each instance adds its own, or if this
// one is the active one; otherwise when it becomes that.
func (s *servedMonitor) change(ctx context.Context, names settings.Monitored) error {
	if names.Keep {
		if err := s.configure(ctx, names.Configuration(s.origin)); err != nil {
			return err
		}
	}
	s.mu.Lock()
	s.names = names
	s.cfg.Monitored = names
	s.mu.Unlock()
	select {
	case s.lead.again <- struct{}{}:
	default: // it will look anyway
	}
	return nil
}

func portOf(listen string) string {
	_, port, _ := net.SplitHostPort(listen)
	return port
}
