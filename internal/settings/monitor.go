package settings

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"slices"
	"time"

	"github.com/understudy-ha/understudy/claim"
	"github.com/understudy-ha/understudy/dispatch/target"
	"github.com/understudy-ha/understudy/internal/secret"
	"github.com/understudy-ha/understudy/internal/strictyaml"
	"github.com/understudy-ha/understudy/internal/usererr"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/monitor"
	"github.com/understudy-ha/understudy/monitor/intake"
)

const (
	// ActiveRole is the role of the instance that applies configurations.
	ActiveRole = "monitor"
	// ActiveGrace is how long it may take to stop that.
	ActiveGrace = 100 * time.Millisecond
)

// The path of beats that programs put into the store themselves. Every instance
// proves it, so that its sources are judged while any instance is up.
const (
	StorePath  = "store"         // its name
	StoreTrust = 2 * time.Second // it is taken to work for so long after it was proven
	StoreGap   = 2 * time.Second // longer between two proofs, it may have been down
)

// Monitor is the part of the server's file that makes it an instance of the
// monitor. "understudy monitor run" has flags only for the keys that its register names
// (cmd/understudy/monitorrun.go), and flags of its own for checks, sinks, routers and ping keys: a new key needs an entry
// there to become a flag.
type Monitor struct {
	Monitored   `yaml:",inline"`
	Config      *Fetch        `yaml:"config" help:"read checks and declared sources from elsewhere, again and again"`
	Sinks       []Sink        `yaml:"sinks" help:"receivers of alarms; each has one of webhook, slack, message_router, alertmanager, email and log"`
	Routers     []Router      `yaml:"routers" help:"Message Router topics to read heartbeats from"`
	Unknown     string        `yaml:"unknown" default:"accept" help:"heartbeats that VES senders send for a check that is not configured: accept (202, and counted) or reject (400)"`
	PingKeys    []PingKey     `yaml:"ping_keys" help:"keys that let senders in without the token, for heartbeats only"`
	FirstWindow time.Duration `yaml:"first_window" more:"yes" default:"5s" help:"other instances take over the sources of an instance that has been silent this long"`
	PublicURL   string        `yaml:"public_url" secret:"url" more:"yes" help:"URL under which people reach this server: alarms then carry a link that acknowledges them"`
	KeepAlarms  time.Duration `yaml:"keep_alarms" more:"yes" default:"2160h" help:"keep ended alarms this long"`
}

// Router is an intake.RouterConfig in the file.
type Router struct {
	Router       string        `yaml:"router" help:"name of the router; its intake path is router.NAME"`
	URL          string        `yaml:"url" secret:"url" help:"URL of the topic"`
	Group        string        `yaml:"group" help:"consumer group, the same for all instances"`
	Consumer     string        `yaml:"consumer" help:"consumer ID, different on every instance (default: the instance's name and port)"`
	LongPoll     time.Duration `yaml:"long_poll" default:"5s" help:"how long the router may hold a request"`
	Limit        int           `yaml:"limit" default:"1000" help:"messages per request"`
	User         string        `yaml:"user" help:"user at the router"`
	PasswordFile string        `yaml:"password_file" help:"file with the user's password"`
	CAFile       string        `yaml:"ca_file" help:"certificates to trust instead of the system's"`
}

// PingKey is an intake.PingKey in the file.
type PingKey struct {
	Name     string   `yaml:"name" help:"name of the key, for operators (default: the file's name)"`
	File     string   `yaml:"file" help:"file with the key: 16 to 200 letters, digits, and - . _ ~"`
	Checks   []string `yaml:"checks" was:"events" help:"checks it may send heartbeats for; * matches anything (default: all)"`
	PostOnly bool     `yaml:"post_only" help:"refuse GET and HEAD, which link previews send too"`
}

// Windows are those of the claims on sources: nothing of them is ever in a step.
func (c *Monitor) Windows() claim.Windows {
	w := claim.Windows{First: c.FirstWindow}
	if w.First == 0 {
		w.First = 5 * time.Second
	}
	w.Second = w.First
	return w
}

