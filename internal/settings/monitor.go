package settings

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/understudy-ha/understudy/claim"
	"github.com/understudy-ha/understudy/internal/strict"
	"github.com/understudy-ha/understudy/internal/usage"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/monitor"
	"github.com/understudy-ha/understudy/monitor/intake"
)

const (
	// ActiveRole is the role of the instance that puts configurations into force.
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
// monitor.
type Monitor struct {
	Monitored `yaml:",inline"`
	// Config is where events and declared sources come from instead.
	Config *Fetch `yaml:"config"`
	// Sinks are told of alarms.
	Sinks []Sink `yaml:"sinks"`
	// Routers are topics that beats are read from, besides those that come over HTTP.
	Routers []Router `yaml:"routers"`
	// PingKeys let senders in over HTTP that do not know the token.
	PingKeys []PingKey `yaml:"ping_keys"`
	// FirstWindow is after how long of silence an instance's sources are looked after by
	// others. Default 5s.
	FirstWindow strict.Duration `yaml:"first_window"`
	// KeepAlarms is how long alarms are kept that ended. Default 2160h, 90 days.
	KeepAlarms strict.Duration `yaml:"keep_alarms"`
}

// Router is an intake.RouterConfig in the file.
type Router struct {
	// Router is its name, for people and for the path "router.NAME".
	Router string `yaml:"router"`
	URL    string `yaml:"url" secret:"url"`
	Group  string `yaml:"group"`
	// Consumer must differ between instances. Default: the instance's name and the
	// port that it listens on, so that two on one host differ.
	Consumer string `yaml:"consumer"`
	// LongPoll is how long the router may hold a request. Default 5s.
	LongPoll strict.Duration `yaml:"long_poll"`
	// Limit is how many messages are asked for at once. Default 1000.
	Limit        int    `yaml:"limit"`
	User         string `yaml:"user"`
	PasswordFile string `yaml:"password_file"`
	CAFile       string `yaml:"ca_file"`
}

// PingKey is an intake.PingKey in the file.
type PingKey struct {
	// Name is for people. Default: that of the file.
	Name string `yaml:"name"`
	File string `yaml:"file"`
	// Events that it may beat for, as patterns with *. Default: all.
	Events []string `yaml:"events"`
	// PostOnly refuses GET and HEAD, which previews of links send too.
	PostOnly bool `yaml:"post_only"`
}

// Windows are those of the claims on sources: nothing of them is ever in a step.
func (c *Monitor) Windows() claim.Windows {
	w := claim.Windows{First: time.Duration(c.FirstWindow)}
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
		if len(c.Events) > 0 || len(c.Declared) > 0 {
			found = append(found, usage.Errorf("config says where the event names come from; events and declared cannot stand beside it"))
		}
		found = append(found, strict.In("config", c.Config.check()))
	}
	found = append(found, c.Windows().Validate(0))
	if c.KeepAlarms < 0 {
		found = append(found, usage.Errorf("keep_alarms is %v; it cannot be negative", time.Duration(c.KeepAlarms)))
	}
	seen := map[string]bool{}
	for i := range c.Sinks {
		s := &c.Sinks[i]
		found = append(found, s.check())
		if seen[s.Sink] {
			found = append(found, usage.Errorf("sink %q stands twice", s.Sink))
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
			return usage.Errorf("router %q stands twice", r.Router)
		}
		seen[r.Router] = true
		made, err := r.Intake("this instance")
		if err != nil {
			return fmt.Errorf("router %s: %w", r.Router, err)
		}
		made.Flow = (*monitor.Inflow)(nil) // nothing flows yet
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
		text, err := SecretFile(k.File)
		if err != nil {
			return nil, fmt.Errorf("ping key: %w", err)
		}
		key := intake.PingKey{Name: cmp.Or(k.Name, filepath.Base(k.File)), Key: string(text), Events: slices.Clone(k.Events), PostOnly: k.PostOnly}
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
		LongPoll: time.Duration(r.LongPoll), Limit: r.Limit, User: r.User,
	}
	if out.Consumer == "" {
		out.Consumer = consumer
	}
	password, err := optionalSecret(r.PasswordFile)
	if err != nil {
		return out, err
	}
	out.Password = string(password)
	if r.CAFile != "" {
		if out.TLS, err = trusting(r.CAFile); err != nil {
			return out, err
		}
	}
	return out, nil
}

// trusting is a TLS configuration that trusts the certificates of a file alone.
func trusting(path string) (*tls.Config, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, usage.Errorf("ca_file: %v", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, usage.Errorf("ca_file %s has no certificate in PEM", path)
	}
	return &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}, nil
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
	return monitor.PathConfig{Name: name, Trust: StoreTrust, Gap: StoreGap, Steady: true}
}

// checkMonitor refuses what can be refused without a store.
func (c *Server) checkMonitor() error {
	if c.Monitor == nil {
		return nil
	}
	for _, r := range c.Roles {
		if r.Role == ActiveRole {
			return usage.Errorf("role %q is the monitor's own: it is held by the instance that puts configurations into force", ActiveRole)
		}
	}
	if err := c.Timing().Validate(ActiveGrace); err != nil {
		return fmt.Errorf("monitor: %w", err)
	}
	return strict.In("monitor", c.Monitor.check())
}

// RouterPath is the way that beats take through a router: it is taken to work only as far
// as it was seen to, by a poll that emptied it. Longer between two than a poll
// takes, it may have been down, and have lost what was sent.
func RouterPath(c intake.RouterConfig) monitor.PathConfig {
	return monitor.PathConfig{Name: "router." + c.Name, Gap: cmp.Or(c.LongPoll, defaultLongPoll) + routerSlack}
}

// How long a router holds a request, and how long the rest of a poll may take.
const (
	defaultLongPoll = 5 * time.Second
	routerSlack     = 3 * time.Second
)
