package client

import (
	"context"
	"net/http"
	"time"

	"github.com/understudy-ha/understudy/api/apitype"
)

// RunQuery selects runs of a job, the latest first.
type RunQuery struct {
	Job    string
	State  string // only in this state
	Before string // Next of the page before, or a time in RFC 3339: only those scheduled before it
	Limit  int    // default 100, at most 1000
}

// LatestRun stands for the latest run of a job that has started.
const LatestRun = "latest"

// Jobs lists jobs by name, after one, limit at most.
func (c *Client) Jobs(ctx context.Context, after string, limit int) (apitype.Jobs, error) {
	return get[apitype.Jobs](ctx, c, "/v1/jobs", values("after", after, "limit", limit))
}

// Job returns a job; an [*Error] with the code no_job when there is none.
func (c *Client) Job(ctx context.Context, name string) (apitype.Job, error) {
	return get[apitype.Job](ctx, c, pathOf("jobs", name), nil)
}

// Runs lists runs of a job.
func (c *Client) Runs(ctx context.Context, q RunQuery) (apitype.Runs, error) {
	return get[apitype.Runs](ctx, c, pathOf("jobs", q.Job, "runs"), values("state", q.State, "before", q.Before, "limit", q.Limit))
}

// Run returns a run with its output, by its scheduled time in RFC 3339, or as [LatestRun].
func (c *Client) Run(ctx context.Context, name, run string) (apitype.RunOutput, error) {
	return get[apitype.RunOutput](ctx, c, pathOf("jobs", name, "runs", run), nil)
}

// TriggerJob queues a run at once and returns the job; the history shows by as who asked, here and below.
func (c *Client) TriggerJob(ctx context.Context, name, by string) (apitype.Job, error) {
	return c.actOnJob(ctx, name, "trigger", by)
}

// PauseJob stops the schedule of a job. A run that is on continues.
func (c *Client) PauseJob(ctx context.Context, name, by string) (apitype.Job, error) {
	return c.actOnJob(ctx, name, "pause", by)
}

// ResumeJob continues the schedule of a job.
func (c *Client) ResumeJob(ctx context.Context, name, by string) (apitype.Job, error) {
	return c.actOnJob(ctx, name, "resume", by)
}

func (c *Client) actOnJob(ctx context.Context, name, verb, by string) (apitype.Job, error) {
	return call[apitype.Job](ctx, c, http.MethodPost, pathOf("jobs", name, verb), nil, apitype.JobRequest{By: by})
}

// ForgetJob removes a job with all its runs. An instance that offers it adds it again.
func (c *Client) ForgetJob(ctx context.Context, name, by string) error {
	return c.do(ctx, http.MethodDelete, pathOf("jobs", name), values("by", by), nil, nil)
}

// RunName is the name of a run in the API.
func RunName(r apitype.Run) string { return r.Scheduled.UTC().Format(time.RFC3339Nano) }
