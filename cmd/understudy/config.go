package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/understudy-ha/understudy/elect"
	"github.com/understudy-ha/understudy/lease"
)

// defaultListen is where the server listens when nothing else is said.
const defaultListen = "127.0.0.1:7600"

// serveConfig is the file that `understudy serve -c` reads. docs/server.md shows
// it whole.
type serveConfig struct {
	// Store URL; default as for every command.
	Store string `yaml:"store"`
	// Name and Address of this instance. Default: the host's name; none.
	Name    string `yaml:"name"`
	Address string `yaml:"address"`
	// Listen is where API and page are served. Default 127.0.0.1:7600. Any other
	// than a loopback address needs a token, and TLS or BehindTLS.
	Listen string `yaml:"listen"`
	// Token, or the file that it is read from, that requests must carry.
	Token     string `yaml:"token"`
	TokenFile string `yaml:"token_file"`
	// TLSCert and TLSKey are PEM files.
	TLSCert string `yaml:"tls_cert"`
	TLSKey  string `yaml:"tls_key"`
	// BehindTLS says that a proxy in front provides TLS.
	BehindTLS bool `yaml:"behind_tls"`
	// Interval and Timeout of this instance's session. Default 1s and 5s.
	Interval duration `yaml:"interval"`
	Timeout  duration `yaml:"timeout"`
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

	file string // that it was read from; "" is none
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

// duration is written as 1s or 250ms.
type duration time.Duration

func (d *duration) UnmarshalYAML(n *yaml.Node) error {
	parsed, err := time.ParseDuration(n.Value)
	if err != nil {
		return fmt.Errorf("line %d: %q is no duration; write for instance 1s or 250ms", n.Line, n.Value)
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
	return n + min(dispatchers, mostDispatchers)
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

// readConfig reads and checks the file; "" is the configuration of no file.
func readConfig(path string) (*serveConfig, error) {
	c := &serveConfig{file: path}
	if path != "" {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, usagef("%v", err)
		}
		if err := parseConfig(text, c); err != nil {
			return nil, usagef("%s: %v", path, err)
		}
	}
	if err := c.complete(); err != nil {
		return nil, fmt.Errorf("%s: %w", orNoFile(path), err)
	}
	return c, nil
}

func parseConfig(text []byte, c *serveConfig) error {
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	if err := d.Decode(c); err != nil && !errors.Is(err, io.EOF) {
		return errors.New(plain(err))
	}
	if d.Decode(&yaml.Node{}) != io.EOF {
		return errors.New("there is a second document in the file; only one is read")
	}
	if c.Monitor != nil {
		c.Monitor.locate(text, "monitor")
	}
	return nil
}

// plainer says what the types are that the file is made of.
func plainer() *strings.Replacer {
	pairs := []string{" not found in type main.serveConfig", " is not known here", "main.serveConfig", "this file"}
	for _, t := range [][2]string{
		{"roleConfig", "a role"}, {"queueConfig", "a queue"}, {"webhookConfig", "a webhook"}, {"ledgerConfig", "a ledger"},
		{"execConfig", "exec"}, {"frontConfig", "a front"},
		{"monitorConfig", "the monitor"}, {"eventsConfig", "the monitor"}, {"eventConfig", "an event"}, {"controlLoopConfig", "a control loop"},
		{"declaredConfig", "a declared source"}, {"fetchConfig", "config"}, {"cbsConfig", "cbs"}, {"routerConfig", "a router"}, {"pingKeyConfig", "a ping key"},
		{"sinkConfig", "a sink"}, {"hookSinkConfig", "a webhook"}, {"slackSinkConfig", "slack"}, {"topicSinkConfig", "a message router"},
		{"alertSinkConfig", "alertmanager"}, {"emailSinkConfig", "email"}, {"logSinkConfig", "log"},
		{"cacheConfig", "the cache"}, {"cachePeerConfig", "a peer"}, {"cacheExecConfig", "exec"}, {"originConfig", "an origin"},
		{"sentinelConfig", "sentinel"},
	} {
		pairs = append(pairs, " not found in type main."+t[0], " is not known in "+t[1], "main."+t[0], t[1])
	}
	return strings.NewReplacer(pairs...)
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

// complete fills the defaults and checks what can be checked without a store.
func (c *serveConfig) complete() error {
	if c.Name == "" {
		c.Name = hostname()
	}
	if c.Listen == "" {
		c.Listen = defaultListen
	}
	if c.HistoryKeep == 0 {
		c.HistoryKeep = 100_000
	}
	if c.HistoryKeep < 1000 {
		return usagef("history_keep is %d; at least 1000", c.HistoryKeep)
	}
	if err := c.readToken(); err != nil {
		return err
	}
	if err := lease.NewInstance(c.Name, c.Address).Validate(); err != nil {
		return err
	}
	if err := c.timing().Validate(0); err != nil {
		return err
	}
	if err := c.checkRoles(); err != nil {
		return err
	}
	if err := c.checkQueues(); err != nil {
		return err
	}
	if c.Cache != nil {
		if err := c.Cache.check(); err != nil {
			return fmt.Errorf("cache: %w", err)
		}
	}
	if c.Sentinel != nil {
		if err := c.Sentinel.complete(); err != nil {
			return fmt.Errorf("sentinel: %w", err)
		}
	}
	return c.checkMonitor()
}

// readToken reads the token from its file, and checks what goes with it.
func (c *serveConfig) readToken() error {
	if (c.TLSCert == "") != (c.TLSKey == "") {
		return usagef("tls_cert and tls_key go together")
	}
	if c.TokenFile == "" {
		return nil
	}
	if c.Token != "" {
		return usagef("token and token_file exclude each other")
	}
	text, err := os.ReadFile(c.TokenFile)
	if err != nil {
		return usagef("token_file: %v", err)
	}
	c.Token = strings.TrimSpace(string(text))
	if c.Token == "" {
		return usagef("token_file %s is empty", c.TokenFile)
	}
	return nil
}

func (c *serveConfig) checkRoles() error {
	seen := map[string]bool{}
	for i := range c.Roles {
		r := &c.Roles[i]
		if r.StopGrace == 0 {
			r.StopGrace = duration(elect.DefaultStopGrace)
		}
		if err := elect.ValidateRole(r.Role); err != nil {
			return err
		}
		if err := r.check(); err != nil {
			return fmt.Errorf("role %q: %w", r.Role, err)
		}
		if seen[r.Role] {
			return usagef("role %q stands twice", r.Role)
		}
		seen[r.Role] = true
		if err := c.timing().Validate(time.Duration(r.StopGrace)); err != nil {
			return fmt.Errorf("role %q: %w", r.Role, err)
		}
	}
	return nil
}

// check refuses here what a campaign would refuse, before any role is taken.
func (r *roleConfig) check() error {
	switch {
	case r.Holders < 0 || r.Holders > elect.MaxHolders:
		return usagef("%d holders; 1 to %d are possible", r.Holders, elect.MaxHolders)
	case r.With == r.Role:
		return usagef("it cannot be held only with itself")
	case r.With != "":
		if err := elect.ValidateRole(r.With); err != nil {
			return fmt.Errorf("with: %w", err)
		}
	}
	if len(r.Command) > 0 && r.Command[0] == "" {
		return usagef("the command names no program")
	}
	return nil
}
