package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/understudy-ha/understudy/cache"
	"github.com/understudy-ha/understudy/cache/protocol"
	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/internal/prometheus"
	"github.com/understudy-ha/understudy/lease"
)

// CachePeer is what the API needs of a [cache.Peer] that runs.
type CachePeer interface {
	Get(ctx context.Context, key string, o cache.GetOptions) (cache.Item, error)
	Peek(key string) (cache.Item, bool)
	Remove(ctx context.Context, scope protocol.Scope, name string) (confirmed, of int, err error)
	Keys(ctx context.Context, q cache.KeyQuery) ([]cache.KeyView, error)
	Cluster(ctx context.Context) (cache.ClusterView, error)
	Watch(ctx context.Context, each func(cache.Event)) error
	Stats() cache.Stats
}

// Cache answers for one peer of the cache, and for nothing else: values, keys,
// peers, metrics, health and the page. A [Server] with [Config].Cache answers the same under its own port.
type Cache struct {
	part   *cachePart
	router *router
	stop   context.CancelFunc
}

// NewCache checks the configuration, of which it wants the cache and what is about serving, and no store; errors wrap
// lease.ErrInvalid.
func NewCache(cfg Config) (*Cache, error) {
	if cfg.Cache == nil {
		return nil, fmt.Errorf("%w: there is no peer", lease.ErrInvalid)
	}
	if err := cfg.validateServing(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	c := &Cache{router: newRouter(cfg)}
	running, stop := context.WithCancel(context.Background())
	c.stop = stop
	c.part = newCachePart(cfg, c.router, running)
	c.router.mount(append(c.part.routes(), []route{
		{pattern: "GET /metrics", handle: serveMetrics(c.router.traffic.collect, c.part.collect, c.router.limit.limited.Collect, collectBuild(cfg.Version))},
		{pattern: "GET /healthz", handle: inJSON(healthz), open: true},
		{pattern: "GET /readyz", handle: inJSON(c.part.readyz), open: true},
		{pattern: "GET /openapi.json", handle: c.part.openapi},
	}...))
	return c, nil
}

// CheckMediaType refuses what is not a valid media type; "" is the default. Errors wrap
// lease.ErrInvalid.
func CheckMediaType(kind string) error {
	if kind == "" {
		return nil
	}
	if _, _, err := mime.ParseMediaType(kind); err != nil || !strings.Contains(kind, "/") {
		return fmt.Errorf("%w: %.100q is not a valid media type; write for instance application/json", lease.ErrInvalid, kind)
	}
	return nil
}

// Handler answers all requests.
func (c *Cache) Handler() http.Handler { return c.router }

// Close ends every stream and every request that waits.
func (c *Cache) Close() { c.stop() }

// Errors of the cache's routes alone.
var (
	errNoCache = errors.New("this server runs no peer of a cache; see cache: in its file, and understudy cache serve")
	errNotYet  = errors.New("there is no value yet")
	errNotHere = errors.New("there is no copy here that would do, and only what is here was asked for")
	errUnready = errors.New("this peer cannot fetch now")
)

// Waits of requests for values.
const (
	defaultTimeout = 5 * time.Second
	defaultWait    = 10 * time.Second
	maxFetchWait   = 5 * time.Minute
)

// cachePart answers the routes of the cache.
type cachePart struct {
	peer    CachePeer // nil: there is none
	router  *router
	running context.Context // streams and waits end with it
	streams *places
	version string
	acts    acts

	fixed fixedHeaders
	hot   *prometheus.Counter // values given
}

const (
	cachePath    = "/v1/cache/"
	cacheGet     = "GET " + cachePath + "{key}"
	cacheDelete  = "DELETE " + cachePath + "{key}"
	cacheStreams = 100
)

// newCachePart takes the requests for values on the router, before its multiplexer:
// a key may have slashes, in a row too, which the multiplexer would clean away.
func newCachePart(cfg Config, rt *router, running context.Context) *cachePart {
	c := &cachePart{
		peer: cfg.Cache, router: rt, running: running, streams: newPlaces(cacheStreams, cfg.Limits), version: cfg.Version,
		fixed: newFixedHeaders(cmp.Or(cfg.CacheType, dispatch.DefaultContentType)),
		hot:   rt.traffic.requests.Of(cacheGet, "200"),
	}
	if cfg.Store != nil {
		c.acts = acts{cfg.Store, cfg.Logger}
	}
	rt.direct = c.serveDirect
	return c
}

func (c *cachePart) routes() []route {
	out := guarded(c.checkPeer, []route{
		{pattern: "GET /v1/cache", handle: inJSON(c.list)},
		{pattern: "DELETE /v1/cache", handle: c.removeMany, long: true},
		{pattern: "POST /v1/cache-refresh", handle: c.refresh, long: true, unlimited: true},
		{pattern: "GET /v1/cache-peers", handle: inJSON(c.peers)},
		{pattern: "GET /v1/cache-events", handle: c.events, long: true},
	})
	return append(out, route{pattern: cacheGet, direct: true}, route{pattern: cacheDelete, direct: true})
}

func (c *cachePart) checkPeer(*http.Request) error {
	if c.peer == nil {
		return errNoCache
	}
	return nil
}

// waitContext bounds a request by what it asks for, by its caller, and by the server.
func (c *cachePart) waitContext(w http.ResponseWriter, r *http.Request, d time.Duration) (context.Context, context.CancelFunc) {
	if d > defaultWait {
		extendWriteDeadline(w, d+defaultWait)
	}
	p := &lazyDeadline{Context: r.Context(), running: c.running, until: time.Now().Add(d)}
	return p, p.end
}

// lazyDeadline is the context of a request that may have to wait. Most need not: its
// timer is created when Done is called.
type lazyDeadline struct {
	context.Context // the request's
	running         context.Context
	until           time.Time

	once  sync.Once
	inner context.Context
	stop  context.CancelFunc
}

func (p *lazyDeadline) start() {
	inner, cancel := context.WithDeadline(p.Context, p.until)
	stop := context.AfterFunc(p.running, cancel)
	p.inner, p.stop = inner, func() { stop(); cancel() }
}

// Deadline implements [context.Context].
func (p *lazyDeadline) Deadline() (time.Time, bool) { return p.until, true }

// Done implements [context.Context].
func (p *lazyDeadline) Done() <-chan struct{} {
	p.once.Do(p.start)
	return p.inner.Done()
}

// Err implements [context.Context].
func (p *lazyDeadline) Err() error {
	p.once.Do(p.start)
	return p.inner.Err()
}

// end lets go of what was made, and has nothing made after it.
func (p *lazyDeadline) end() {
	p.once.Do(func() { p.inner, p.stop = p.Context, func() {} })
	p.stop()
}

// minWait is that of a request that does not want to wait: time enough to be told
// what is here, or that nothing is.
const minWait = time.Millisecond

// waitFor reads how long a request wants to wait.
func waitFor(q *query, missing time.Duration) time.Duration {
	if !q.values.Has("wait") {
		return missing
	}
	return max(q.duration("wait", maxFetchWait, 0), minWait)
}
