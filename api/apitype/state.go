package apitype

import "time"

// State is all that the page shows, apart from the history. While the store does not answer, what was read from it is
// missing.
type State struct {
	Server ServerInfo `json:"server"`
	Store  StoreInfo  `json:"store"`
	// Parts that are in use: the sections of the page.
	Parts    []string        `json:"parts"`
	Roles    *Shown[Role]    `json:"roles,omitempty"`
	Sessions *Shown[Session] `json:"sessions,omitempty"`
	Queues   *Shown[Queue]   `json:"queues,omitempty"`
	// VacantRoles have no primary, and BlockedKeys are of queues; both count those that the lists leave out, too.
	VacantRoles int           `json:"vacant_roles,omitempty"`
	BlockedKeys int64         `json:"blocked_keys,omitempty"`
	Monitor     *MonitorState `json:"monitor,omitempty"`
	Shards      *ShardsState  `json:"shards,omitempty"`
}

// ServerInfo is the server that answers.
type ServerInfo struct {
	Instance *Instance `json:"instance,omitempty"`
	Version  string    `json:"version"`
}

// StoreInfo is the store behind a server.
type StoreInfo struct {
	Kind      string    `json:"kind" enum:"memory,sqlite,postgres,redis,sabledb"`
	Location  string    `json:"location"` // without secrets
	Server    string    `json:"server"`   // product and version
	Schema    int       `json:"schema"`   // found; 0: none
	Wanted    int       `json:"wanted"`   // the schema that this version needs
	Now       time.Time `json:"now"`
	Notifies  bool      `json:"notifies"` // changes wake waiters, and are not only found by polling
	Warnings  []string  `json:"warnings,omitempty"`
	Up        bool      `json:"up"`
	Error     string    `json:"error,omitempty"`
	LatencyMS float64   `json:"latency_ms"`
}

// Shown is the first of what there is, and how many there are.
type Shown[T any] struct {
	// At is when the list was read, if one reading serves many states, as that of the queues does.
	At    time.Time `json:"at,omitzero"`
	Total int       `json:"total"`
	List  []T       `json:"list"`
	Error string    `json:"error,omitempty"` // of the last reading: what is shown is older than that
}

// MonitorState is the monitor, with the newest of its open alarms. It lists the first checks; the totals are of
// all.
type MonitorState struct {
	Monitor
	Totals SourceTotals     `json:"totals"`
	Alarms []Alarm          `json:"alarms"`
	Own    *MonitorInstance `json:"instance,omitempty"`
	Error  string           `json:"error,omitempty"` // of the last reading: what is shown is older than that
}

// SourceTotals are the states of all sources.
type SourceTotals struct {
	Checks  int   `json:"checks"`
	Up      int64 `json:"up"`
	Down    int64 `json:"down"`
	Paused  int64 `json:"paused"`
	Retired int64 `json:"retired"`
	Unseen  int64 `json:"unseen"`
}

// ShardsState is the first shards, those in trouble before the others, and the totals of all.
type ShardsState struct {
	Totals ShardTotals `json:"totals"`
	List   []Shard     `json:"list"`
	Error  string      `json:"error,omitempty"` // of the last reading: what is shown is older than that
}

// ShardTotals count all shards; one can be in several of them.
type ShardTotals struct {
	Shards     int `json:"shards"`
	NoPrimary  int `json:"no_primary"`
	Blocked    int `json:"blocked"`
	Unattended int `json:"unattended"`
	UnderWay   int `json:"under_way"`
	Paused     int `json:"paused"`
	Trouble    int `json:"trouble"` // that need attention for whatever reason
}