// check refuses what can be refused without a store; files of secrets are read.
func (c *Monitor) check() error {
	found := []error{c.Monitored.check()}
	if c.Config != nil {
		if len(c.Checks) > 0 || len(c.Declared) > 0 {
			found = append(found, usererr.Errorf("config says where the checks come from; checks and declared exclude it"))
		}
		found = append(found, strictyaml.In("config", c.Config.check()))
	}
	found = append(found, c.Windows().Validate(0))
	if c.Unknown != "" && c.Unknown != "accept" && c.Unknown != "reject" {
		found = append(found, usererr.Errorf("unknown is %q; use accept or reject", c.Unknown))
	}
	if u, err := url.Parse(c.PublicURL); c.PublicURL != "" && (err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.User != nil) {
		found = append(found, usererr.Errorf("public_url %q: use http:// or https:// with a host and, if need be, a path", c.PublicURL))
	}
	if c.KeepAlarms < 0 {
		found = append(found, usererr.Errorf("keep_alarms is %v; it cannot be negative", c.KeepAlarms))
	}
	seen := map[string]bool{}
	for i := range c.Sinks {
		s := &c.Sinks[i]
		found = append(found, s.check())
		if seen[s.Sink] {
			found = append(found, usererr.Errorf("sink %q appears twice", s.Sink))
		}
		seen[s.Sink] = true
	}
	return errors.Join(append(found, c.checkIntake())...)
}

func (c *Monitor) checkIntake() error {
	seen := map[string]bool{}
	for i := range c.Routers {
		r := &c.Routers[i]
		if err := lease.ValidateSpace(r.Router); err != nil {
			return fmt.Errorf("router: %w", err)
		}
		if seen[r.Router] {
			return usererr.Errorf("router %q appears twice", r.Router)
		}
		seen[r.Router] = true
		made, err := r.Intake("this instance")
		if err != nil {
			return fmt.Errorf("router %s: %w", r.Router, err)
		}
		made.Flow = (*monitor.IntakePath)(nil) // nothing flows yet
		if err := made.Validate(); err != nil {
			return err
		}
	}
	_, err := c.Keys()
	return err
}

// Keys reads the ping keys.
func (c *Monitor) Keys() ([]intake.PingKey, error) {
	out := make([]intake.PingKey, 0, len(c.PingKeys))
	for _, k := range c.PingKeys {
		text, err := ReadSecret("ping key", k.File)
		if err != nil {
			return nil, err
		}
		key := intake.PingKey{Name: cmp.Or(k.Name, filepath.Base(k.File)), Key: secret.Text(text), Checks: slices.Clone(k.Checks), PostOnly: k.PostOnly}
		if err := key.Validate(); err != nil {
			return nil, err
		}
		out = append(out, key)
	}
	return out, nil
}

// Intake is what reads from a topic, as this consumer unless another is named.
func (r *Router) Intake(consumer string) (intake.RouterConfig, error) {
	out := intake.RouterConfig{
		Name: r.Router, URL: r.URL, Group: r.Group, Consumer: r.Consumer,
		LongPoll: r.LongPoll, Limit: r.Limit, User: r.User,
	}
	if out.Consumer == "" {
		out.Consumer = consumer
	}
	password, err := optionalSecret("password_file", r.PasswordFile)
	if err != nil {
		return out, err
	}
	out.Password = password
	if r.CAFile != "" {
		if out.TLS, err = target.Trust(r.CAFile); err != nil {
			return out, fmt.Errorf("ca_file: %w", err)
		}
	}
	return out, nil
}

// SinkNames are the names of the sinks.
func (c *Monitor) SinkNames() []string {
	out := make([]string, 0, len(c.Sinks))
	for _, s := range c.Sinks {
		out = append(out, s.Sink)
	}
	return out
}

// ProvenPath is a way that beats take that this program proves by itself.
func ProvenPath(name string) monitor.PathConfig {
	return monitor.PathConfig{Name: name, TrustFor: StoreTrust, MaxGap: StoreGap, Synchronous: true}
}

// checkMonitor refuses what can be refused without a store.
func (c *Server) checkMonitor() error {
	if c.Monitor == nil {
		return nil
	}
	for _, r := range c.Roles {
		if r.Role == ActiveRole {
			return usererr.Errorf("role %q is the monitor's own: it is held by the instance that applies configurations", ActiveRole)
		}
	}
	if err := c.Timing().Validate(ActiveGrace); err != nil {
		return fmt.Errorf("monitor: %w", err)
	}
	return strictyaml.In("monitor", c.Monitor.check())
}

// RouterPath is the way that beats take through a router: it is taken to work only as far
// as it was seen to, by a poll that emptied it. Longer between two than a poll
// takes, it may have been down, and have lost what was sent.
func RouterPath(c intake.RouterConfig) monitor.PathConfig {
	return monitor.PathConfig{Name: "router." + c.Name, MaxGap: cmp.Or(c.LongPoll, defaultLongPoll) + routerSlack}
}

// How long a router holds a request, and how long the rest of a poll may take.
const (
	defaultLongPoll = 5 * time.Second
	routerSlack     = 3 * time.Second
)
