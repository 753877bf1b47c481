package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/understudy-ha/understudy/api/apitype"
	"github.com/understudy-ha/understudy/job"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/store"
)

// errNoJobs: the store is SableDB.
var errNoJobs = errors.New("this server's store keeps no jobs; SQLite, PostgreSQL and Redis do")

func jobsOf(st any) job.Store {
	if j, ok := st.(store.Jobs); ok {
		return j.Jobs()
	}
	return nil
}

func (s *Server) jobRoutes() []route {
	check := func(*http.Request) error {
		if s.jobs == nil {
			return errNoJobs
		}
		return nil
	}
	return guarded(check, []route{
		{pattern: "GET /v1/jobs", handle: inJSON(s.listJobs)},
		{pattern: "GET /v1/jobs/{job}", handle: inJSON(s.getJob)},
		{pattern: "PUT /v1/jobs/{job}", handle: inJSON(s.defineJob)},
		{pattern: "DELETE /v1/jobs/{job}", handle: s.forgetJob},
		{pattern: "POST /v1/jobs/{job}/trigger", handle: inJSON(s.triggerJob)},
		{pattern: "POST /v1/jobs/{job}/pause", handle: inJSON(s.pauseJob)},
		{pattern: "POST /v1/jobs/{job}/resume", handle: inJSON(s.resumeJob)},
		{pattern: "GET /v1/jobs/{job}/runs", handle: inJSON(s.listRuns)},
		{pattern: "POST /v1/jobs/{job}/runs/next", handle: s.nextRun, long: true},
		{pattern: "POST /v1/jobs/{job}/runs/{run}/end", handle: inJSON(s.endRun)},
		{pattern: "GET /v1/jobs/{job}/runs/{run}", handle: inJSON(s.getRun)},
	})
}

// viewJob shows a job with so many of its next times.
func (s *Server) viewJob(ctx context.Context, j job.Job, now time.Time, times int) apitype.Job {
	d := j.Definition
	out := apitype.Job{
		Name: j.Name, State: stateOfJob(j, now), Schedule: d.Schedule, Anchor: d.Anchor, JitterMS: d.JitterMS, DeadlineMS: d.DeadlineMS,
		Overlap: string(d.Overlap), Missed: string(d.Missed), Retries: d.Retries, Created: j.Created, PausedBy: j.PausedBy, Recent: j.Recent,
		ForgottenBy: j.ForgottenBy, AlarmHost: urlHost(d.AlarmURL),
		Next: []time.Time{}, Open: views(j.Open, func(r job.Run) apitype.Run { return viewRun(j, r, now) }), Ended: map[string]int64{},
	}
	if !j.Next.IsZero() {
		out.Next = append([]time.Time{j.Next}, j.Upcoming(j.Next, times-1)...)
	}
	if a := j.Alarm; a.ID != "" {
		out.Alarm = &apitype.JobAlarm{ID: a.ID, Reason: string(a.Reason), Why: a.Why, Scheduled: a.Scheduled, Raised: a.Raised, Cleared: a.Cleared, Sent: a.Sent, Tries: a.Tries,
			NoSink: d.AlarmURL == "" && !s.monitor.mayHaveSinks(ctx)}
	}
	for state, n := range j.Ended {
		out.Ended[string(state)] = n
	}
	if j.Last.State != "" {
		last := viewRun(j, j.Last, now)
		out.Last = &last
	}
	return out
}

// urlHost is the part of a URL that can be shown: the rest may be a secret.
func urlHost(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return ""
	}
	return u.Host
}

// jobOverdue is the state of a job that should have run.
const jobOverdue = "overdue"

func stateOfJob(j job.Job, now time.Time) string {
	_, overdue := j.OverdueSince(now)
	_, running := j.Running()
	switch {
	case overdue:
		return jobOverdue
	case running:
		return "running"
	case j.PausedBy != "":
		return "paused"
	case len(j.Open) > 0:
		return "queued"
	case j.Next.IsZero():
		return "ended"
	}
	return "scheduled"
}

// viewRun shows a run of a job.
func viewRun(j job.Job, r job.Run, now time.Time) apitype.Run {
	out := apitype.Run{
		Scheduled: r.Scheduled, Trigger: r.Trigger, State: string(r.State), Attempt: r.Attempt, NotBefore: r.NotBefore, Term: r.Term,
		Instance: r.Instance.Name, Started: r.Started, Ended: r.Ended, ExitCode: r.ExitCode, Why: r.Why,
	}
	if !r.Started.IsZero() {
		end := r.Ended
		if end.IsZero() {
			end = now
		}
		out.LateMS, out.DurationMS = j.Late(r).Milliseconds(), end.Sub(r.Started).Milliseconds()
	}
	return out
}

func (s *Server) listJobs(r *http.Request) (out apitype.Jobs, err error) {
	q := queryOf(r)
	after, text, limit := q.name("after"), q.name("contains"), q.limit(1000)
	if q.err != nil {
		return out, q.err
	}
	if text != "" {
		return s.searchJobs(r.Context(), after, text, limit)
	}
	all, now, err := s.jobs.List(r.Context(), job.Query{After: after, Limit: limit})
	return apitype.Jobs{
		Jobs: views(all, func(j job.Job) apitype.Job { return s.viewJob(r.Context(), j, now, 1) }),
		Next: nextAfter(all, limit, func(j job.Job) string { return j.Name }),
	}, err
}

