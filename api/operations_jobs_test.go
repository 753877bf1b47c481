package api

import "github.com/understudy-ha/understudy/api/apitype"

var jobAnswer = []reply{{200, "The job as it is now", apitype.Job{}, ""}}

var operationsOfJobs = map[string]operation{
	"GET /v1/jobs": {
		id: "listJobs", tag: "jobs",
		summary: "List the jobs",
		params:  []param{{name: "after", about: "Only jobs whose names come after this one"}, contains, limit},
		answers: []reply{{200, "The jobs by name", apitype.Jobs{}, ""}},
	},
	"GET /v1/jobs/{job}": {
		id: "getJob", tag: "jobs",
		summary: "Tell how a job is doing, and when it runs next",
		answers: jobAnswer,
	},
	"PUT /v1/jobs/{job}": {
		id: "defineJob", tag: "jobs",
		summary:     "Add a job, or change when and how it runs",
		description: "For programs that take its runs from here: see POST /v1/jobs/{job}/runs/next. The definition that was stored last counts.",
		in:          apitype.JobDefinition{},
		answers:     jobAnswer,
	},
	"POST /v1/jobs/{job}/runs/next": {
		id: "nextRun", tag: "jobs",
		summary:     "Wait for the next run of a job, and get it",
		description: "The caller's session gets the job's lease, and runs it: renew the session meanwhile, and stop when that fails. Asking again while the run is on answers with the same run, so that a request whose answer was lost can be repeated.",
		params:      []param{{name: "wait", about: "How long to wait until a run is due, such as 30s; at most 1m. Default: not at all."}},
		in:          apitype.NextRun{},
		answers:     []reply{{200, "The run, which is the caller's to start", apitype.Run{}, ""}, {204, "Nothing came due", nil, ""}},
		errors:      "410",
		other:       map[int]string{409: "The term of an earlier holder (run_over)"},
	},
	"POST /v1/jobs/{job}/runs/{run}/end": {
		id: "endRun", tag: "jobs",
		summary:     "Say how a run ended",
		description: "What came due meanwhile is skipped or queued, as the job's overlap says, and the job's lease is released.",
		in:          apitype.RunEnd{},
		answers:     jobAnswer,
		errors:      "410",
		other:       map[int]string{409: "The run was ended by another instance, or is not on (run_over); the history has the result"},
	},
	"DELETE /v1/jobs/{job}": {
		id: "forgetJob", tag: "jobs",
		summary:     "Remove a job with all its runs",
		description: "An instance that still offers it adds it again. If an alarm of it is open, it goes once the sinks know that this has ended; a second request removes it at once.",
		params:      []param{by},
		answers:     []reply{{204, "It is removed", nil, ""}},
		other:       map[int]string{409: "A run of it is on (job_busy)"},
	},
	"POST /v1/jobs/{job}/trigger": {
		id: "triggerJob", tag: "jobs",
		summary:     "Run a job once, at once",
		description: "It runs on an instance that offers it, after the run that is on, if any. A paused job runs, too.",
		in:          apitype.JobRequest{},
		answers:     jobAnswer,
		other:       map[int]string{409: "As many runs are queued as can be (job_busy)"},
	},
	"POST /v1/jobs/{job}/pause": {
		id: "pauseJob", tag: "jobs",
		summary:     "Stop the schedule of a job",
		description: "A run that is on continues. Times that pass are skipped.",
		in:          apitype.JobRequest{},
		answers:     jobAnswer,
	},
	"POST /v1/jobs/{job}/resume": {
		id: "resumeJob", tag: "jobs",
		summary: "Continue the schedule of a job",
		in:      apitype.JobRequest{},
		answers: jobAnswer,
	},
	"GET /v1/jobs/{job}/runs": {
		id: "listRuns", tag: "jobs",
		summary: "List the runs of a job",
		params: []param{
			{name: "state", about: "Only runs in this state"},
			{name: "before", schema: `{"type": "string", "format": "date-time"}`, about: "Only runs that were scheduled before this time"},
			limit,
		},
		answers: []reply{{200, "The runs, the latest first; pass next back as before", apitype.Runs{}, ""}},
	},
	"GET /v1/jobs/{job}/runs/{run}": {
		id: "getRun", tag: "jobs",
		summary: "Show a run with the end of its output",
		answers: []reply{{200, "The run", apitype.RunOutput{}, ""}},
	},
}
