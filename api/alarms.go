package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/understudy-ha/understudy/api/apitype"
	"github.com/understudy-ha/understudy/internal/jobalarm"
	"github.com/understudy-ha/understudy/job"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/monitor"
)

// alarmRoutes are those of all alarms: of the monitor's sources, and of jobs, which are of the check "job".
func (s *Server) alarmRoutes() []route {
	check := func(r *http.Request) error {
		if s.jobs != nil {
			return nil // Redis has jobs and no monitor
		}
		return s.monitor.checkTable(r)
	}
	return guarded(check, []route{
		{pattern: "GET /v1/alarms", handle: inJSON(s.listAlarms)},
		{pattern: "GET /v1/alarms/{alarm}", handle: inJSON(s.getAlarm)},
		{pattern: "POST /v1/alarms/{alarm}/acknowledge", handle: s.acknowledgeAlarm},
	})
}

func (s *Server) listAlarms(r *http.Request) (out apitype.Alarms, err error) {
	params := queryOf(r)
	open, old := params.flag("open"), params.flag("standing") // the parameter's old name
	q := monitor.AlarmQuery{
		Check: params.name("check", "event"), Source: params.name("source"), Standing: open || old,
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
	if s.monitor.table != nil {
		alarms, err := s.monitor.table.Alarms(r.Context(), q)
		if err != nil {
			return out, err
		}
		out.Alarms = views(alarms, viewAlarm)
	}
	if cmp.Or(q.Check, job.Space) == job.Space {
		alarms, err := s.jobAlarms(r.Context(), func(a apitype.Alarm) bool { return isOnPage(a, q) })
		if err != nil {
			return out, err
		}
		out.Alarms = append(out.Alarms, alarms...)
		slices.SortFunc(out.Alarms, func(a, b apitype.Alarm) int { return compareAlarms(b, a.Raised, a.ID) })
	}
	out.Alarms = append([]apitype.Alarm{}, out.Alarms[:min(len(out.Alarms), q.Limit)]...)
	out.Next = nextAfter(out.Alarms, q.Limit, func(a apitype.Alarm) string { return cursor(a.Raised.UTC().Format(time.RFC3339Nano), a.ID) })
	return out, nil
}

// isOnPage reports whether a query selects the alarm of a job.
func isOnPage(a apitype.Alarm, q monitor.AlarmQuery) bool {
	return (q.Source == "" || q.Source == a.Source) && (!q.Standing || a.Ended.IsZero()) && (q.Before.IsZero() || compareAlarms(a, q.Before, q.BeforeID) < 0)
}

// compareAlarms compares an alarm with a place in the list, which is by time and by ID.
func compareAlarms(a apitype.Alarm, raised time.Time, id string) int {
	return cmp.Or(a.Raised.Compare(raised), strings.Compare(a.ID, id))
}

// jobAlarms are the alarms of jobs, those that are wanted.
func (s *Server) jobAlarms(ctx context.Context, wanted func(apitype.Alarm) bool) (out []apitype.Alarm, err error) {
	if s.jobs == nil {
		return nil, nil
	}
	const page = 1000
	for after := ""; ; {
		all, _, err := s.jobs.List(ctx, job.Query{After: after, Limit: page})
		if err != nil {
			return nil, err
		}
		for _, j := range all {
			if j.Alarm.ID == "" {
				continue
			}
			if a := viewJobAlarm(j); wanted(a) {
				out = append(out, a)
			}
		}
		if len(all) < page {
			return out, nil
		}
		after = all[page-1].Name
	}
}

// viewJobAlarm shows the alarm of a job as receivers get it. One that has ended is kept until they know.
func viewJobAlarm(j job.Job) apitype.Alarm {
	a := j.Alarm
	out := apitype.Alarm{
		ID: a.ID, Check: job.Space, Source: j.Name, Labels: jobalarm.Labels(j, a), Reason: string(a.Reason), Why: a.Why,
		Started: a.Scheduled.UTC(), Raised: a.Raised.UTC(),
	}
	switch {
	case a.Again.State != "": // it stands again, and they are told of its first end before
		out.Reason, out.Why = string(a.Again.State), a.Again.Why
	case !a.Cleared.IsZero():
		out.Ended, out.End = a.Cleared.UTC(), string(monitor.Abated)
		if j.ForgottenBy != "" {
			out.End = string(monitor.Forget)
		}
	}
	return out
}

func (s *Server) getAlarm(r *http.Request) (out apitype.Alarm, err error) {
	if err := checkNames(r); err != nil {
		return out, err
	}
	id := r.PathValue("alarm")
	if s.monitor.table != nil {
		found, err := s.monitor.table.Alarms(r.Context(), monitor.AlarmQuery{ID: id, Limit: 1})
		if err != nil {
			return out, err
		}
		if len(found) > 0 {
			return viewAlarm(found[0]), nil
		}
	}
	found, err := s.jobAlarms(r.Context(), func(a apitype.Alarm) bool { return a.ID == id })
	if err == nil && len(found) == 0 {
		err = fmt.Errorf("%w: %.100q", monitor.ErrNoAlarm, id)
	}
	if err != nil {
		return out, err
	}
	return found[0], nil
}

// acknowledgeAlarm acknowledges an alarm of a source. That of a job ends with its next good run, and has no reminders to stop.
func (s *Server) acknowledgeAlarm(w http.ResponseWriter, r *http.Request) error {
	err := errNoMonitor
	if s.monitor.table != nil {
		err = s.monitor.action(monitor.ActionAcknowledge)(w, r)
	}
	if !errors.Is(err, monitor.ErrNoAlarm) && !errors.Is(err, errNoMonitor) {
		return err
	}
	if a, e := s.getAlarm(r); e == nil && a.Check == job.Space {
		return fmt.Errorf("%w: this is the alarm of job %q, which ends with its next good run; only alarms of sources are acknowledged", lease.ErrInvalid, a.Source)
	}
	return err
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
