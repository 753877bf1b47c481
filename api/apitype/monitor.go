package apitype

import "time"

// Monitor is the monitor at a glance.
type Monitor struct {
	Checks   []CheckCount    `json:"checks"`
	Paths    []Path          `json:"paths"`
	Sinks    []string        `json:"sinks"`
	Open     int64           `json:"open"`     // how many alarms are
	Standing int64           `json:"standing"` // the old name of open
	Members  []MonitorMember `json:"members"`
	// Configured is when a configuration was last applied, and Origin where it came from.
	Configured time.Time `json:"configured,omitzero"`
	Origin     string    `json:"origin,omitempty"`
	// ConfigError is why the last configuration that was offered was refused.
	ConfigError string `json:"config_error,omitempty"`
}

// MonitorWithInstance is the monitor, and what the answering instance has done for it.
type MonitorWithInstance struct {
	Monitor
	Own *MonitorInstance `json:"instance,omitempty"`
}

// Path is an intake path: a way that heartbeats take.
type Path struct {
	Path    string `json:"path"`
	Working bool   `json:"working"` // heartbeats can arrive on it now
	// QuietMS is how long ago a probe last confirmed that; missing if none ever has.
	QuietMS *int64 `json:"quiet_ms,omitempty"`
	BlindMS int64  `json:"blind_ms"` // for how long it was blind, ever
}

// MonitorMember is an instance that takes part.
type MonitorMember struct {
	Instance   Instance `json:"instance"`
	Partitions int      `json:"partitions"`
	Active     bool     `json:"active,omitempty"`
	Process    int      `json:"process,omitempty"`
	Host       string   `json:"host,omitempty"`
	Service    string   `json:"service,omitempty"`
	Sinks      []string `json:"sinks"`
}

// MonitorInstance is what an instance has done for the monitor since it started.
type MonitorInstance struct {
	Queued     int             `json:"queued"` // heartbeats that wait to be stored
	Accepted   int64           `json:"accepted"`
	Unknown    int64           `json:"unknown"`
	Malformed  int64           `json:"malformed"`
	Replayed   int64           `json:"replayed"`
	Busy       int64           `json:"busy"`
	Partitions int             `json:"partitions"`
	Sweeper    bool            `json:"sweeper"`
	Raised     int64           `json:"raised"`
	Abated     int64           `json:"abated"`
	Rejected   int64           `json:"rejected"` // messages that could not be read
	Routers    []MessageRouter `json:"routers,omitempty"`
}

// MessageRouter is how an instance reads a topic of a Message Router.
type MessageRouter struct {
	Router   string `json:"router"`
	Polls    int64  `json:"polls"`
	Failures int64  `json:"failures"`
	Messages int64  `json:"messages"`
	Behind   bool   `json:"behind"` // more messages were there than it asked for
	// Error of the last poll, and since when polls fail; missing if the last one succeeded.
	Error string    `json:"error,omitempty"`
	Since time.Time `json:"since,omitzero"`
}

// RejectedInput is a message that could not be read as a heartbeat.
type RejectedInput struct {
	At     time.Time `json:"at"`
	Path   string    `json:"path"`
	Cause  string    `json:"cause"`
	Detail string    `json:"detail"`
	Body   string    `json:"body"` // its start
}

// RejectedInputs are those of one instance, the newest first.
type RejectedInputs struct {
	Rejected []RejectedInput  `json:"rejected"`
	Counts   map[string]int64 `json:"counts"` // by cause
}
