package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/understudy-ha/understudy/elect"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/monitor"
	"github.com/understudy-ha/understudy/monitor/onap"
)

const (
	// activeRole is the role of the instance that puts configurations into force.
	activeRole = "monitor"
	// activeGrace is how long it may take to stop that.
	activeGrace = 100 * time.Millisecond

	defaultPoll = 5 * time.Minute
	// configureTimeout bounds one change of the configuration: there may be many
	// event names and declared sources.
	configureTimeout = time.Minute
	// fetchTimeout bounds one look for a new one, with all places that are tried.
	fetchTimeout = time.Minute
	// forever is longer than anything runs.
	forever = time.Duration(1<<63 - 1)
	// retryMost is how soon a look is tried again that failed, at the latest.
	retryMost = time.Minute
)

// fetchConfig is where a configuration comes from, again and again.
type fetchConfig struct {
	// File is YAML, or the JSON of ONAP's heartbeat service.
	File string `yaml:"file"`
	// CBS fetches that JSON as ONAP's service does: from its Config Binding
	// Service, or the files that take its place.
	CBS bool `yaml:"cbs"`
	// Properties is the file hbproperties.yaml of that service: how often to look, if the
	// JSON lacks what the service needs.
	Properties string `yaml:"properties"`
	// Poll is how often to look. Default: what the JSON says, or 5m.
	Poll duration `yaml:"poll"`
}

// String is where it is.
func (f *fetchConfig) String() string {
	if f.CBS {
		return "the Config Binding Service"
	}
	return f.File
}

func (f *fetchConfig) check() error {
	switch {
	case f.File == "-":
		return usagef("standard input cannot be read again and again; name a file")
	case (f.File == "") == !f.CBS:
		return usagef("say where it comes from: either file or cbs: true")
	case f.Poll < 0 || f.Poll > 0 && time.Duration(f.Poll) < time.Second:
		return usagef("poll is %v; use at least 1s", time.Duration(f.Poll))
	}
	return nil
}

// fetched is a configuration, and when to look for the next one.
type fetched struct {
	monitor.Configuration
	poll time.Duration
}

// fetcher returns what fetches the configuration; last is the origin of the one in
// force.
func (a *app) fetcher(f *fetchConfig, last string) (func(context.Context) (fetched, error), error) {
	if !f.CBS {
		return func(context.Context) (fetched, error) {
			doc, err := readDocument(f.File, f.Properties, nil)
			out := fetched{doc.Configuration, f.every(defaultPoll)}
			if doc.onap != nil {
				out.poll = f.every(doc.onap.Poll)
			}
			return out, err
		}, nil
	}
	from, err := onap.NewFetcher(onap.FetcherConfig{Decode: yaml.Unmarshal, Last: last, Logger: a.log})
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) (fetched, error) {
		c, origin, err := from.Fetch(ctx)
		if err != nil {
			return fetched{}, err
		}
		c.Monitor.Origin = origin
		c, err = withProperties(c, f.Properties)
		return fetched{c.Monitor, f.every(c.Poll)}, err
	}, nil
}

// withProperties adds what stands in hbproperties.yaml, if there is one.
func withProperties(c onap.Config, path string) (onap.Config, error) {
	if path == "" {
		return c, nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return c, usagef("properties: %v", err)
	}
	p, err := onap.ParseProperties(text, yaml.Unmarshal, os.LookupEnv)
	if err != nil {
		return c, fmt.Errorf("properties: %s: %w", path, err)
	}
	return c.WithProperties(p), nil
}

// every is how often to look, if the configuration itself has its own opinion; 0 there
// is not at all.
func (f *fetchConfig) every(own time.Duration) time.Duration {
	switch {
	case f.Poll > 0:
		return time.Duration(f.Poll)
	case own > 0:
		return own
	}
	return forever
}

// activePart puts configurations into force while this instance is the active one.
type activePart struct {
	mon   *servedMonitor
	told  string        // what was refused last, and logged
	again chan struct{} // tells that the event names of this instance are others now
}

// run campaigns for the role for as long as the instance runs.
func (p *activePart) run(ctx context.Context) error {
	for {
		err := elect.Run(ctx, elect.Config{Keeper: p.mon.keeper, Role: activeRole, StopGrace: activeGrace, Logger: p.mon.app.log},
			func(ctx context.Context, _ elect.Term) error { return p.lead(ctx) })
		if ctx.Err() != nil {
			return nil
		}
		if errors.Is(err, lease.ErrInvalid) || errors.Is(err, lease.ErrUnsafeTiming) {
			return err
		}
		p.mon.app.log.Warn("no longer the active instance; standing by", "err", err)
		if !rest(ctx, p.mon.keeper.Timing().Interval) {
			return nil
		}
	}
}

