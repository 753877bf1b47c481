package apitype

import "time"

// Source is what heartbeats are expected from.
type Source struct {
	Check    string            `json:"check"`
	Name     string            `json:"source"`
	Labels   map[string]string `json:"labels,omitempty"`
	Declared bool              `json:"declared"`
	State    string            `json:"state" enum:"up,down,paused,retired"`
	// CheckPaused: its check is paused, so that it is not judged either.
	CheckPaused bool `json:"check_paused,omitempty"`
	Running     bool `json:"running,omitempty"`
	// Last is when its last heartbeat came, and QuietMS how long ago; missing if none ever came.
	Last    time.Time `json:"last,omitzero"`
	QuietMS *int64    `json:"quiet_ms,omitempty"`
	Beats   int64     `json:"beats"`
	// Recent has a 1 for each of its last intervals in which a heartbeat came, otherwise a 0; the newest first.
	Recent string    `json:"recent,omitempty"`
	Sent   time.Time `json:"sent,omitzero"` // by the sender's clock
	Seq    int64     `json:"seq,omitempty"`
	Code   int       `json:"code,omitempty"`
	Path   string    `json:"path,omitempty"`
	// LeftMS is how long it may still be quiet, negative when that has ended; missing when it is not judged, or nothing
	// more is expected.
	LeftMS *int64    `json:"left_ms,omitempty"`
	Alarm  string    `json:"alarm,omitempty"` // that is open
	Reason string    `json:"reason,omitempty" enum:"silent,failed,overrun"`
	Since  time.Time `json:"since,omitzero"`
	Until  time.Time `json:"until,omitzero"` // when its pause ends by itself
	Note   string    `json:"note,omitempty"`
}

// Sources is a list of sources.
type Sources struct {
	Sources []Source `json:"sources"`
	Next    string   `json:"next,omitempty"`
}

// SourceAlarms is a source, what it reported last, and its latest alarms.
type SourceAlarms struct {
	Source
	Report *Report `json:"report,omitempty"` // missing if it never sent one
	Badge  string  `json:"badge"`            // path of its badge, which needs no token
	Alarms []Alarm `json:"alarms"`
}

// Report is what a source sent along with a ping.
type Report struct {
	At   time.Time `json:"at"`
	Kind string    `json:"kind" enum:"success,start,fail,log"`
	Code int       `json:"code,omitempty"` // exit status
	Run  string    `json:"run,omitempty"`
	Body string    `json:"body"` // the first 10,000 bytes; what cannot be shown is replaced
}

// Declaration makes a source known before its first heartbeat.
type Declaration struct {
	Check  string            `json:"check"`
	Source string            `json:"source"`
	Labels map[string]string `json:"labels,omitempty"`
}

// Declarations are sources to declare, all or none.
type Declarations struct {
	Sources []Declaration `json:"sources"`
}

// Declared says how many sources were declared, and how many of them are new.
type Declared struct {
	Declared int `json:"declared"`
	New      int `json:"new"`
}

// MonitorAction is what an operator asks of a source, a check or an alarm.
type MonitorAction struct {
	ForMS int64  `json:"for_ms,omitempty"` // how long the pause of a source lasts; 0 is until it is resumed
	Note  string `json:"note,omitempty"`   // for the history
	By    string `json:"by,omitempty"`     // for the history
}

// MonitorDone says what was done.
type MonitorDone struct {
	Done string `json:"done"`
}

// Alarm is one outage of a source, or the alarm of a job: that is of the check "job", the source is the job, and it is listed until
// its sinks know of its end.
type Alarm struct {
	ID     string `json:"id"` // the request id that its ONSET and its ABATED share
	Check  string `json:"check"`
	Source string `json:"source,omitempty"` // missing for the alarm of a group
	// Group that it was reported with; without a source it is that group's own alarm, and Members is how many sources
	// were reported with it.
	Group        string            `json:"group,omitempty"`
	Members      int               `json:"members,omitempty"`
	Labels       map[string]string `json:"labels,omitempty"`
	Reason       string            `json:"reason" enum:"silent,failed,overrun,timed_out,lost,missed,overdue"`
	Why          string            `json:"why,omitempty"` // of a job
	Started      time.Time         `json:"started"`
	Raised       time.Time         `json:"raised"`
	Ended        time.Time         `json:"ended,omitzero"` // missing while it is open
	End          string            `json:"end,omitempty" enum:"ABATED,retire,forget"`
	Acknowledged string            `json:"acknowledged,omitempty"` // by whom
	Reminders    int               `json:"reminders,omitempty"`    // that were sent until then
}

// Alarms is a list of alarms.
type Alarms struct {
	Alarms []Alarm `json:"alarms"`
	Next   string  `json:"next,omitempty"`
}

// Beat is a heartbeat of a source.
type Beat struct {
	Check  string `json:"event"`
	Source string `json:"source"`
	// Signal is "ok", which "" is too, "start" when a run starts, or "fail".
	Signal string `json:"signal,omitempty" enum:"ok,start,fail"`
	Code   int    `json:"code,omitempty"` // exit status of a run
	// Sent and Seq are the sender's own. A heartbeat with the same of both as the last one is a replay, and counts for
	// nothing.
	Sent time.Time `json:"sent,omitzero"`
	Seq  int64     `json:"seq,omitempty"`
}

// BeatsTaken says what became of heartbeats.
type BeatsTaken struct {
	Accepted int `json:"accepted"`
	Unknown  int `json:"unknown"` // of a check that is not configured, or a source that is not declared
	Bad      int `json:"bad"`
	// Errors of the first that were not accepted.
	Errors []BeatError `json:"errors,omitempty"`
}

// BeatError is why a heartbeat was not accepted; Index is its place among those sent.
type BeatError struct {
	Index  int    `json:"index"`
	Cause  string `json:"cause"`  // stable: look at this in programs
	Detail string `json:"detail"` // for operators
}

// CauseCheckFull is the cause of a [BeatError] whose source was not learned, as its check has learned as many as it may.
const CauseCheckFull = "check_full"
