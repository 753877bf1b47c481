package settings

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/understudy-ha/understudy/internal/usererr"
	"github.com/understudy-ha/understudy/monitor"
	"github.com/understudy-ha/understudy/monitor/onap"
)

const (
	defaultPoll = 5 * time.Minute
	// Forever is longer than anything runs.
	Forever = time.Duration(1<<63 - 1)
)

// Fetch is where a configuration comes from, again and again.
type Fetch struct {
	File       string        `yaml:"file" flag:"config" help:"read checks from this 'FILE': YAML, a server's file, or the JSON of ONAP's heartbeat service"`
	CBS        bool          `yaml:"cbs" flag:"config-cbs" more:"yes" help:"fetch that JSON from ONAP's Config Binding Service, as $CONFIG_BINDING_SERVICE and $HOSTNAME say"`
	Properties string        `yaml:"properties" flag:"-" help:"with ONAP's JSON: its hbproperties.yaml"`
	Poll       time.Duration `yaml:"poll" help:"look for a new configuration this often (default: as the JSON says, else 5m)"`
}

// String is where it is.
func (f *Fetch) String() string {
	if f.CBS {
		return "the Config Binding Service"
	}
	return f.File
}

func (f *Fetch) check() error {
	switch {
	case f.File == "-":
		return usererr.Errorf("standard input cannot be read again and again; name a file")
	case (f.File == "") == !f.CBS:
		return usererr.Errorf("say where it comes from: either file or cbs: true")
	case f.Poll < 0 || f.Poll > 0 && f.Poll < time.Second:
		return usererr.Errorf("poll is %v; use at least 1s", f.Poll)
	}
	return nil
}

// Fetched is a configuration, and when to look for the next one.
type Fetched struct {
	monitor.Configuration
	Poll time.Duration // forever is not at all
	Streams
	// Warnings name what is odd, or not used.
	Warnings []string
}

// Fetcher returns what fetches the configuration; last is the origin of the one in
// force.
func (c *Monitor) Fetcher(last string, log *slog.Logger) (func(context.Context) (Fetched, error), error) {
	f := c.Config
	if !f.CBS {
		return func(context.Context) (Fetched, error) {
			doc, err := ReadDocument(f.File, f.Properties, nil)
			if err == nil && doc.ONAP != nil {
				return c.fetched(*doc.ONAP, doc.Configuration), nil
			}
			return Fetched{Configuration: doc.Configuration, Poll: f.every(defaultPoll), Warnings: doc.Outdated}, err
		}, nil
	}
	from, err := onap.NewFetcher(onap.FetcherConfig{Decode: yaml.Unmarshal, Last: last, Logger: log})
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) (Fetched, error) {
		got, origin, err := from.Fetch(ctx)
		if err != nil {
			return Fetched{}, err
		}
		got.Monitor.Origin = origin
		if got, err = withProperties(got, f.Properties); err != nil {
			return Fetched{}, err
		}
		return c.fetched(got, got.Monitor), nil
	}, nil
}

// fetched is what ONAP's JSON says.
func (c *Monitor) fetched(from onap.Config, checks monitor.Configuration) Fetched {
	streams, warnings := c.streamsOf(from)
	return Fetched{Configuration: checks, Poll: c.Config.every(from.Poll), Streams: streams, Warnings: warnings}
}

// withProperties adds what stands in hbproperties.yaml, if there is one.
func withProperties(c onap.Config, path string) (onap.Config, error) {
	if path == "" {
		return c, nil
	}
	text, err := readFile(path)
	if err != nil {
		return c, usererr.Errorf("properties: %v", err)
	}
	p, err := onap.ParseProperties(text, yaml.Unmarshal, os.LookupEnv)
	if err != nil {
		return c, fmt.Errorf("properties: %s: %w", path, err)
	}
	return c.WithProperties(p), nil
}

// every is how often to look, if the configuration itself has its own opinion; 0 there
// is not at all.
func (f *Fetch) every(own time.Duration) time.Duration {
	switch {
	case f.Poll > 0:
		return f.Poll
	case own > 0:
		return own
	}
	return Forever
}
