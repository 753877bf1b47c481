package api

import (
	"cmp"
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/web"
)

// route is one operation of the API. Each is described in openapi.json.
type route struct {
	pattern string
	// open routes need no token.
	open bool
	// long routes bound their own time.
	long bool
	// body is the most bytes of the request's body; 0 is maxBody.
	body   int64
	handle func(http.ResponseWriter, *http.Request) error
}

// routes lists every operation. A part that is added brings its own list.
func (s *Server) routes() []route {
	return append(s.queueRoutes(), []route{
		{pattern: "GET /v1/roles", handle: s.listRoles},
		{pattern: "GET /v1/roles/{role}", handle: s.getRole},
		{pattern: "GET /v1/roles/{role}/self", handle: s.self, open: true},
		{pattern: "POST /v1/roles/{role}/resign", handle: s.resign},

		{pattern: "GET /v1/sessions", handle: s.listSessions},
		{pattern: "POST /v1/sessions", handle: s.startSession},
		{pattern: "POST /v1/sessions/{session}/renew", handle: s.renewSession},
		{pattern: "DELETE /v1/sessions/{session}", handle: s.endSession},

		{pattern: "GET /v1/leases/{space}", handle: s.listLeases},
		{pattern: "GET /v1/leases/{space}/{key}", handle: s.getLease},
		{pattern: "PUT /v1/leases/{space}/{key}", handle: s.putLease, long: true},
		{pattern: "DELETE /v1/leases/{space}/{key}", handle: s.releaseLease},

		{pattern: "GET /v1/history", handle: s.history},
		{pattern: "GET /v1/events", handle: s.events, long: true},

		{pattern: "GET /metrics", handle: s.metrics.serve},
		{pattern: "GET /healthz", handle: s.healthz, open: true},
		{pattern: "GET /readyz", handle: s.readyz, open: true},
		{pattern: "GET /openapi.json", handle: s.openapi},
	}...)
}

func (s *Server) queueRoutes() []route {
	const batches = "/v1/queues/{queue}/batches"
	out := []route{
		{pattern: "GET /v1/queues", handle: s.listQueues},
		{pattern: "POST /v1/queues", handle: s.makeQueue},
		{pattern: "GET /v1/queues/{queue}", handle: s.getQueue},
		{pattern: "GET /v1/queues/{queue}/keys", handle: s.listKeys},

		{pattern: "GET " + batches, handle: s.listBatches},
		{pattern: "POST " + batches, handle: s.addBatches, body: maxBatchBody, long: true},
		{pattern: "GET " + batches + "/{id}", handle: s.getBatch},
		{pattern: "GET " + batches + "/{id}/payload", handle: s.getPayload},
		{pattern: "POST " + batches + "/{id}/retry", handle: s.act(dispatch.Retry)},
		{pattern: "POST " + batches + "/{id}/skip", handle: s.act(dispatch.Skip)},
		{pattern: "POST " + batches + "/{id}/cancel", handle: s.act(dispatch.Cancel)},
	}
	for i := range out {
		out[i].handle = s.withDesk(out[i].handle)
	}
	return out
}

func (s *Server) mount(rt route) {
	observe := s.metrics.route(rt.pattern, rt.long)
	s.mux.HandleFunc(rt.pattern, func(w http.ResponseWriter, r *http.Request) {
		start := time.Now()
		out := &response{ResponseWriter: w}
		if err := s.admit(r, rt.open); err != nil {
			s.fail(out, r, err)
		} else if err := s.run(out, r, rt); err != nil {
			s.fail(out, r, err)
		}
		observe(out.status, time.Since(start))
	})
}

func (s *Server) run(w http.ResponseWriter, r *http.Request, rt route) error {
	r.Body = http.MaxBytesReader(w, r.Body, cmp.Or(rt.body, maxBody))
	if !rt.long {
		ctx, cancel := context.WithTimeout(r.Context(), s.cfg.Timeout)
		defer cancel()
		r = r.WithContext(ctx)
	}
	return rt.handle(w, r)
}

// mountPage serves the page's files: they hold no secrets and need no token.
func (s *Server) mountPage() {
	files := web.Handler()
	for _, name := range web.Paths() {
		pattern := "GET " + name
		if name == "/" {
			pattern = "GET /{$}"
		}
		s.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			if err := s.admit(r, true); err != nil {
				s.fail(&response{ResponseWriter: w}, r, err)
				return
			}
			files.ServeHTTP(w, r)
		})
	}
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
	h.Set("Cache-Control", "no-store")
	if handler, pattern := s.mux.Handler(r); pattern == "" {
		s.unmatched(w, r, handler)
		return
	}
	s.mux.ServeHTTP(w, r)
}

// unmatched answers what no route takes: the multiplexer knows whether it is the
// path or the method, and says it in plain text.
func (s *Server) unmatched(w http.ResponseWriter, r *http.Request, h http.Handler) {
	said := &silent{header: http.Header{}}
	h.ServeHTTP(said, r)
	err := errNoRoute
	if said.status == http.StatusMethodNotAllowed {
		w.Header().Set("Allow", said.header.Get("Allow"))
		err = errMethod
	}
	s.fail(&response{ResponseWriter: w}, r, err)
	s.metrics.requests.WithLabelValues("other", strconv.Itoa(said.status)).Inc()
}

// silent keeps the status and the header of an answer, and drops its body.
type silent struct {
	header http.Header
	status int
}

func (s *silent) Header() http.Header         { return s.header }
func (s *silent) WriteHeader(status int)      { s.status = status }
func (s *silent) Write(p []byte) (int, error) { return len(p), nil }

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

// lift lets an answer be written until d from now.
func lift(w http.ResponseWriter, d time.Duration) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(d))
}
