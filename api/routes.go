package api

import (
	"net/http"
	"slices"

	"github.com/understudy-ha/understudy/access"
	"github.com/understudy-ha/understudy/dispatch"
)

// routes lists every operation. A part that is added brings its own list.
func (s *Server) routes() []route {
	return slices.Concat(s.queueRoutes(), s.jobRoutes(), s.alarmRoutes(), s.cache.routes(), s.monitor.routes(), s.shards.routes(), s.overview.routes(), s.tokenRoutes(), s.removalRoutes(), s.demoRoutes(), []route{
		{pattern: "GET /v1/series", handle: s.poller.series.get},

		{pattern: "GET /v1/roles", handle: inJSON(s.listRoles)},
		{pattern: "GET /v1/roles/{role}", handle: inJSON(s.getRole)},
		{pattern: "GET /v1/roles/{role}/self", handle: inJSON(s.self), open: true},
		{pattern: "POST /v1/roles/{role}/resign", handle: s.resign},

		{pattern: "GET /v1/sessions", handle: inJSON(s.listSessions)},
		{pattern: "POST /v1/sessions", handle: s.startSession},
		{pattern: "POST /v1/sessions/renew", handle: inJSON(s.renewSessions), unlimited: true},
		{pattern: "POST /v1/sessions/{session}/renew", handle: inJSON(s.renewSession), unlimited: true},
		{pattern: "DELETE /v1/sessions/{session}", handle: s.endSession, unlimited: true},

		{pattern: "GET /v1/leases/{space}", handle: inJSON(s.listLeases)},
		{pattern: "GET /v1/leases/{space}/{key}", handle: inJSON(s.getLease)},
		{pattern: "PUT /v1/leases/{space}/{key}", handle: s.putLease, long: true, unlimited: true},
		{pattern: "DELETE /v1/leases/{space}/{key}", handle: s.releaseLease, unlimited: true},
		{pattern: "GET /v1/leases/{space}/{key}/state", handle: inJSON(s.getState)},
		{pattern: "PUT /v1/leases/{space}/{key}/state", handle: s.putState, body: maxState, unlimited: true},

		{pattern: "GET /v1/history", handle: inJSON(s.history)},
		{pattern: "GET /v1/events", handle: s.events, long: true},

		{pattern: "GET /metrics", handle: serveMetrics(s.collectors()...)},
		{pattern: "GET /healthz", handle: inJSON(healthz), open: true},
		{pattern: "GET /readyz", handle: inJSON(s.readyz), open: true},
		{pattern: "GET /openapi.json", handle: s.openapi},
	})
}

// demoRoutes are those of a demonstration; a server has none.
func (s *Server) demoRoutes() []route {
	if s.cfg.Demo == nil {
		return nil
	}
	handle := func(w http.ResponseWriter, r *http.Request) error {
		s.cfg.Demo.ServeHTTP(w, r)
		return nil
	}
	return []route{
		{pattern: "GET /v1/demo", handle: handle, hidden: true},
		{pattern: "POST /v1/demo/{act}", handle: handle, hidden: true},
	}
}

func (s *Server) queueRoutes() []route {
	return withOldPaths(guarded(s.checkQueues, []route{
		{pattern: "GET /v1/queues", handle: inJSON(s.listQueues)},
		{pattern: "POST /v1/queues", handle: s.createQueue},
		{pattern: "GET /v1/queues/{queue}", handle: inJSON(s.getQueue)},
		{pattern: "GET /v1/queues/{queue}/keys", handle: inJSON(s.listKeys)},

		{pattern: "GET " + messagesPath, handle: inJSON(s.listMessages)},
		{pattern: "POST " + messagesPath, handle: s.addMessages, scope: access.Ingest, body: maxMessagesBody, long: true},
		{pattern: "GET " + messagesPath + "/{id}", handle: inJSON(s.getMessage)},
		{pattern: "GET " + messagesPath + "/{id}/payload", handle: s.getPayload},
		{pattern: "POST " + messagesPath + "/{id}/retry", handle: inJSON(s.retryMessage)},
		{pattern: "POST " + messagesPath + "/{id}/skip", handle: s.messageAction(dispatch.Skip)},
		{pattern: "POST " + messagesPath + "/{id}/cancel", handle: s.messageAction(dispatch.Cancel)},
	}))
}
