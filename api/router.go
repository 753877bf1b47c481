package api

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/understudy-ha/understudy/access"
	"github.com/understudy-ha/understudy/monitor/intake"
	"github.com/understudy-ha/understudy/web"
)

// handler answers a request, or returns why it does not.
type handler func(http.ResponseWriter, *http.Request) error

// route is one operation of the API. Each is described in openapi.json.
type route struct {
	pattern string
	// open routes need no token; keyed ones of them want to know of one that is shown.
	open, keyed bool
	// scope that a token needs. Default: read to GET, act for all else.
	scope access.Scope
	// manages: only the configured token will do.
	manages bool
	// costs: a GET makes the server fetch or change something, so that pages of other sites must not cause one.
	costs bool
	// unlimited routes have no limit on how often a caller may ask.
	unlimited bool
	// hidden routes are old names that openapi.json leaves out.
	hidden bool
	// long routes bound their own time.
	long bool
	// direct routes are answered before the multiplexer, by router.direct.
	direct bool
	// body is the most bytes of the request's body; 0 is maxBody.
	body int64
	// ownBodies: the handler itself bounds the memory of all its bodies.
	ownBodies bool
	handle    handler
}

// guarded returns the routes with a check before each of them; an error of it is their answer.
func guarded(check func(*http.Request) error, routes []route) []route {
	for i, to := range routes {
		routes[i].handle = func(w http.ResponseWriter, r *http.Request) error {
			if err := check(r); err != nil {
				return err
			}
			return to.handle(w, r)
		}
	}
	return routes
}

// hasOwnKey reports whether the path of a request to a keyed route is all that its sender needs: a signed link, or the UUID
// of a source. Its handler checks it.
func (to route) hasOwnKey(r *http.Request) bool {
	return to.scope != access.Ingest || intake.IsUUID(r.PathValue("id"))
}

// needs is the scope that a token needs.
func (to route) needs() access.Scope {
	switch {
	case to.scope != "":
		return to.scope
	case strings.HasPrefix(to.pattern, "GET "):
		return access.Read
	}
	return access.Act
}

// router leads requests to their routes: authorized, bounded, counted, and with one form of error.
type router struct {
	auth    authorizer
	limit   *limiter
	log     *slog.Logger
	timeout time.Duration // of a request that is not long
	mux     *http.ServeMux
	traffic *traffic
	bodies  bodyMemory
	// refusals of callers, for the log.
	refusals *refusals
	// direct answers what it takes without the multiplexer; it reports whether it did.
	direct func(w http.ResponseWriter, r *http.Request) bool
}

func newRouter(cfg Config) *router {
	return &router{
		auth: newAuthorizer(cfg), limit: newLimiter(cfg.Limits), log: cfg.Logger, timeout: cfg.Timeout, mux: http.NewServeMux(), traffic: newTraffic(),
		refusals: newRefusals(cfg.Logger),
	}
}

func (rt *router) mount(routes []route) {
	for _, r := range routes {
		if !r.direct {
			rt.mountOne(r)
		}
	}
	rt.mountPage()
}

func (rt *router) mountOne(to route) {
	rt.mux.HandleFunc(to.pattern, func(w http.ResponseWriter, r *http.Request) {
		start := time.Now()
		out := &response{ResponseWriter: w}
		who, err := rt.admit(r, to)
		if err == nil {
			err = rt.serve(out, withCaller(r, who), to)
		}
		if err != nil {
			rt.writeError(out, r, err)
		}
		rt.refusals.record(r, who, out.status, err)
		rt.traffic.observe(to, out.status, time.Since(start))
	})
}

// admit returns the caller if the route's handler may answer the request.
func (rt *router) admit(r *http.Request, to route) (caller, error) {
	who, err := rt.authorize(r, to)
	if err == nil {
		err = checkQuery(r, to)
	}
	return who, err
}

// authorize returns the caller if the route is for them and they are within their rate.
func (rt *router) authorize(r *http.Request, to route) (caller, error) {
	who, err := rt.auth.authorize(r, to)
	switch {
	// Guessing is limited by address, whatever token was tried, and apart from the address's valid requests.
	case errors.Is(err, errUnauthorized):
		return who, cmp.Or(rt.limit.allow(r, caller{}, wrongToken), err)
	case err != nil || to.unlimited || to.open && !to.keyed:
		return who, err
	}
	return who, rt.limit.allow(r, who, to.needs())
}

