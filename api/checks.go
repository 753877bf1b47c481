package api

import (
	"fmt"
	"net/http"

	"github.com/understudy-ha/understudy/api/apitype"
	"github.com/understudy-ha/understudy/monitor"
)

func (p *monitorPart) listChecks(r *http.Request) (out apitype.Checks, err error) {
	q := queryOf(r)
	after, text, limit := q.name("after"), q.name("contains"), q.limit(monitor.MaxPage)
	if q.err != nil {
		return out, q.err
	}
	seen, err := p.snapshot.fresh(r.Context(), monitorFresh)
	name := func(c apitype.CheckCount) string { return c.Name }
	out.Checks, out.Next = pageOf(matching(seen.view.Checks, text, name), after, limit, name)
	return out, err
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
