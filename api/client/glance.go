package client

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Session is an instance that is alive.
type Session struct {
	Instance    Instance  `json:"instance"`
	IntervalMS  int64     `json:"interval_ms"`
	TimeoutMS   int64     `json:"timeout_ms"`
	Renewals    int64     `json:"renewals"`
	Started     time.Time `json:"started"`
	ExpiresInMS int64     `json:"expires_in_ms"`
}

// Sessions lists the instances that are alive.
func (c *Client) Sessions(ctx context.Context) ([]Session, error) {
	var out struct{ Sessions []Session }
	err := c.do(ctx, http.MethodGet, "/v1/sessions", nil, nil, &out)
	return out.Sessions, err
}

// Overview is whether everything is held, what changed in the last hour, and what needs a person.
type Overview struct {
	At      time.Time `json:"at"` // by the store's clock
	Held    []Held    `json:"held"`
	Changes Changes   `json:"changes"`
	// Needs are what a person has to look at, the bad ones first; MoreNeeds are not listed.
	Needs     []Need `json:"needs"`
	MoreNeeds int64  `json:"more_needs"`
	// Errors tell what could not be read.
	Errors []string `json:"errors,omitempty"`
}

// Held is how many things of a part there are, and how many somebody holds.
type Held struct {
	Part  string  `json:"part"` // role, shard, queue, monitor or cache
	Total int     `json:"total"`
	Held  int     `json:"held"`
	Wrong []Wrong `json:"wrong"`
	More  int     `json:"more"` // that are not listed
}

// Wrong is one that nobody holds.
type Wrong struct {
	Subject string `json:"subject"`
	What    string `json:"what"`
}

// Changes is what happened since a time, by what it happened to.
type Changes struct {
	Since  time.Time `json:"since"`
	Total  int       `json:"total"`
	Groups []Change  `json:"groups"`
	More   bool      `json:"more"`
}

// Change is what happened to one subject.
type Change struct {
	Part    string    `json:"part"`
	Subject string    `json:"subject"`
	Count   int       `json:"count"`
	First   time.Time `json:"first"`
	Latest  Event     `json:"latest"`
}

// Need is something that a person has to look at.
type Need struct {
	Part     string `json:"part"`
	Subject  string `json:"subject"`
	Item     string `json:"item,omitempty"`
	ID       string `json:"id,omitempty"` // of the batch or the alarm
	Severity string `json:"severity"`     // bad or warn
	What     string `json:"what"`
}

// Overview answers at a glance.
func (c *Client) Overview(ctx context.Context) (Overview, error) {
	var out Overview
	err := c.do(ctx, http.MethodGet, "/v1/overview", nil, nil, &out)
	return out, err
}

// Monitor is the monitor at a glance.
type Monitor struct {
	Events   []EventCount    `json:"events"`
	Paths    []Path          `json:"paths"`
	Sinks    []string        `json:"sinks"`
	Standing int64           `json:"standing"` // alarms
	Members  []MonitorMember `json:"members"`
	// Configured is when a configuration was last put into force, Origin where it came from, and
	// ConfigError why the last one that was offered was not.
	Configured  *time.Time `json:"configured,omitempty"`
	Origin      string     `json:"origin,omitempty"`
	ConfigError string     `json:"config_error,omitempty"`
}

// EventCount is an event name with the states of its sources.
type EventCount struct {
	Event         string `json:"event"`
	Up            int64  `json:"up"`
	Down          int64  `json:"down"`
	PausedSources int64  `json:"paused_sources"`
	Retired       int64  `json:"retired"`
	Unseen        int64  `json:"unseen"`
	Paused        bool   `json:"paused,omitempty"`
	Removed       bool   `json:"removed,omitempty"`
}

// Path is a way that beats take.
type Path struct {
	Path    string `json:"path"`
	Seeing  bool   `json:"seeing"` // it is taken to work now
	QuietMS *int64 `json:"quiet_ms,omitempty"`
	BlindMS int64  `json:"blind_ms"`
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

// Monitor returns the monitor at a glance.
func (c *Client) Monitor(ctx context.Context) (Monitor, error) {
	var out Monitor
	err := c.do(ctx, http.MethodGet, "/v1/monitor", nil, nil, &out)
	return out, err
}

// Server is a server, and how it sees its store.
type Server struct {
	Server ServerInfo `json:"server"`
	Store  StoreInfo  `json:"store"`
	Parts  []string   `json:"parts"` // that are in use
}

// ServerInfo is who answers.
type ServerInfo struct {
	Instance *Instance `json:"instance,omitempty"`
	Version  string    `json:"version"`
}

// StoreInfo is the store behind a server.
type StoreInfo struct {
	Kind      string    `json:"kind"`
	Location  string    `json:"location"` // without secrets
	Server    string    `json:"server"`   // product and version
	Schema    int       `json:"schema"`
	Wanted    int       `json:"wanted"` // the schema that the server wants
	Now       time.Time `json:"now"`
	Notifies  bool      `json:"notifies"`
	Warnings  []string  `json:"warnings,omitempty"`
	Up        bool      `json:"up"`
	Error     string    `json:"error,omitempty"`
	LatencyMS float64   `json:"latency_ms"`
}

// Server tells of the server and its store: the first state that its stream of events has.
func (c *Client) Server(ctx context.Context) (Server, error) {
	ctx, cancel := within(ctx, callTimeout)
	defer cancel()
	answer, err := c.send(ctx, http.MethodGet, "/v1/events", url.Values{"state": {"true"}}, nil)
	if err != nil {
		return Server{}, err
	}
	defer answer.Body.Close()
	lines := bufio.NewScanner(answer.Body)
	lines.Buffer(nil, maxAnswer)
	state := false
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), ": ")
		switch {
		case name == "event":
			state = value == "state"
		case name == "data" && state:
			var out Server
			if err := json.Unmarshal([]byte(value), &out); err != nil {
				return Server{}, fmt.Errorf("client: the state cannot be read: %w", err)
			}
			return out, nil
		}
	}
	if err := lines.Err(); err != nil {
		return Server{}, fmt.Errorf("client: %w", err)
	}
	return Server{}, c.stranger(answer.StatusCode, "told no state")
}
