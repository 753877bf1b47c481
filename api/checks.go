package api

import (
	"fmt"
	"net/http"

	"github.com/understudy-ha/understudy/api/apitype"
	"github.com/understudy-ha/understudy/monitor"
)

func (p *monitorPart) listChecks(w http.ResponseWriter, r *http.Request) error {
	seen, err := p.snapshot.fresh(r.Context(), monitorFresh)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, apitype.Checks{Checks: seen.view.Checks})
}

func (p *monitorPart) getCheck(w http.ResponseWriter, r *http.Request) error {
	seen, err := p.snapshot.fresh(r.Context(), monitorFresh)
	if err != nil {
		return err
	}
	for _, e := range seen.view.Checks {
		if e.Name == r.PathValue("check") {
			return writeJSON(w, http.StatusOK, e)
		}
	}
	return fmt.Errorf("%w: %.200q", monitor.ErrNoCheck, r.PathValue("check"))
}
