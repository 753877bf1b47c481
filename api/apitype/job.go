package apitype

import "time"

// Job runs on a schedule, on one of the instances that offer it.
type Job struct {
	Name  string `json:"job"`
	State string `json:"state" enum:"scheduled,queued,running,overdue,paused,ended"`
	// Schedule is a crontab, a period or a date, with TZ=Zone before it where that is not UTC.
	Schedule   string    `json:"schedule"`
	Anchor     time.Time `json:"anchor,omitzero"`
	JitterMS   int64     `json:"jitter_ms"`
	DeadlineMS int64     `json:"deadline_ms"` // 0: none
	Overlap    string    `json:"overlap" enum:"forbid,queue,replace"`
	Missed     string    `json:"missed" enum:"one,skip,all"`
	Retries    int       `json:"retries"`
	Created    time.Time `json:"created"`
	PausedBy   string    `json:"paused_by,omitempty"`
	// ForgottenBy forgot it while its alarm stood: it goes once the sinks know of the end.
	ForgottenBy string `json:"forgotten_by,omitempty"`
	// Alarm is open until the next good run. AlarmHost is where its own webhook is.
	Alarm     *JobAlarm `json:"alarm,omitempty"`
	AlarmHost string    `json:"alarm_host,omitempty"`
	// Next are the next scheduled times: one in lists, five of a single job.
	Next []time.Time `json:"next"`
	Open []Run       `json:"open"` // runs that are queued or running
	Last *Run        `json:"last,omitempty"`
	// Recent is how the last 60 runs ended, the latest first, a letter each: s(ucceeded), f(ailed), t(imed out), c(ancelled), l(ost),
	// m(issed), k (skipped).
	Recent string `json:"recent"`
	// Ended counts the runs that have ended, by state.
	Ended map[string]int64 `json:"ended"`
}

// JobAlarm says that a job does not run as it should.
type JobAlarm struct {
	ID        string    `json:"id"` // of the messages about it
	Reason    string    `json:"reason" enum:"failed,timed_out,lost,missed,overdue"`
	Why       string    `json:"why,omitempty"`
	Scheduled time.Time `json:"scheduled"` // the run
	Raised    time.Time `json:"raised"`
	Cleared   time.Time `json:"cleared,omitzero"` // missing while it is open
	Sent      bool      `json:"sent"`             // sinks know that it was raised
	Tries     int       `json:"tries,omitempty"`  // to send what they do not know yet
	// NoSink: the job has no webhook and the store's monitor no sink, so that nobody is told.
	NoSink bool `json:"no_sink,omitempty"`
}

// Jobs is a list of jobs.
type Jobs struct {
	Jobs []Job  `json:"jobs"`
	Next string `json:"next,omitempty"`
}

// Run is one run of a job.
type Run struct {
	Scheduled time.Time `json:"scheduled"`         // its key
	Trigger   string    `json:"trigger,omitempty"` // who asked for it; missing: the schedule
	State     string    `json:"state" enum:"queued,running,succeeded,failed,timed_out,cancelled,lost,missed,skipped"`
	Attempt   int       `json:"attempt"`
	NotBefore time.Time `json:"not_before,omitzero"` // when a queued run may start
	Term      int64     `json:"term,omitempty"`
	Instance  string    `json:"instance,omitempty"` // the name of the one that runs or ran it
	Started   time.Time `json:"started,omitzero"`
	Ended     time.Time `json:"ended,omitzero"`
	// LateMS is how long after its time, and the jitter, it started, DurationMS how long it took, or has taken until now.
	LateMS     int64  `json:"late_ms,omitempty"`
	DurationMS int64  `json:"duration_ms,omitempty"`
	ExitCode   int    `json:"exit_code,omitempty"`
	Why        string `json:"why,omitempty"` // it ended so, or did not run
}

// Runs is a list of runs, the latest first.
type Runs struct {
	Runs []Run `json:"runs"`
	// Next is the scheduled time before which the next page begins.
	Next string `json:"next,omitempty"`
}

// RunOutput is a run with the end of what it has written.
type RunOutput struct {
	Run
	TotalBytes int64  `json:"total_bytes"` // written in all
	Output     []byte `json:"output"`      // the last 16 KiB of them
}

// JobRequest asks for something to be done about a job.
type JobRequest struct {
	By string `json:"by,omitempty"` // for the history
}

// JobDefinition is when and how a job runs.
type JobDefinition struct {
	// Schedule is a crontab, a period or a date, with TZ=Zone before it where that is not UTC.
	Schedule   string    `json:"schedule"`
	Anchor     time.Time `json:"anchor,omitzero"`       // what a period is counted from; default: when the job was added
	JitterMS   int64     `json:"jitter_ms,omitempty"`   // each run starts so much later at most
	DeadlineMS int64     `json:"deadline_ms,omitempty"` // after which the caller stops a run; 0: none
	Overlap    string    `json:"overlap,omitempty" enum:"forbid,queue"`
	Missed     string    `json:"missed,omitempty" enum:"one,skip,all"`
	Retries    int       `json:"retries,omitempty"` // declares that repeating a run does no harm
}

// NextRun asks for the next run that is due.
type NextRun struct {
	Session string `json:"session"` // it gets the job's lease
}

// RunEnd says how a run ended.
type RunEnd struct {
	Session  string `json:"session"` // that has the run
	Term     int64  `json:"term"`    // under which it ran
	State    string `json:"state" enum:"succeeded,failed,timed_out,cancelled"`
	ExitCode int    `json:"exit_code,omitempty"`
	Why      string `json:"why,omitempty"`
	Output   []byte `json:"output,omitempty"` // the last 16 KiB of what it wrote, in base64
}
