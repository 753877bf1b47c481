package server

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/understudy-ha/understudy/elect"
	"github.com/understudy-ha/understudy/internal/backoff"
	"github.com/understudy-ha/understudy/internal/instance"
	"github.com/understudy-ha/understudy/internal/settings"
	"github.com/understudy-ha/understudy/internal/termtext"
	"github.com/understudy-ha/understudy/monitor"
)

const (
	// configureTimeout bounds one change of the configuration: there may be many
	// checks and declared sources.
	configureTimeout = time.Minute
	// fetchTimeout bounds one look for a new one, with all places that are tried.
	fetchTimeout = time.Minute
	// retryMost is how soon a look is tried again that failed, at the latest.
	retryMost = time.Minute
)

// activePart puts configurations into force while this instance is the active one.
type activePart struct {
	mon     *servedMonitor
	refused atomic.Pointer[string] // why the last configuration was not applied; nil if it was
	warned  []string               // by the last configuration, and logged
	again   chan struct{}          // tells that the checks of this instance are others now, or that a stream has failed
	streams onapStreams
}

// run campaigns for the role for as long as the instance runs.
func (p *activePart) run(ctx context.Context) error {
	defer p.streams.running.Wait()
	cfg := elect.Config{Keeper: p.mon.keeper, Role: settings.ActiveRole, StopGrace: settings.ActiveGrace, Logger: p.mon.host.Log}
	return campaignAgain(ctx, cfg, func(ctx context.Context, _ elect.Term) error { return p.lead(ctx) })
}

// lead looks for a new configuration every so often. One that failed is tried
// again soon.
func (p *activePart) lead(ctx context.Context) error {
	p.mon.watcher.SetActive(true)
	defer p.mon.watcher.SetActive(false)
	defer p.streams.end()
	fetch, err := p.source(ctx)
	if err != nil {
		return err
	}
	for retry := (backoff.Backoff{First: time.Second, Most: retryMost}); ; {
		pause, err := p.once(ctx, fetch)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			pause = min(retry.Next(), pause)
			p.refuse(ctx, err)
		default:
			retry.Reset()
			p.refused.Store(nil)
		}
		if !restUnless(ctx, p.again, pause) {
			return context.Cause(ctx)
		}
	}
}

// source is where the configuration comes from; nil: it is what the instance was
// started with.
func (p *activePart) source(ctx context.Context) (func(context.Context) (settings.Fetched, error), error) {
	if p.mon.cfg.Config == nil {
		return nil, nil
	}
	call, cancel := context.WithTimeout(ctx, instance.CallTimeout)
	defer cancel()
	o, err := p.mon.table.Overview(call)
	if err != nil {
		p.mon.host.Log.Warn("the origin of the applied configuration is not known", "err", err)
	}
	return p.mon.cfg.Fetcher(o.Origin, p.mon.host.Log)
}

// once fetches a configuration, puts it into force, and tells when to look again.
func (p *activePart) once(ctx context.Context, fetch func(context.Context) (settings.Fetched, error)) (time.Duration, error) {
	if fetch == nil {
		c := p.mon.checks()
		if c.Keep || len(c.Checks) == 0 {
			return settings.Forever, nil // each instance did so when it started, or there is nothing
		}
		return settings.Forever, p.mon.configure(ctx, c)
	}
	call, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	f, err := fetch(call)
	if err != nil {
		return settings.Forever, err
	}
	p.warn(&f)
	if err := f.Validate(); err != nil {
		return f.Poll, err
	}
	// Before the checks: an alarm of theirs must find the sink.
	if err := p.streams.apply(ctx, f.Streams, p.wake); err != nil {
		return f.Poll, err
	}
	return f.Poll, p.mon.configure(ctx, f.Configuration)
}

// warn logs what a configuration has that is odd or not used, unless the last one had the same.
func (p *activePart) warn(f *settings.Fetched) {
	if p.warned != nil && slices.Equal(f.Warnings, p.warned) {
		return
	}
	p.warned = append([]string{}, f.Warnings...)
	for _, w := range f.Warnings {
		p.mon.host.Log.Warn("the configuration has something that is odd or not used", "what", termtext.Line(w), "from", f.Origin)
	}
	if f.Publish == "" && len(p.mon.sinks) == 0 {
		p.mon.warnNoSinks()
	}
}

// wake makes the active instance look for a configuration now.
func (p *activePart) wake() {
	select {
	case p.again <- struct{}{}:
	default: // it will look anyway
	}
}

// refuse logs, once, that the last configuration stays in force, and why. It is recorded each time: the record may have
// failed, or been cleared by what someone else applied since.
func (p *activePart) refuse(ctx context.Context, reason error) {
	why := reason.Error()
	last := p.refused.Swap(&why)
	origin := p.mon.origin
	if p.mon.cfg.Config != nil {
		origin = p.mon.cfg.Config.String()
	}
	said := strings.TrimPrefix(why, origin+": ")
	if last == nil || *last != why {
		p.mon.host.Log.Error("the configuration was not applied; the last one stays", "from", origin, "err", said)
	}
	call, cancel := context.WithTimeout(ctx, instance.CallTimeout)
	defer cancel()
	if err := p.mon.table.RejectConfiguration(call, origin, termtext.Text(said)); err != nil {
		p.mon.host.Log.Warn("that could not be recorded", "err", err)
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
	_ = s.watcher.Refresh(call) // or the next scan does
	if n := len(done.Added) + len(done.Changed) + len(done.Removed) + done.Declared; n > 0 {
		s.host.Log.Info("configuration applied", "from", c.Origin, "added", len(done.Added), "changed", len(done.Changed),
			"removed", len(done.Removed), "declared", done.Declared)
	}
	return nil
}

// addChecks applies the checks that this instance adds to those of the store, before it receives the first heartbeat.
func (s *servedMonitor) addChecks(ctx context.Context) error {
	c := s.checks()
	if !c.Keep || len(c.Checks)+len(c.Declared) == 0 {
		return nil
	}
	for retry := (backoff.Backoff{First: 200 * time.Millisecond, Most: 5 * time.Second}); ; {
		err := s.configure(ctx, c)
		if err == nil || ctx.Err() != nil || !instance.Unreachable(err) {
			return err
		}
		s.host.Log.Warn("the checks are not applied yet; retrying", "err", err)
		if !retry.Wait(ctx) {
			return context.Cause(ctx)
		}
	}
}

// rest waits, somewhat less or more so that instances do not march in step, and tells
// whether ctx continues.
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