// searchJobs finds jobs whose names contain a text. One request reads maxSearched of them and leaves the rest to the next.
func (s *Server) searchJobs(ctx context.Context, after, text string, limit int) (apitype.Jobs, error) {
	const page = 1000
	name := func(j job.Job) string { return j.Name }
	out := apitype.Jobs{Jobs: []apitype.Job{}}
	for range maxSearched / page {
		all, now, err := s.jobs.List(ctx, job.Query{After: after, Limit: page})
		if err != nil {
			return out, err
		}
		for _, j := range matching(all, text, name) {
			if out.Jobs = append(out.Jobs, s.viewJob(ctx, j, now, 1)); len(out.Jobs) == limit {
				out.Next = j.Name
				return out, nil
			}
		}
		if after = nextAfter(all, page, name); after == "" {
			return out, nil
		}
	}
	out.Next = after
	return out, nil
}

func (s *Server) getJob(r *http.Request) (out apitype.Job, err error) {
	j, now, err := s.jobs.Get(r.Context(), r.PathValue("job"))
	if err != nil {
		return out, err
	}
	return s.viewJob(r.Context(), j, now, 5), nil
}

func (s *Server) listRuns(r *http.Request) (out apitype.Runs, err error) {
	q := queryOf(r)
	limit, state, before := q.limit(1000), q.name("state"), q.time("before", q.values.Get("before"))
	if state != "" && !slices.Contains(job.States(), job.State(state)) {
		q.refuse("state=%.50q: the states are %s", state, namesOf(job.States()))
	}
	if q.err != nil {
		return out, q.err
	}
	// A job that is not there has no runs; tell the two apart.
	j, now, err := s.jobs.Get(r.Context(), r.PathValue("job"))
	if err != nil {
		return out, err
	}
	all, err := s.jobs.Runs(r.Context(), job.RunQuery{Job: j.Name, Before: before, State: job.State(state), Limit: limit})
	return apitype.Runs{
		Runs: views(all, func(r job.Run) apitype.Run { return viewRun(j, r, now) }),
		Next: nextAfter(all, limit, func(r job.Run) string { return r.Scheduled.UTC().Format(time.RFC3339Nano) }),
	}, err
}

// getRun shows a run by its scheduled time, or the latest one that has started.
func (s *Server) getRun(r *http.Request) (out apitype.RunOutput, err error) {
	name, text := r.PathValue("job"), r.PathValue("run")
	j, now, err := s.jobs.Get(r.Context(), name)
	if err != nil {
		return out, err
	}
	run, err := s.findRun(r, name, text)
	if err != nil {
		return out, err
	}
	o, err := s.jobs.Output(r.Context(), job.RunKey{Job: name, Scheduled: run.Scheduled})
	if err != nil {
		return out, err
	}
	return apitype.RunOutput{Run: viewRun(j, run, now), TotalBytes: o.Total, Output: o.Tail}, nil
}

func (s *Server) findRun(r *http.Request, name, text string) (job.Run, error) {
	q := job.RunQuery{Job: name, Limit: 1000}
	var at time.Time
	if text != "latest" {
		var err error
		if at, err = time.Parse(time.RFC3339Nano, text); err != nil {
			return job.Run{}, fmt.Errorf("%w: run %.50q: use latest, or a scheduled time such as 2006-01-02T15:04:05Z", lease.ErrInvalid, text)
		}
		q.Before, q.Limit = at.Add(time.Millisecond), 1
	}
	all, err := s.jobs.Runs(r.Context(), q)
	if err != nil {
		return job.Run{}, err
	}
	for _, run := range all {
		if at.IsZero() && !run.Started.IsZero() || run.Scheduled.UnixMilli() == at.UnixMilli() {
			return run, nil
		}
	}
	return job.Run{}, fmt.Errorf("%w: job %q has no such run (%.50s)", job.ErrNotFound, name, text)
}

// changeJob does what is decided in the name of the caller, who may say who that is.
func (s *Server) changeJob(r *http.Request, said string, decide func(who string) job.Decision) (out apitype.Job, err error) {
	who, err := requesterOf(r, said)
	if err != nil {
		return out, err
	}
	name, now := r.PathValue("job"), time.Time{}
	j, err := s.jobs.Change(r.Context(), name, func(j job.Job, at time.Time) (job.Change, error) {
		now = at
		return decide(who)(j, at)
	})
	if err != nil {
		return out, err
	}
	return s.viewJob(r.Context(), j, now, 5), nil
}

func (s *Server) forgetJob(w http.ResponseWriter, r *http.Request) error {
	sinks := s.monitor.mayHaveSinks(r.Context())
	forget := func(who string) job.Decision {
		return func(j job.Job, now time.Time) (job.Change, error) {
			if !j.Alarm.Sent && j.Definition.AlarmURL == "" && !sinks {
				j.Alarm = job.Alarm{} // nobody shows it, and nobody will send its end
			}
			return job.Forget(who)(j, now)
		}
	}
	if _, err := s.changeJob(r, r.URL.Query().Get("by"), forget); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (s *Server) triggerJob(r *http.Request) (apitype.Job, error) { return s.actOnJob(r, job.Trigger) }
func (s *Server) pauseJob(r *http.Request) (apitype.Job, error)   { return s.actOnJob(r, job.Pause) }
func (s *Server) resumeJob(r *http.Request) (apitype.Job, error)  { return s.actOnJob(r, job.Resume) }

func (s *Server) actOnJob(r *http.Request, decide func(who string) job.Decision) (out apitype.Job, err error) {
	body, err := bodyOf[apitype.JobRequest](r)
	if err != nil {
		return out, err
	}
	return s.changeJob(r, body.By, decide)
}
