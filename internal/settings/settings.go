package settings

import (
	"cmp"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/understudy-ha/understudy/api"
	"github.com/understudy-ha/understudy/internal/agent"
	"github.com/understudy-ha/understudy/internal/instance"
	"github.com/understudy-ha/understudy/internal/strict"
	"github.com/understudy-ha/understudy/internal/usage"
	"github.com/understudy-ha/understudy/lease"
)

// DefaultListen is where the server listens when nothing else is said.
const DefaultListen = "127.0.0.1:7600"

// Server is the file that `understudy serve -c` reads. docs/configuration.md shows
// it whole.
type Server struct {
	// Store URL, or the file that it is read from; default as for every command.
	Store     string `yaml:"store" secret:"password"`
	StoreFile string `yaml:"store_file"`
	// Name and Address of this instance. Default: the host's name; none.
	Name    string `yaml:"name"`
	Address string `yaml:"address"`
	// Listen is where API and page are served. Default 127.0.0.1:7600. Any other
	// than a loopback address needs a token, and TLS or BehindTLS.
	Listen string `yaml:"listen"`
	// Token, or the file that it is read from, that requests must carry.
	Token     string `yaml:"token" secret:"all"`
	TokenFile string `yaml:"token_file"`
	// TLSCert and TLSKey are PEM files.
	TLSCert string `yaml:"tls_cert"`
	TLSKey  string `yaml:"tls_key"`
	// BehindTLS says that a proxy in front provides TLS.
	BehindTLS bool `yaml:"behind_tls"`
	// Interval and Timeout of this instance's session. Default 1s and 5s.
	Interval strict.Duration `yaml:"interval"`
	Timeout  strict.Duration `yaml:"timeout"`
	// LogLevel is debug, info, warn or error, default info; LogFormat text or json,
	// default text.
	LogLevel  string `yaml:"log_level"`
	LogFormat string `yaml:"log_format"`
	// HistoryKeep is how many events are kept. Default 100000.
	HistoryKeep int `yaml:"history_keep"`
	// Roles to campaign for.
	Roles []Role `yaml:"roles"`
	// Queues to deliver, from a store that keeps some.
	Queues []Queue `yaml:"queues"`
	// Cache is a peer of a cache, to run in this server.
	Cache *Cache `yaml:"cache"`
	// Monitor takes beats in, and raises alarms.
	Monitor *Monitor `yaml:"monitor"`
	// Sentinel answers clients that find the primaries of shards through Redis Sentinel.
	Sentinel *Sentinel `yaml:"sentinel"`
	// Shards of which a node stands on this host: the agents beside those nodes.
	Shards []Shard `yaml:"shards"`
	// DNS answers for the names of roles and shards.
	DNS *DNS `yaml:"dns"`
	// Hooks are programs that are run on each change.
	Hooks []Hook `yaml:"hooks"`
	// Limits of how often a caller may ask over HTTP.
	Limits Limits `yaml:"limits"`

	file  string         // that it was read from; "" is none
	lines map[string]int // on which its keys stand, by their paths
}

// Role is a role that the server campaigns for.
type Role struct {
	Role      string          `yaml:"role"`
	Holders   int             `yaml:"holders"`
	With      string          `yaml:"with"`
	StopGrace strict.Duration `yaml:"stop_grace"`
	// Command to run while the role is held. Without one, the role is only held:
	// ask GET /v1/roles/ROLE/self.
	Command []string `yaml:"command"`
}

// Limits are the api.Limits in the file.
type Limits struct {
	Read     Rate `yaml:"read"`
	Act      Rate `yaml:"act"`
	Ingest   Rate `yaml:"ingest"`
	Loopback bool `yaml:"loopback"`
}

// Rate is an api.Rate in the file.
type Rate struct {
	PerSecond float64 `yaml:"per_second"`
	Burst     int     `yaml:"burst"`
}

// Limits are those of the file for the API.
func (c Limits) Limits() api.Limits {
	return api.Limits{Read: api.Rate(c.Read), Act: api.Rate(c.Act), Ingest: api.Rate(c.Ingest), Loopback: c.Loopback}
}

// Timing of the server's session.
func (c *Server) Timing() lease.Timing {
	return lease.Timing{Interval: time.Duration(c.Interval), Timeout: time.Duration(c.Timeout)}.WithDefaults()
}

// Connections to the store: one for sessions, one for requests, and one for each
// thing that goes on by itself and must not wait for the others.
func (c *Server) Connections() int {
	const mostDispatchers = 8
	n, dispatchers := 3, len(c.Queues) // the third reads shards
	if c.Monitor != nil {
		n += 3 // intake, detection and its chores
		dispatchers += len(c.Monitor.Sinks)
	}
	if c.DNS != nil || len(c.Hooks) > 0 {
		n++
	}
	return n + min(dispatchers, mostDispatchers) + agent.Connections*len(c.Shards)
}

// Instance is how the server shows itself.
func (c *Server) Instance() instance.Identity {
	return instance.Identity{Name: c.Name, Address: c.Address, Timing: c.Timing()}
}

// RoleNames are the names of the roles, in the order of the file.
func (c *Server) RoleNames() []string {
	names := make([]string, 0, len(c.Roles))
	for _, r := range c.Roles {
		names = append(names, r.Role)
	}
	return names
}

// Read reads and checks the file; "" is the configuration of no file. What the
// environment says goes before the file.
func Read(path string) (*Server, error) {
	return ReadWith(path, os.Environ(), func(*Server) {})
}

// ReadWith is Read with another environment, and with what the command line says,
// which goes before both.
func ReadWith(path string, environ []string, flags func(*Server)) (*Server, error) {
	c := &Server{file: path}
	if path != "" {
		text, err := readBounded(path)
		if err != nil {
			return nil, err
		}
		if err := Parse(text, c); err != nil {
			return nil, strict.In(path, err)
		}
	}
	if _, err := c.overrides(environ); err != nil {
		return nil, err
	}
	flags(c)
	if err := c.Complete(); err != nil {
		return nil, strict.In(OrNoFile(path), err)
	}
	return c, nil
}

// readBounded reads a file that may be none: such as a device, which never ends.
func readBounded(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, usage.Errorf("%v", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxDocument+1))
	if err != nil {
		return nil, usage.Errorf("%v", err)
	}
	if len(text) > maxDocument {
		return nil, usage.Errorf("%s is larger than %d MiB", path, maxDocument>>20)
	}
	return text, nil
}

// Parse reads a file's text; Complete fills and checks it.
func Parse(text []byte, c *Server) (err error) {
	if c.lines, err = strict.Read(text, c, ""); err != nil {
		return err
	}
	if c.Monitor != nil {
		c.Monitor.locate(c.lines, "monitor.")
	}
	return nil
}

// OrNoFile names the file that a configuration is from, also where that is none.
func OrNoFile(path string) string {
	if path == "" {
		return "configuration"
	}
	return path
}

// From is the file that this was read from; "" is none.
func (c *Server) From() string { return c.file }

// Empty tells whether nothing stood in the file.
func (c *Server) Empty() bool { return len(c.lines) == 0 }

// Scheme of the URLs at which the server is reached: http or https.
func (c *Server) Scheme() string {
	if c.TLSCert != "" {
		return "https"
	}
	return "http"
}

// LogOptions checks what is said of the log.
func LogOptions(level, format string) (slog.Level, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(cmp.Or(level, "info"))); err != nil {
		return l, usage.Errorf("log level %q: the levels are debug, info, warn and error", level)
	}
	if format != "" && format != "text" && format != "json" {
		return l, usage.Errorf("log format %q: the formats are text and json", format)
	}
	return l, nil
}
