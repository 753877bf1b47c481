package api

import (
	_ "embed"
	"net/http"

	"github.com/understudy-ha/understudy/api/apitype"
)

//go:embed openapi.json
var openapiJSON []byte

func healthz(*http.Request) (apitype.Ready, error) { return apitype.Ready{Status: "up"}, nil }

// readyz reports whether the store answered reads and accepted writes in the last seconds, the monitor has checks, and a
// peer of the cache that the server runs may fetch; else why not. It does not ask the store, so that probes cost it
// nothing.
func (s *Server) readyz(r *http.Request) (apitype.Ready, error) {
	if err := s.poller.notReady(); err != nil {
		return apitype.Ready{}, err
	}
	if ready := s.monitor.own.Ready; ready != nil {
		if err := ready(); err != nil {
			return apitype.Ready{}, err
		}
	}
	if s.cache.peer != nil {
		return s.cache.readyz(r)
	}
	return apitype.Ready{Status: "ready"}, nil
}

func (s *Server) openapi(w http.ResponseWriter, _ *http.Request) error {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(openapiJSON)
	return nil
}
