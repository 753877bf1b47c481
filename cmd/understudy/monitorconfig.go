package main

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/understudy-ha/understudy/claim"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/monitor"
	"github.com/understudy-ha/understudy/monitor/intake"
)

// monitorConfig is the part of the server's file that makes it an instance of the
// monitor.
type monitorConfig struct {
	eventsConfig `yaml:",inline"`
	// Config is where events and declared sources come from instead.
	Config *fetchConfig `yaml:"config"`
	// Sinks are told of alarms.
	Sinks []sinkConfig `yaml:"sinks"`
	// Routers are topics that beats are read from, besides those that come over HTTP.
	Routers []routerConfig `yaml:"routers"`
	// PingKeys let senders in over HTTP that do not know the token.
	PingKeys []pingKeyConfig `yaml:"ping_keys"`
	// FirstWindow is after how long of silence an instance's sources are looked after by
	// others. Default 5s.
	FirstWindow duration `yaml:"first_window"`
	// KeepAlarms is how long alarms are kept that ended. Default 2160h, 90 days.
	KeepAlarms duration `yaml:"keep_alarms"`
}

// routerConfig is an intake.RouterConfig in the file.
type routerConfig struct {
	// Router is its name, for people and for the path "router.NAME".
	Router string `yaml:"router"`
	URL    string `yaml:"url" secret:"url"`
	Group  string `yaml:"group"`
	// Consumer must differ between instances. Default: the instance's name and the
	// port that it listens on, so that two on one host differ.
	Consumer string `yaml:"consumer"`
	// LongPoll is how long the router may hold a request. Default 5s.
	LongPoll duration `yaml:"long_poll"`
	// Limit is how many messages are asked for at once. Default 1000.
	Limit        int    `yaml:"limit"`
	User         string `yaml:"user"`
	PasswordFile string `yaml:"password_file"`
	CAFile       string `yaml:"ca_file"`
}

// pingKeyConfig is an intake.PingKey in the file.
type pingKeyConfig struct {
	// Name is for people. Default: that of the file.
	Name string `yaml:"name"`
	File string `yaml:"file"`
	// Events that it may beat for, as patterns with *. Default: all.
	Events []string `yaml:"events"`
	// PostOnly refuses GET and HEAD, which previews of links send too.
	PostOnly bool `yaml:"post_only"`
}

// windows are those of the claims on sources: nothing of them is ever in a step.
func (c *monitorConfig) windows() claim.Windows {
	w := claim.Windows{First: time.Duration(c.FirstWindow)}
	if w.First == 0 {
		w.First = 5 * time.Second
	}
	w.Second = w.First
	return w
}

// check refuses what can be refused without a store; files of secrets are read.
func (c *monitorConfig) check() error {
	found := []error{c.eventsConfig.check()}
	if c.Config != nil {
		if len(c.Events) > 0 || len(c.Declared) > 0 {
			found = append(found, usagef("config says where the event names come from; events and declared cannot stand beside it"))
		}
		found = append(found, in("config", c.Config.check()))
	}
	found = append(found, c.windows().Validate(0))
	if c.KeepAlarms < 0 {
		found = append(found, usagef("keep_alarms is %v; it cannot be negative", time.Duration(c.KeepAlarms)))
	}
	seen := map[string]bool{}
	for i := range c.Sinks {
		s := &c.Sinks[i]
		found = append(found, s.check())
		if seen[s.Sink] {
			found = append(found, usagef("sink %q stands twice", s.Sink))
		}
		seen[s.Sink] = true
	}
	return errors.Join(append(found, c.checkIntake())...)
}

func (c *monitorConfig) checkIntake() error {
	seen := map[string]bool{}
	for i := range c.Routers {
		r := &c.Routers[i]
		if err := lease.ValidateSpace(r.Router); err != nil {
			return fmt.Errorf("router: %w", err)
		}
		if seen[r.Router] {
			return usagef("router %q stands twice", r.Router)
		}
		seen[r.Router] = true
		made, err := r.router("this instance")
		if err != nil {
			return fmt.Errorf("router %s: %w", r.Router, err)
		}
		made.Flow = (*monitor.Inflow)(nil) // nothing flows yet
		if err := made.Validate(); err != nil {
			return err
		}
	}
	_, err := c.keys()
	return err
}

// keys reads the ping keys.
func (c *monitorConfig) keys() ([]intake.PingKey, error) {
	out := make([]intake.PingKey, 0, len(c.PingKeys))
	for _, k := range c.PingKeys {
		text, err := secretFile(k.File)
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

func portOf(listen string) string {
	_, port, _ := net.SplitHostPort(listen)
	return port
}

// router is what reads from a topic, as this consumer unless another is named.
func (r *routerConfig) router(consumer string) (intake.RouterConfig, error) {
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
		return nil, usagef("ca_file: %v", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, usagef("ca_file %s has no certificate in PEM", path)
	}
	return &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}, nil
}

// sinkNames are the names of the sinks.
func (c *monitorConfig) sinkNames() []string {
	out := make([]string, 0, len(c.Sinks))
	for _, s := range c.Sinks {
		out = append(out, s.Sink)
	}
	return out
}

// monitorPath is a way that beats take that this program proves by itself.
func monitorPath(name string) monitor.PathConfig {
	return monitor.PathConfig{Name: name, Trust: storeTrust, Gap: storeGap, Steady: true}
}

// checkMonitor refuses what can be refused without a store.
func (c *serveConfig) checkMonitor() error {
	if c.Monitor == nil {
		return nil
	}
	for _, r := range c.Roles {
		if r.Role == activeRole {
			return usagef("role %q is the monitor's own: it is held by the instance that puts configurations into force", activeRole)
		}
	}
	if err := c.timing().Validate(activeGrace); err != nil {
		return fmt.Errorf("monitor: %w", err)
	}
	return in("monitor", c.Monitor.check())
}

// routerPath is the way that beats take through a router: it is taken to work only as far
// as it was seen to, by a poll that emptied it. Longer between two than a poll
// takes, it may have been down, and have lost what was sent.
func routerPath(c intake.RouterConfig) monitor.PathConfig {
	return monitor.PathConfig{Name: "router." + c.Name, Gap: cmp.Or(c.LongPoll, defaultLongPoll) + routerSlack}
}

// How long a router holds a request, and how long the rest of a poll may take.
const (
	defaultLongPoll = 5 * time.Second
	routerSlack     = 3 * time.Second
)
