package api

import (
	"fmt"
	"net/http"
	"time"

	"github.com/understudy-ha/understudy/api/apitype"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/monitor"
)

func (p *monitorPart) listAlarms(w http.ResponseWriter, r *http.Request) error {
	q := monitor.AlarmQuery{}
	var err error
	if q.Check, err = eitherFilter(r, "check", "event"); err != nil {
		return err
	}
	for name, to := range map[string]*string{"source": &q.Source, "before_id": &q.BeforeID} {
		if *to, err = filter(r, name); err != nil {
			return err
		}
	}
	if q.Standing, err = flag(r, "standing"); err != nil {
		return err
	}
	if text := r.URL.Query().Get("before"); text != "" {
		if q.Before, err = time.Parse(time.RFC3339Nano, text); err != nil {
			return fmt.Errorf("%w: before=%.50q: use a time as 2006-01-02T15:04:05Z", lease.ErrInvalid, text)
		}
	}
	after, err := afterCursor(r, 2)
	if err != nil {
		return err
	}
	if after != nil {
		q.BeforeID = after[1]
		if q.Before, err = time.Parse(time.RFC3339Nano, after[0]); err != nil {
			return fmt.Errorf("%w: after: %q is not a time", lease.ErrInvalid, after[0])
		}
	}
	if q.BeforeID != "" && q.Before.IsZero() {
		return fmt.Errorf("%w: before_id needs before", lease.ErrInvalid)
	}
	limit, err := number(r, "limit", 1, monitor.MaxPage, 100)
	if err != nil {
		return err
	}
	q.Limit = int(limit)
	alarms, err := p.table.Alarms(r.Context(), q)
	if err != nil {
		return err
	}
	out := apitype.Alarms{Alarms: make([]apitype.Alarm, 0, len(alarms))}
	for _, a := range alarms {
		out.Alarms = append(out.Alarms, viewAlarm(a))
		if len(out.Alarms) == q.Limit {
			out.Next = cursor(a.Raised.UTC().Format(time.RFC3339Nano), a.ID)
		}
	}
	return writeJSON(w, http.StatusOK, out)
}

func (p *monitorPart) getAlarm(w http.ResponseWriter, r *http.Request) error {
	if err := checkNames(r); err != nil {
		return err
	}
	id := r.PathValue("alarm")
	found, err := p.table.Alarms(r.Context(), monitor.AlarmQuery{ID: id, Limit: 1})
	if err == nil && len(found) == 0 {
		err = fmt.Errorf("%w: %.100q", monitor.ErrNoAlarm, id)
	}
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, viewAlarm(found[0]))
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
