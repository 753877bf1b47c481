package api

import (
	"fmt"
	"net/http"

	"github.com/understudy-ha/understudy/api/apitype"
	"github.com/understudy-ha/understudy/monitor"
)

func (p *monitorPart) listChecks(r *http.Request) (apitype.Checks, error) {
	seen, err := p.snapshot.fresh(r.Context(), monitorFresh)
	return apitype.Checks{Checks: seen.view.Checks}, err
}

func (p *monitorPart) getCheck(r *http.Request) (out apitype.CheckCount, err error) {
	seen, err := p.snapshot.fresh(r.Context(), monitorFresh)
	if err != nil {
		return out, err
	}
	for _, c := range seen.view.Checks {
		if c.Name == r.PathValue("check") {
			return c, nil
		}
	}
	return out, fmt.Errorf("%w: %.200q", monitor.ErrNoCheck, r.PathValue("check"))
}
