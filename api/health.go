package api

import (
	_ "embed"
	"net/http"

	"github.com/understudy-ha/understudy/api/apitype"
)

//go:embed openapi.json
var openapiJSON []byte

func healthz(w http.ResponseWriter, _ *http.Request) error {
	return writeJSON(w, http.StatusOK, apitype.Ready{Status: "up"})
}

// readyz tells whether the store answered in the last seconds. It does not ask
// the store, so that probes cost it nothing.
func (s *Server) readyz(w http.ResponseWriter, _ *http.Request) error {
	if _, ok := s.poller.readiness(); !ok {
		return errNotReady
	}
	return writeJSON(w, http.StatusOK, apitype.Ready{Status: "ready"})
}

func (s *Server) openapi(w http.ResponseWriter, _ *http.Request) error {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(openapiJSON)
	return nil
}
