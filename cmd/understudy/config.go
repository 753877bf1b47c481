package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/understudy-ha/understudy/api"
	"github.com/understudy-ha/understudy/lease"
)

// defaultListen is where the server listens when nothing else is said.
const defaultListen = "127.0.0.1:7600"

// serveConfig is the file that `understudy serve -c` reads. docs/configuration.md shows
// it whole.
type serveConfig struct {
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
	Interval duration `yaml:"interval"`
	Timeout  duration `yaml:"timeout"`
	// LogLevel is debug, info, warn or error, default info; LogFormat text or json,
	// default text.
	LogLevel  string `yaml:"log_level"`
	LogFormat string `yaml:"log_format"`
	// HistoryKeep is how many events are kept. Default 100000.
	HistoryKeep int `yaml:"history_keep"`
	// Roles to campaign for.
	Roles []roleConfig `yaml:"roles"`
	// Queues to deliver, from a store that keeps some.
	Queues []queueConfig `yaml:"queues"`
	// Cache is a peer of a cache, to run in this server.
	Cache *cacheConfig `yaml:"cache"`
	// Monitor takes beats in, and raises alarms.
	Monitor *monitorConfig `yaml:"monitor"`
	// Sentinel answers clients that find the primaries of shards through Redis Sentinel.
	Sentinel *sentinelConfig `yaml:"sentinel"`
	// Shards of which a node stands on this host: the agents beside those nodes.
	Shards []shardConfig `yaml:"shards"`
	// DNS answers for the names of roles and shards.
	DNS *dnsConfig `yaml:"dns"`
	// Hooks are programs that are run on each change.
	Hooks []hookConfig `yaml:"hooks"`
	// Limits of how often a caller may ask over HTTP.
	Limits limitsConfig `yaml:"limits"`

	cert  *certificate   // that is served; nil without TLS
	file  string         // that it was read from; "" is none
	lines map[string]int // on which its keys stand, by their paths
}

// roleConfig is a role that the server campaigns for.
type roleConfig struct {
	Role      string   `yaml:"role"`
	Holders   int      `yaml:"holders"`
	With      string   `yaml:"with"`
	StopGrace duration `yaml:"stop_grace"`
	// Command to run while the role is held. Without one, the role is only held:
	// ask GET /v1/roles/ROLE/self.
	Command []string `yaml:"command"`
}

// limitsConfig are the api.Limits in the file.
type limitsConfig struct {
	Read     rateConfig `yaml:"read"`
	Act      rateConfig `yaml:"act"`
	Ingest   rateConfig `yaml:"ingest"`
	Loopback bool       `yaml:"loopback"`
}

// rateConfig is an api.Rate in the file.
type rateConfig struct {
	PerSecond float64 `yaml:"per_second"`
	Burst     int     `yaml:"burst"`
}

func (c limitsConfig) limits() api.Limits {
	return api.Limits{Read: api.Rate(c.Read), Act: api.Rate(c.Act), Ingest: api.Rate(c.Ingest), Loopback: c.Loopback}
}

// duration is written as 1s or 250ms.
type duration time.Duration

func (d *duration) UnmarshalYAML(n *yaml.Node) error {
	parsed, err := time.ParseDuration(n.Value)
	if err != nil {
		return fmt.Errorf("%q is no duration; write for instance 1s or 250ms", n.Value)
	}
	*d = duration(parsed)
	return nil
}

func (c *serveConfig) timing() lease.Timing {
	return lease.Timing{Interval: time.Duration(c.Interval), Timeout: time.Duration(c.Timeout)}.WithDefaults()
}

// connections to the store: one for sessions, one for requests, and one for each
// thing that goes on by itself and must not wait for the others.
func (c *serveConfig) connections() int {
	const mostDispatchers = 8
	n, dispatchers := 3, len(c.Queues) // the third reads shards
	if c.Monitor != nil {
		n += 3 // intake, detection and its chores
		dispatchers += len(c.Monitor.Sinks)
	}
	if c.DNS != nil || len(c.Hooks) > 0 {
		n++
	}
	return n + min(dispatchers, mostDispatchers) + agentConnections*len(c.Shards)
}

func (c *serveConfig) instance() instanceFlags {
	return instanceFlags{name: c.Name, address: c.Address, timing: c.timing()}
}

func (c *serveConfig) roleNames() []string {
	names := make([]string, 0, len(c.Roles))
	for _, r := range c.Roles {
		names = append(names, r.Role)
	}
	return names
}

// readConfig reads and checks the file; "" is the configuration of no file. What the
// environment says goes before the file.
func readConfig(path string) (*serveConfig, error) {
	return readConfigWith(path, os.Environ(), func(*serveConfig) {})
}

// readConfigWith is readConfig with another environment, and with what the command line says,
// which goes before both.
func readConfigWith(path string, environ []string, flags func(*serveConfig)) (*serveConfig, error) {
	c := &serveConfig{file: path}
	if path != "" {
		text, err := readBounded(path)
		if err != nil {
			return nil, err
		}
		if err := parseConfig(text, c); err != nil {
			return nil, inFile(path, err)
		}
	}
	if _, err := takeEnv(c, environ); err != nil {
		return nil, err
	}
	flags(c)
	if err := c.complete(); err != nil {
		return nil, inFile(orNoFile(path), err)
	}
	return c, nil
}

// readBounded reads a file that may be none: such as a device, which never ends.
func readBounded(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, usagef("%v", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxDocument+1))
	if err != nil {
		return nil, usagef("%v", err)
	}
	if len(text) > maxDocument {
		return nil, usagef("%s is larger than %d MiB", path, maxDocument>>20)
	}
	return text, nil
}

func parseConfig(text []byte, c *serveConfig) (err error) {
	if c.lines, err = readStrictly(text, c, ""); err != nil {
		return err
	}
	if c.Monitor != nil {
		c.Monitor.locate(c.lines, "monitor.")
	}
	return nil
}

func orNoFile(path string) string {
	if path == "" {
		return "configuration"
	}
	return path
}

func (c *serveConfig) scheme() string {
	if c.TLSCert != "" {
		return "https"
	}
	return "http"
}
