package settings

import (
	"cmp"
	"log/slog"
	"os"
	"time"

	"github.com/understudy-ha/understudy/api"
	"github.com/understudy-ha/understudy/internal/instance"
	"github.com/understudy-ha/understudy/internal/shardagent"
	"github.com/understudy-ha/understudy/internal/strictyaml"
	"github.com/understudy-ha/understudy/internal/usererr"
	"github.com/understudy-ha/understudy/lease"
)

// Server is the file that `understudy serve -c` reads. docs/understudy.yaml lists every key.
type Server struct {
	Store       string        `yaml:"store" secret:"password" help:"store 'URL': sqlite:PATH, postgres://USER@HOST/DB, redis://HOST/0 or sabledb://HOST:PORT (default: an SQLite file in the state directory)"`
	StoreFile   string        `yaml:"store_file" help:"read the store's URL from this 'FILE', for a URL with a password"`
	Name        string        `yaml:"name" help:"'NAME' of this instance, for operators and for --to (default: the host name)"`
	Address     string        `yaml:"address" help:"'ADDRESS' at which clients reach this instance; \"role who\" prints it"`
	Listen      string        `yaml:"listen" default:"127.0.0.1:7600" help:"serve the page and the API on this 'ADDRESS', HOST:PORT; an address that is not loopback needs a token and TLS"`
	Token       string        `yaml:"token" secret:"all" help:"the token that requests must carry; token_file is safer"`
	TokenFile   string        `yaml:"token_file" help:"requests must carry the token in this 'FILE'"`
	TLSCert     string        `yaml:"tls_cert" help:"TLS certificate 'FILE', PEM; read again when it changes"`
	TLSKey      string        `yaml:"tls_key" help:"'FILE' with the key of the certificate, PEM"`
	TLSClientCA string        `yaml:"tls_client_ca" help:"verify the certificates that clients show with the CA in this 'FILE', PEM"`
	TLSClients  []TLSClient   `yaml:"tls_clients" help:"what clients with a certificate may do without a token"`
	BehindTLS   bool          `yaml:"behind_tls" help:"a proxy in front provides TLS; needs a token"`
	Interval    time.Duration `yaml:"interval" default:"1s" help:"renew the session every I"`
	Timeout     time.Duration `yaml:"timeout" default:"5s" help:"the session lapses T after its last renewal; a takeover takes at most T + I (a file that sets interval alone: 5·I)"`
	LogLevel    string        `yaml:"log_level" default:"info" help:"debug, info, warn or error"`
	LogFormat   string        `yaml:"log_format" default:"text" help:"text or json"`
	HistoryKeep int           `yaml:"history_keep" default:"100000" help:"keep this many events in the history; at least 1000; Redis and SableDB keep at most 100000"`
	ForgetAfter time.Duration `yaml:"forget_vacant_after" default:"720h" help:"delete roles and leases that nobody has held or waited for during this time; at least 1h; -1s: never"`
	Roles       []Role        `yaml:"roles" help:"roles to campaign for"`
	Jobs        []Job         `yaml:"jobs" help:"jobs to run on a schedule, each time on one of the servers that offer them; needs SQLite, PostgreSQL or Redis"`
	Queues      []Queue       `yaml:"queues" help:"queues to deliver; needs SQLite or PostgreSQL. A queue that does not exist is created"`
	Cache       *Cache        `yaml:"cache" help:"a peer of a cache; needs no store"`
	Monitor     *Monitor      `yaml:"monitor" help:"an instance of the monitor; needs SQLite or PostgreSQL"`
	Sentinel    *Sentinel     `yaml:"sentinel" help:"answer clients that find the primaries of shards through Redis Sentinel"`
	Shards      []Shard       `yaml:"shards" help:"agents beside database nodes on this host; the keys are the flags of \"shard agent\""`
	DNS         *DNS          `yaml:"dns" help:"answer DNS queries for roles and shards: billing.role.ZONE, orders.primary.ZONE, orders.replica.ZONE"`
	Hooks       []Hook        `yaml:"hooks" help:"programs to run on each change; they get UNDERSTUDY_EVENT_… variables, and JSON on standard input"`
	Limits      Limits        `yaml:"limits" help:"HTTP rate limits for each caller (a token, or an address); per_second: -1 is no limit"`

	file     string         // the file it was read from; "" for none
	lines    map[string]int // the line of each key, by its path
	outdated []string       // warnings about keys that have an old name or no effect
}

