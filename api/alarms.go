package api

import (
	"fmt"
	"net/http"
	"time"

	"github.com/understudy-ha/understudy/api/apitype"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/monitor"
)

func (p *monitorPart) listAlarms(r *http.Request) (out apitype.Alarms, err error) {
	params := queryOf(r)
	q := monitor.AlarmQuery{
		Check: params.name("check", "event"), Source: params.name("source"), Standing: params.flag("standing"),
		Before: params.time("before", params.values.Get("before")), BeforeID: params.name("before_id"), Limit: params.limit(monitor.MaxPage),
	}
	if after := params.cursor(2); after != nil {
		q.Before, q.BeforeID = params.time("after", after[0]), after[1]
	}
	if q.BeforeID != "" && q.Before.IsZero() {
		params.refuse("before_id needs before")
	}
	if params.err != nil {
		return out, params.err
	}
	alarms, err := p.table.Alarms(r.Context(), q)
	next := nextAfter(alarms, q.Limit, func(a monitor.Alarm) string { return cursor(a.Raised.UTC().Format(time.RFC3339Nano), a.ID) })
	return apitype.Alarms{Alarms: views(alarms, viewAlarm), Next: next}, err
}

func (p *monitorPart) getAlarm(r *http.Request) (out apitype.Alarm, err error) {
	if err := checkNames(r); err != nil {
		return out, err
	}
	id := r.PathValue("alarm")
	found, err := p.table.Alarms(r.Context(), monitor.AlarmQuery{ID: id, Limit: 1})
	if err != nil {
		return out, err
	}
	if len(found) == 0 {
		return out, fmt.Errorf("%w: %.100q", monitor.ErrNoAlarm, id)
	}
	return viewAlarm(found[0]), nil
}

// checkNames refuses a path with names that nothing can have.
func checkNames(r *http.Request) error {
	for _, name := range []string{"check", "source", "alarm"} {
		if text := r.PathValue(name); text != "" {
			if err := lease.ValidateText(name, text, 1, monitor.MaxName); err != nil {
				return err
			}
		}
	}
	return nil
}
