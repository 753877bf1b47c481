package api

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/internal/lru"
	"github.com/understudy-ha/understudy/job"
	"github.com/understudy-ha/understudy/lease"
)

// Limits on what the server takes on at once.
const (
	maxBody   = 64 << 10
	maxHeader = 16 << 10
	maxWaits  = 1000   // requests that wait for a lease or a shard: each holds a connection
	maxKnown  = 10_000 // leases and sessions in memory; the store has all of them
)

// Server answers the API. Its handler works while [Server.Run] runs.
type Server struct {
	cfg         Config
	log         *slog.Logger
	roles       atomic.Pointer[[]string] // that this process campaigns for
	notifier    *lease.Notifier
	ownNotifier bool
	router      *router
	stream      *stream
	poller      *poller

	takeovers    *takeovers
	leaseQuota   *quota
	sessionQuota *quota
	jobQuota     *quota
	sessions     *lru.Cache[string, lease.Session]
	waits        *places // of requests that wait
	streams      *places // of event streams

	queueAdmin  dispatch.Admin // nil when the store keeps no queues
	queues      *queueReader
	largeBodies *places // of long bodies that are being read

	jobs     job.Store // nil when the store keeps none
	jobsSeen *sharedRead[jobsSeen]

	cache    *cachePart
	monitor  *monitorPart
	shards   *shardPart
	overview *overview

	running context.Context // ends with Run, and with it streams and waits
	stop    context.CancelFunc
}

// New checks the configuration; errors wrap lease.ErrInvalid.
func New(cfg Config) (*Server, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	s := &Server{
		cfg: cfg, log: cfg.Logger, notifier: cfg.Notifier, router: newRouter(cfg),
		stream:     newStream(),
		sessions:   lru.New[string, lease.Session](maxKnown),
		waits:      newPlaces(maxWaits, cfg.Limits),
		streams:    newPlaces(maxStreams, cfg.Limits),
		queueAdmin: queueAdminOf(cfg.Store), jobs: jobsOf(cfg.Store), largeBodies: newPlaces(maxLargeBodies, cfg.Limits),
	}
	s.SetRoles(cfg.Roles)
	s.running, s.stop = context.WithCancel(context.Background())
	s.leaseQuota = newQuota(s.running, "leases", s.router.limit.limits.Leases, "delete some (understudy role forget), or raise limits.leases of the server", countLeases(cfg.Store))
	s.sessionQuota = newQuota(s.running, "live sessions", s.router.limit.limits.Leases, "end some, or raise limits.leases of the server", countSessions(cfg.Store))
	s.jobQuota = newQuota(s.running, "jobs", maxJobs, "forget some (understudy job forget)", countJobs(s.jobs))
	s.takeovers = newTakeovers(cfg.Store, cfg.Clock, s.leaseQuota)
	s.router.auth.tokens = newTokenCache(cfg.Store, s.running)
	s.jobsSeen = newJobsReader(s)
	s.queues = newQueueReader(s.running, s.queueAdmin)
	if s.notifier == nil {
		s.notifier, s.ownNotifier = lease.NewNotifier(cfg.Store, cfg.Clock, cfg.Logger), true
	}
	s.monitor = newMonitorPart(cfg, s.running)
	s.shards = newShardPart(cfg, s.waits, s.running)
	s.poller = newPoller(s)
	s.cache = newCachePart(cfg, s.router, s.running)
	s.overview = newOverview(s)
	s.router.mount(s.routes())
	return s, nil
}

// SetToken changes the configured token of a running server: the old one is refused from now on, and streams
// that it opened end. A server that has no token cannot be given one, nor lose the one it has, because that also
// decides where it may listen. Errors wrap lease.ErrInvalid.
func (s *Server) SetToken(token string) error {
	if err := checkToken(token); err != nil {
		return err
	}
	if (token == "") != (s.cfg.Token == "") {
		return fmt.Errorf("%w: whether there is a token cannot be changed while the server runs: restart it", lease.ErrInvalid)
	}
	s.router.auth.config.set(token)
	return nil
}

// SetRoles tells a running server which roles this process campaigns for from now on.
func (s *Server) SetRoles(names []string) { s.roles.Store(&names) }

// Handler answers all requests.
func (s *Server) Handler() http.Handler { return s.router }

// Polled is closed once the running server has tried to read the store. Before, /readyz says that it is not ready, whatever the store is.
func (s *Server) Polled() <-chan struct{} { return s.poller.polled }

// Run follows the store for the streams, /readyz and the metrics until ctx ends.
// Then it ends every stream and every request that waits, and returns nil.
func (s *Server) Run(ctx context.Context) error {
	defer s.stop()
	if s.ownNotifier {
		defer s.notifier.Start(ctx)()
	}
	s.poller.run(ctx)
	return nil
}

// NewHTTPServer returns a server with limits on what one connection may take:
// requests that wait and streams move their own deadlines.
func NewHTTPServer(h http.Handler, log *slog.Logger) *http.Server {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       15 * time.Second,
		WriteTimeout:      30 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
}