// TLSClient is a name in client certificates.
type TLSClient struct {
	Name   string   `yaml:"name" help:"common name of the certificate, or a DNS name in it"`
	Scopes []string `yaml:"scopes" help:"read, act and ingest, as of a token"`
}

// Role is a role that the server campaigns for.
type Role struct {
	Role      string        `yaml:"role" help:"name of the role"`
	Command   []string      `yaml:"command" help:"program to run while the role is held; without one the role is only held"`
	Holders   int           `yaml:"holders" default:"1" help:"how many instances may hold the role at once; the same on all of them"`
	With      string        `yaml:"with" help:"hold the role only while an instance of the same name holds this 'ROLE'"`
	StopGrace time.Duration `yaml:"stop_grace" default:"1s" help:"time between SIGTERM and SIGKILL; T ≥ 3·I + stop grace"`
	PassStore bool          `yaml:"pass_store" help:"leave UNDERSTUDY_STORE and UNDERSTUDY_TOKEN in the program's environment"`
}

// Limits are the api.Limits in the file.
type Limits struct {
	Read     Rate `yaml:"read" help:"GET requests"`
	Act      Rate `yaml:"act" help:"requests that change something"`
	Ingest   Rate `yaml:"ingest" help:"requests that send heartbeats and messages"`
	Loopback bool `yaml:"loopback" help:"limit callers on this host too; set it behind a proxy on this host"`
	Leases   int  `yaml:"leases" default:"10000" help:"most leases per space, and live sessions, from callers"`
}

// Rate is an api.Rate in the file.
type Rate struct {
	PerSecond float64 `yaml:"per_second" help:"requests per second; -1: no limit"`
	Burst     int     `yaml:"burst" help:"requests at once"`
}

// Limits are those of the file for the API.
func (c Limits) Limits() api.Limits {
	return api.Limits{Read: api.Rate(c.Read), Act: api.Rate(c.Act), Ingest: api.Rate(c.Ingest), Loopback: c.Loopback, Leases: c.Leases}
}

// Timing of the server's session.
func (c *Server) Timing() lease.Timing {
	return lease.Timing{Interval: c.Interval, Timeout: c.Timeout}.WithDefaults()
}

// Connections to the store: one for sessions, one for requests, and one for each
// thing that continues by itself and must not wait for the others.
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
	if len(c.Jobs) > 0 {
		n++
	}
	return n + min(dispatchers, mostDispatchers) + shardagent.Connections*len(c.Shards)
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
// which goes before both: here file, environment and flags become one.
func ReadWith(path string, environ []string, flags func(*Server)) (*Server, error) {
	c := &Server{file: path}
	if path != "" {
		text, err := readFile(path)
		if err != nil {
			return nil, err
		}
		if err := Parse(text, c); err != nil {
			return nil, strictyaml.In(path, err)
		}
	}
	if _, err := c.applyEnvironment(environ); err != nil {
		return nil, err
	}
	flags(c)
	if err := c.Complete(); err != nil {
		return nil, strictyaml.In(OrNoFile(path), err)
	}
	return c, nil
}

// Parse reads a file's text; Complete fills and checks it.
func Parse(text []byte, c *Server) error {
	read, err := strictyaml.Read(text, c, "")
	if err != nil {
		return err
	}
	c.lines, c.outdated = read.Lines, read.Outdated
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

// Empty reports whether nothing stood in the file.
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
		return l, usererr.Errorf("log level %q: the levels are debug, info, warn and error", level)
	}
	if format != "" && format != "text" && format != "json" {
		return l, usererr.Errorf("log format %q: the formats are text and json", format)
	}
	return l, nil
}

// DefaultListen is where the server listens by default.
func DefaultListen() string {
	var c Server
	strictyaml.ApplyDefaults(&c)
	return c.Listen
}
