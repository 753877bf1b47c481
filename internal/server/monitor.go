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

// keptRejected is how many messages are kept that could not be read as beats.
const keptRejected = 200

// servedMonitor is an instance of the monitor, ready to run.
type servedMonitor struct {
	host   *instance.Host
	cfg    *settings.Monitor
	table  monitor.Store
	queues store.Queues
	claims *claimKeepers // of sinks and sources
	keeper *lease.Keeper // of the server
	origin string        // of the checks that this instance was started with

	intake   *monitor.Intake
	watcher  *monitor.Watcher
	http     *intake.HTTP
	routers  []*intake.Router
	rejected *intake.RejectedInputs
	sinks    []servedQueue
	lead     *activePart
	mu       sync.Mutex         // of the checks
	names    settings.Monitored // that this instance would put into force

	reading sync.WaitGroup // what may still bring heartbeats from routers
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
		host: h, cfg: cfg.Monitor, table: table, queues: queues, claims: keepers, keeper: k, origin: originOf(cfg.From(), cfg.Name),
		rejected: intake.NewRejectedInputs(keptRejected), shut: make(chan struct{}),
	}
	s.lead, s.names = &activePart{mon: s, again: make(chan struct{}, 1), streams: onapStreams{mon: s}}, cfg.Monitor.Monitored
	if err := s.makeIntake(cfg); err != nil {
		return nil, err
	}
	for i := range s.cfg.Sinks {
		q, err := s.makeSink(ctx, &s.cfg.Sinks[i])
		if err != nil {
			return nil, err
		}
		s.sinks = append(s.sinks, q)
	}
	claims, err := keepers.of(cfg.Monitor.Windows())
	if err != nil {
		return nil, err
	}
	s.watcher, err = monitor.NewWatcher(monitor.WatcherConfig{
		Keeper: claims, Claims: queues.Claims(), Store: table, Windows: cfg.Monitor.Windows(),
		KeepAlarms: time.Duration(cfg.Monitor.KeepAlarms), PublicURL: cfg.Monitor.PublicURL, Logger: h.Log,
		Self: monitor.Member{Process: os.Getpid(), Host: instance.Hostname(), Service: os.Getenv("SERVICE_NAME"), Sinks: cfg.Monitor.SinkNames()},
	})
	if err != nil {
		return nil, err
	}
	if err := s.addChecks(ctx); err != nil {
		return nil, err
	}
	// So that the first heartbeat need not wait for the first scan. If the store does not answer, the scan will tell.
	call, cancel := context.WithTimeout(ctx, instance.CallTimeout)
	defer cancel()
	_ = s.watcher.Refresh(call)
	return s, nil
}

// makeIntake makes the ways that beats take.
func (s *servedMonitor) makeIntake(cfg *settings.Server) (err error) {
	if s.intake, err = monitor.NewIntake(monitor.IntakeConfig{Store: s.table, Logger: s.host.Log}); err != nil {
		return err
	}
	// Nothing comes through it here: it is proven for those that write into the store.
	s.intake.OpenPath(settings.ProvenPath(settings.StorePath))
	keys, err := s.cfg.Keys()
	if err != nil {
		return err
	}
	over := intake.HTTPConfig{
		Flow: s.intake.OpenPath(settings.ProvenPath("http")), Keys: keys, Rejected: s.rejected, Reports: s.table, Ready: s.ready, Logger: s.host.Log,
		AnyDomain: s.anyDomain, RejectUnknown: s.cfg.Unknown == "reject",
		TooManyWrong: api.TooManyWrongKeys, HasSentTooMany: api.HasSentTooManyWrongKeys,
	}
	if cfg.Token != "" {
		over.Authorize = api.MayIngest
	}
	s.http, err = intake.NewHTTP(over)
	if err != nil {
		return err
	}
	for i := range s.cfg.Routers {
		r, err := s.makeRouter(&s.cfg.Routers[i], cfg.Name+"-"+portOf(cfg.Listen))
		if err != nil {
			return err
		}
		s.routers = append(s.routers, r)
	}
	return nil
}