// lead looks for a new configuration every so often. One that failed is tried
// again soon.
func (p *activePart) lead(ctx context.Context) error {
	p.mon.watcher.SetActive(true)
	defer p.mon.watcher.SetActive(false)
	fetch, err := p.source(ctx)
	if err != nil {
		return err
	}
	for soon := time.Second; ; {
		pause, err := p.once(ctx, fetch)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			pause, soon = min(soon, pause), min(2*soon, retryMost)
			p.refuse(ctx, err)
		default:
			soon, p.told = time.Second, ""
		}
		if !restUnless(ctx, p.again, pause) {
			return context.Cause(ctx)
		}
	}
}

// source is where the configuration comes from; nil: it is what the instance was
// started with.
func (p *activePart) source(ctx context.Context) (func(context.Context) (fetched, error), error) {
	if p.mon.cfg.Config == nil {
		return nil, nil
	}
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	o, err := p.mon.table.Overview(call)
	if err != nil {
		p.mon.app.log.Warn("where the configuration in force came from is not known", "err", err)
	}
	return p.mon.app.fetcher(p.mon.cfg.Config, o.Origin)
}

// once fetches a configuration, puts it into force, and tells when to look again.
func (p *activePart) once(ctx context.Context, fetch func(context.Context) (fetched, error)) (time.Duration, error) {
	if fetch == nil {
		c := p.mon.events()
		if c.Keep || len(c.Events) == 0 {
			return forever, nil // each instance did so when it started, or there is nothing
		}
		return forever, p.mon.configure(ctx, c)
	}
	call, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	f, err := fetch(call)
	if err != nil {
		return forever, err
	}
	return f.poll, p.mon.configure(ctx, f.Configuration)
}

// refuse tells, once, that the last configuration stays in force, and why.
func (p *activePart) refuse(ctx context.Context, reason error) {
	if p.told == reason.Error() {
		return
	}
	origin := p.mon.origin
	if p.mon.cfg.Config != nil {
		origin = p.mon.cfg.Config.String()
	}
	p.told = reason.Error()
	said := strings.TrimPrefix(p.told, origin+": ")
	p.mon.app.log.Error("the configuration was not put into force; the last one stays", "from", origin, "err", said)
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if err := p.mon.table.Refuse(call, origin, clean(said)); err != nil {
		p.mon.app.log.Warn("that could not be recorded", "err", err)
	}
}

// configure puts a configuration into force.
func (s *servedMonitor) configure(ctx context.Context, c monitor.Configuration) error {
	if err := c.Validate(); err != nil {
		return err
	}
	call, cancel := context.WithTimeout(ctx, configureTimeout)
	defer cancel()
	done, err := s.table.Configure(call, c)
	if err != nil {
		return err
	}
	if n := len(done.Added) + len(done.Changed) + len(done.Removed) + done.Declared; n > 0 {
		s.app.log.Info("configuration in force", "from", c.Origin, "added", len(done.Added), "changed", len(done.Changed),
			"removed", len(done.Removed), "declared", done.Declared)
	}
	return nil
}

// addEvents puts the event names that this instance adds to those of the store into
// force, before it takes the first beat.
func (s *servedMonitor) addEvents(ctx context.Context) error {
	c := s.events()
	if !c.Keep || len(c.Events)+len(c.Declared) == 0 {
		return nil
	}
	for pause := 200 * time.Millisecond; ; pause = min(2*pause, 5*time.Second) {
		err := s.configure(ctx, c)
		if err == nil || ctx.Err() != nil || exitCode(err) != exitUnreachable {
			return monitorAdvice(err)
		}
		s.app.log.Warn("the event names are not in force yet; trying again", "err", err)
		if !rest(ctx, pause) {
			return context.Cause(ctx)
		}
	}
}

// rest waits, somewhat less or more so that instances do not march in step, and tells
// whether ctx goes on.
func rest(ctx context.Context, d time.Duration) bool { return restUnless(ctx, nil, d) }

// restUnless is rest that ends when something comes.
func restUnless(ctx context.Context, sooner <-chan struct{}, d time.Duration) bool {
	if tenth := d / 10; tenth > 0 && d < 1<<62 {
		d += rand.N(2*tenth) - tenth
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-sooner:
		return true
	case <-t.C:
		return true
	}
}

// originOf is where an instance's own event names come from.
func originOf(file, name string) string {
	if file == "" {
		return fmt.Sprintf("the command line of %s", name)
	}
	return fmt.Sprintf("%s of %s", file, name)
}
