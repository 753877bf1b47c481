package apitype

// Check is what is expected of sources, as it is configured.
type Check struct {
	Name             string            `json:"check"`
	IntervalMS       int64             `json:"interval_ms,omitempty"`
	Missed           int               `json:"missed,omitempty"`
	Schedule         string            `json:"schedule,omitempty"` // as in crontab(5), after an optional TZ=Zone; instead of an interval
	GraceMS          int64             `json:"grace_ms,omitempty"`
	MaxRunMS         int64             `json:"max_run_ms,omitempty"`
	Fixed            bool              `json:"fixed,omitempty"`       // only declared sources count
	MaxLearned       int               `json:"max_learned,omitempty"` // another source is learned up to this many; 0: 100,000
	RetireAfterMS    int64             `json:"retire_after_ms,omitempty"`
	SenderClock      bool              `json:"sender_clock,omitempty"`
	AnyDomain        bool              `json:"any_domain,omitempty"`
	Flaps            int               `json:"flaps,omitempty"`
	FlapWindowMS     int64             `json:"flap_window_ms,omitempty"`
	SteadyMS         int64             `json:"steady_ms,omitempty"`
	GroupBy          string            `json:"group_by,omitempty"`
	GroupWaitMS      int64             `json:"group_wait_ms,omitempty"`
	GroupMin         int               `json:"group_min,omitempty"`
	DependsOn        string            `json:"depends_on,omitempty"`    // a check: while the source of this name there is down, no alarm
	DependsLabel     string            `json:"depends_label,omitempty"` // the label that has its name instead
	Maintenance      string            `json:"maintenance,omitempty"`   // when windows without alarms open, as in crontab(5)
	MaintenanceForMS int64             `json:"maintenance_for_ms,omitempty"`
	RemindMS         int64             `json:"remind_ms,omitempty"`
	Severity         string            `json:"severity,omitempty"`
	Tags             []string          `json:"tags,omitempty"`
	Labels           map[string]string `json:"labels,omitempty"`
	Paused           bool              `json:"paused,omitempty"`
	ControlLoop      ControlLoop       `json:"control_loop,omitzero"`
}

// ControlLoop is what an ONAP control-loop event copies from its check.
type ControlLoop struct {
	Name          string `json:"name,omitempty"`
	PolicyName    string `json:"policy_name,omitempty"`
	PolicyScope   string `json:"policy_scope,omitempty"`
	PolicyVersion string `json:"policy_version,omitempty"`
	TargetType    string `json:"target_type,omitempty" enum:"VNF,VM"`
	Target        string `json:"target,omitempty"`
	Version       string `json:"version,omitempty"`
}

// CheckCount is a check with the states of its sources.
type CheckCount struct {
	Check
	Up   int64 `json:"up"`
	Down int64 `json:"down"`
	// PausedSources leaves out those of a check that is paused itself.
	PausedSources int64 `json:"paused_sources"`
	Retired       int64 `json:"retired"`
	Unseen        int64 `json:"unseen"` // of these, how many never sent a heartbeat
	// Removed: the check is no longer configured, and its sources are being forgotten.
	Removed bool `json:"removed,omitempty"`
}

// Checks is a list of checks.
type Checks struct {
	Checks []CheckCount `json:"checks"`
	Next   string       `json:"next,omitempty"`
}

// MonitorConfiguration is what is expected of all sources.
type MonitorConfiguration struct {
	Checks   []Check       `json:"checks"`
	Declared []Declaration `json:"declared,omitempty"`
	Keep     bool          `json:"keep,omitempty"` // leave checks alone that are not listed
	// Origin is where it came from, such as the name of a file, and By who applies it: both are shown.
	Origin string `json:"origin,omitempty"`
	By     string `json:"by,omitempty"`
}

// ConfigurationChange is what a configuration changed.
type ConfigurationChange struct {
	Added    []string `json:"added"`
	Changed  []string `json:"changed"`
	Removed  []string `json:"removed"`
	Declared int      `json:"declared"` // sources that are new
	// Generation grows with each change of what is configured.
	Generation int64 `json:"generation"`
}