func (rt *router) serve(w http.ResponseWriter, r *http.Request, to route) error {
	r.Body = http.MaxBytesReader(w, r.Body, cmp.Or(to.body, maxBody))
	if to.keyed {
		r = r.WithContext(context.WithValue(r.Context(), limiterKey{}, rt.limit))
	}
	if !to.ownBodies {
		body := rt.bodies.count(r.Body)
		defer body.release()
		r.Body = body
	}
	if who := callerOf(r.Context()); to.long && who.hasToken() {
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		go rt.auth.cancelWhenRevoked(ctx, who, cancel)
		r = r.WithContext(ctx)
	}
	if !to.long {
		ctx, cancel := context.WithTimeout(r.Context(), rt.timeout)
		defer cancel()
		r = r.WithContext(ctx)
	}
	return to.handle(w, r)
}

// mountPage serves the page's files: they hold no secrets and need no token.
func (rt *router) mountPage() {
	files := web.Handler()
	for _, name := range web.Paths() {
		pattern := "GET " + name
		if name == "/" {
			pattern = "GET /{$}"
		}
		rt.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			if _, err := rt.auth.authorize(r, route{open: true}); err != nil {
				rt.writeError(&response{ResponseWriter: w}, r, err)
				return
			}
			files.ServeHTTP(w, r)
		})
	}
}

// ServeHTTP implements [http.Handler].
func (rt *router) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.TLS != nil {
		w.Header().Set("Strict-Transport-Security", "max-age=2592000")
	}
	if rt.direct != nil && rt.direct(w, r) {
		return
	}
	setSecurityHeaders(w.Header())
	if handler, pattern := rt.mux.Handler(r); pattern == "" {
		rt.serveUnmatched(w, r, handler)
		return
	}
	rt.mux.ServeHTTP(w, r)
}

// setSecurityHeaders sets what keeps browsers from making anything of an answer.
func setSecurityHeaders(h http.Header) {
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
	h.Set("Cache-Control", "no-store")
}

// serveUnmatched answers what no route takes: the multiplexer knows whether it is the
// path or the method, and says it in plain text.
func (rt *router) serveUnmatched(w http.ResponseWriter, r *http.Request, h http.Handler) {
	said := &headerRecorder{header: http.Header{}}
	h.ServeHTTP(said, r)
	err := errNoRoute
	if said.status == http.StatusMethodNotAllowed {
		w.Header().Set("Allow", said.header.Get("Allow"))
		err = errMethod
	}
	rt.writeError(&response{ResponseWriter: w}, r, err)
	rt.traffic.requests.Of("other", strconv.Itoa(said.status)).Inc()
}

// writeError answers with an error. Unexpected ones are logged and not shown: their text may hold secrets of the store.
func (rt *router) writeError(w *response, r *http.Request, err error) {
	p := problemOf(err)
	switch {
	case p.Code == "internal":
		rt.log.Error("request failed", "method", r.Method, "route", r.Pattern, "err", err)
	case p.Status >= http.StatusInternalServerError:
		rt.log.Debug("request failed", "method", r.Method, "route", r.Pattern, "err", err)
	}
	if w.status != 0 {
		return // the header is sent: the status cannot change any more
	}
	h := w.Header()
	if p.Status == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", `Bearer realm="understudy"`)
	}
	if lacks, ok := errors.AsType[scopeError](err); ok {
		h.Set("WWW-Authenticate", `Bearer realm="understudy", error="insufficient_scope", scope="`+string(lacks.need)+`"`)
	}
	if p.RetryAfterMS > 0 {
		h.Set("Retry-After", strconv.Itoa(int(math.Ceil(float64(p.RetryAfterMS)/1000))))
	}
	h.Set("Content-Type", "application/problem+json")
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(p)
}

// headerRecorder keeps the status and the header of an answer, and drops its body.
type headerRecorder struct {
	header http.Header
	status int
}

func (s *headerRecorder) Header() http.Header         { return s.header }
func (s *headerRecorder) WriteHeader(status int)      { s.status = status }
func (s *headerRecorder) Write(p []byte) (int, error) { return len(p), nil }

// response remembers the status that was answered.
type response struct {
	http.ResponseWriter
	status int
}

// WriteHeader implements [http.ResponseWriter].
func (r *response) WriteHeader(status int) {
	if r.status == 0 {
		r.status = status
	}
	r.ResponseWriter.WriteHeader(status)
}

// Write implements [http.ResponseWriter].
func (r *response) Write(p []byte) (int, error) {
	if r.status == 0 {
		r.status = http.StatusOK
	}
	return r.ResponseWriter.Write(p)
}

// Unwrap lets [http.ResponseController] reach the connection.
func (r *response) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// extendWriteDeadline lets an answer be written until d from now.
func extendWriteDeadline(w http.ResponseWriter, d time.Duration) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(d))
}