// makeRouter makes what reads a topic, as this consumer if the router does not say otherwise.
func (s *servedMonitor) makeRouter(from *settings.Router, consumer string) (*intake.Router, error) {
	c, err := from.Intake(consumer)
	if err != nil {
		return nil, err
	}
	c.Flow, c.Rejected, c.Logger, c.AnyDomain = s.intake.OpenPath(settings.RouterPath(c)), s.rejected, s.host.Log, s.anyDomain
	r, err := intake.NewRouter(c)
	if err != nil {
		return nil, fmt.Errorf("router %s: %w", c.Name, err)
	}
	return r, nil
}

// anyDomain is asked by the intake, which is made before the watcher that knows.
func (s *servedMonitor) anyDomain(check string) bool { return s.watcher.AnyDomain(check) }

// poll reads a topic until ctx ends, from the time on when there are checks: a router gives each message once.
func (s *servedMonitor) poll(ctx context.Context, r *intake.Router) {
	select {
	case <-ctx.Done():
	case <-s.watcher.Configured():
		_ = r.Run(ctx) // it returns nil
	}
}

// makeSink makes what delivers to a sink.
func (s *servedMonitor) makeSink(ctx context.Context, c *settings.Sink) (servedQueue, error) {
	to, err := c.Target(s.host.Log)
	if err != nil {
		return servedQueue{}, err
	}
	q := servedQueue{host: s.host, cfg: c.Queue(), queues: s.queues}
	k, err := s.claims.of(q.cfg.Windows())
	if err != nil {
		return servedQueue{}, err
	}
	if q.dispatcher, err = newDispatcher(ctx, s.host, s.queues, k, q.cfg, to); err != nil {
		return servedQueue{}, fmt.Errorf("sink %s: %w", c.Sink, err)
	}
	return q, nil
}

// ready is why heartbeats are not accepted yet; nil when they are.
func (s *servedMonitor) ready() error {
	select {
	case <-s.watcher.Configured():
		return nil
	default:
	}
	switch refused := s.lead.refused.Load(); {
	case refused != nil:
		return fmt.Errorf("%w: the first configuration was not applied: %s", monitor.ErrNotConfigured, *refused)
	case s.cfg.Config != nil:
		return fmt.Errorf("%w: waiting for the active instance to apply %s", monitor.ErrNotConfigured, s.cfg.Config)
	}
	return fmt.Errorf("%w: apply a first configuration (understudy monitor config apply FILE)", monitor.ErrNotConfigured)
}

// api is what the server shows of it.
func (s *servedMonitor) api() *api.Monitor {
	return &api.Monitor{HTTP: s.http, Intake: s.intake, Watcher: s.watcher, Routers: s.lead.streams.routers, Rejected: s.rejected, Ready: s.ready}
}

// start hands over what runs until the server stops; the sinks' queues are among
// those of the server. close must be called when the server answers no more.
func (s *servedMonitor) start(part func(name string, run func(context.Context) error)) {
	part("intake", s.store)
	for i, r := range s.routers {
		s.reading.Add(1)
		part("router "+s.cfg.Routers[i].Router, func(ctx context.Context) error {
			defer s.reading.Done()
			s.poll(ctx, r)
			return nil
		})
	}
	part("watcher", s.watcher.Run)
	s.reading.Add(1)
	part("monitor", func(ctx context.Context) error {
		defer s.reading.Done()
		return s.lead.run(ctx)
	})
	s.host.Log.Info("monitoring", "sinks", len(s.sinks), "routers", len(s.routers), "sources_taken_over_within", s.watcher.WorstTakeover())
	if len(s.sinks) == 0 && s.cfg.Config == nil {
		s.warnNoSinks()
	}
}

func (s *servedMonitor) warnNoSinks() {
	s.host.Log.Warn("this instance has no sinks: unless others have, alarms are only shown")
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
	return s.intake.Run(last)
}

// close tells that nothing comes over HTTP any more.
func (s *servedMonitor) close() { close(s.shut) }

// checks are those of this instance's own configuration.
func (s *servedMonitor) checks() monitor.Configuration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.names.Configuration(s.origin)
}

// change applies other checks: at once if each instance adds its own, or if this
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
	s.lead.wake()
	return nil
}

func portOf(listen string) string {
	_, port, _ := net.SplitHostPort(listen)
	return port
}
