package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/understudy-ha/understudy/api"
	"github.com/understudy-ha/understudy/history"
	"github.com/understudy-ha/understudy/internal/glob"
	"github.com/understudy-ha/understudy/internal/instance"
	"github.com/understudy-ha/understudy/internal/settings"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/store"
)

// maxHookWaiting is how many events wait for one hook; the oldest are given up.
const maxHookWaiting = 1000

// servedHooks reads the history, and gives what is new to the hooks.
type servedHooks struct {
	log      history.Log
	feed     *history.Feed
	notifier *lease.Notifier
	every    time.Duration
	hooks    []*hook
	logger   *slog.Logger
}

// hook is one of them.
type hook struct {
	cfg     settings.Hook
	label   string // of it in metrics and logs
	primary func() bool
	window  time.Duration // how long an event waits for this instance to become primary
	logger  *slog.Logger
	waiting chan seenEvent
	// remaining were taken from waiting when the server stopped, and not run.
	remaining []seenEvent
	// lastPrimary is when this instance was last seen as primary; nil: never.
	lastPrimary atomic.Pointer[time.Time]

	ok, failed, killed, dropped atomic.Uint64
}

// seenEvent is an event, and when it was seen.
type seenEvent struct {
	history.Event
	on   string
	seen time.Time
}

// serveHooks makes them, for what changes from now on. Nothing runs yet. Without any it is nil, which does nothing.
func serveHooks(ctx context.Context, log *slog.Logger, hooks []settings.Hook, st store.Store, k *lease.Keeper, held *heldRoles) (*servedHooks, error) {
	if len(hooks) == 0 {
		return nil, nil
	}
	out := &servedHooks{log: st, notifier: k.Notifier(), every: k.Timing().Interval, logger: log}
	for i, cfg := range hooks {
		h := &hook{
			cfg: cfg, label: strconv.Itoa(i+1) + " " + filepath.Base(cfg.Command[0]),
			window: 2*k.Timing().Timeout + 5*time.Second, logger: log,
			waiting: make(chan seenEvent, maxHookWaiting), primary: func() bool { return true },
		}
		if cfg.OnlyPrimaryOf != "" {
			h.primary = func() bool { _, is := held.term(cfg.OnlyPrimaryOf); return is }
		}
		out.hooks = append(out.hooks, h)
	}
	// Before the server is ready: from then on nothing is missed, even when the store cannot be reached for a while.
	if err := out.findEnd(ctx); err != nil {
		return nil, fmt.Errorf("hooks: %w", err)
	}
	return out, nil
}

// findEnd finds out where the history ends: what comes after that is for the hooks.
func (s *servedHooks) findEnd(ctx context.Context) error {
	call, cancel := context.WithTimeout(ctx, instance.CallTimeout)
	defer cancel()
	after, err := history.NewestID(call, s.log)
	if err != nil {
		return err
	}
	s.feed = history.NewFeed(s.log, after)
	return nil
}

func (s *servedHooks) start(part func(string, func(context.Context) error)) {
	if s != nil {
		part("hooks", s.run)
	}
}

// run reads until ctx ends, and returns when no program of a hook is alive any more.
func (s *servedHooks) run(ctx context.Context) error {
	var hooks sync.WaitGroup
	defer func() {
		hooks.Wait()
		for _, h := range s.hooks {
			h.giveUpWaiting()
		}
	}()
	for _, h := range s.hooks {
		hooks.Go(func() { h.run(ctx) })
	}
	sub := s.notifier.Subscribe()
	defer sub.Close()
	failing := false
	for ctx.Err() == nil {
		err := s.read(ctx)
		if err != nil && !failing && ctx.Err() == nil {
			s.logger.Warn("hooks cannot read the history; they go on where they are when it can be read again", "err", err)
		}
		failing = err != nil
		for _, h := range s.hooks {
			h.isPrimary()
		}
		s.pause(ctx, sub)
	}
	return nil
}

// read passes on what is new.
func (s *servedHooks) read(ctx context.Context) error {
	call, cancel := context.WithTimeout(ctx, instance.CallTimeout)
	defer cancel()
	events, err := s.feed.Next(call)
	for _, e := range events {
		for _, h := range s.hooks {
			h.offer(e, time.Now())
		}
	}
	return err
}

// pause waits for an interval, or less when something changed hands: a tenth of it at least.
func (s *servedHooks) pause(ctx context.Context, sub *lease.Subscription) {
	late, soon := time.NewTimer(s.every), time.NewTimer(s.every/10)
	defer late.Stop()
	defer soon.Stop()
	for woken, rested := false, false; !woken || !rested; {
		select {
		case <-ctx.Done():
			return
		case <-late.C:
			return
		case <-soon.C:
			rested = true
		case <-sub.C():
			woken = true
		}
	}
}

// offer gives a hook an event if that is one of its own. It never waits: the oldest that waits
// makes room. Only one goroutine offers.
func (h *hook) offer(e history.Event, now time.Time) {
	parts := settings.HookParts()
	at := slices.IndexFunc(h.cfg.On, func(on string) bool { return parts[on] == e.Part })
	if at < 0 || !glob.Match(h.cfg.Match, e.Subject) {
		return
	}
	for {
		select {
		case h.waiting <- seenEvent{e, h.cfg.On[at], now}:
			return
		default:
		}
		select {
		case old := <-h.waiting:
			h.giveUp(old)
		default:
		}
	}
}

// run runs the program for one event after the other.
func (h *hook) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case e := <-h.waiting:
			switch {
			case h.waitUntilPrimary(ctx, e):
				h.runProgram(ctx, e)
			case ctx.Err() != nil:
				h.remaining = append(h.remaining, e)
			case h.isLost(e):
				h.giveUp(e)
			}
		}
	}
}

// waitUntilPrimary reports whether this instance runs the program for an event. Where a role decides
// that, an event waits for long enough that the next primary has it, if the present one is gone.
func (h *hook) waitUntilPrimary(ctx context.Context, e seenEvent) bool {
	const interval = 200 * time.Millisecond
	for !h.isPrimary() {
		if time.Since(e.seen) > h.window {
			return false
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(interval):
		}
	}
	return ctx.Err() == nil
}

// isPrimary reports whether the hook is for this instance to run now, and remembers when it last was.
func (h *hook) isPrimary() bool {
	if !h.primary() {
		return false
	}
	now := time.Now()
	h.lastPrimary.Store(&now)
	return true
}

// isLost reports whether an event that this instance does not run the program for was its own: each instance
// runs the hook for itself, or this one was primary until the others had given the event up. (What all of them
// give up because nobody became primary in time cannot be known here.)
func (h *hook) isLost(e seenEvent) bool {
	last := h.lastPrimary.Load()
	return h.cfg.OnlyPrimaryOf == "" || last != nil && last.Sub(e.seen) > h.window
}

// giveUp counts and logs an event for which the program will not run.
func (h *hook) giveUp(e seenEvent) {
	h.dropped.Add(1)
	h.logger.Error("a hook is too slow; an event is given up", "hook", h.label, "event", e.ID, "what", e.String())
}

// giveUpWaiting counts and logs what is lost with the server's stop: there may be a thousand, in one line. The
// other goroutines of the hook have ended.
func (h *hook) giveUpWaiting() {
	for len(h.waiting) > 0 {
		h.remaining = append(h.remaining, <-h.waiting)
	}
	var lost []int64
	for _, e := range h.remaining {
		if h.isLost(e) {
			lost = append(lost, e.ID)
		}
	}
	if len(lost) > 0 {
		h.dropped.Add(uint64(len(lost)))
		h.logger.Error("events waited for a hook when the server stopped, and are given up", "hook", h.label, "events", len(lost), "first", lost[0], "last", lost[len(lost)-1])
	}
}

// runProgram runs the program once, and counts how that ended.
func (h *hook) runProgram(ctx context.Context, e seenEvent) {
	began := time.Now()
	err := runHook(ctx, h.cfg, e, h.logger)
	switch took := time.Since(began).Round(time.Millisecond); {
	case err == nil:
		h.ok.Add(1)
		h.logger.Debug("hook", "hook", h.label, "event", e.ID, "took", took)
	case ctx.Err() != nil:
		h.killed.Add(1)
		h.logger.Warn("a hook was stopped with the server", "hook", h.label, "event", e.ID, "what", e.String())
	case errors.Is(err, errHookLate):
		h.killed.Add(1)
		h.logger.Error("a hook took too long and was killed", "hook", h.label, "event", e.ID, "what", e.String(), "timeout", time.Duration(h.cfg.Timeout))
	default:
		h.failed.Add(1)
		h.logger.Error("a hook failed", "hook", h.label, "event", e.ID, "what", e.String(), "err", err, "took", took)
	}
}

// counters for the metrics.
func (s *servedHooks) counters() []api.Counter {
	if s == nil {
		return nil
	}
	var out []api.Counter
	for _, h := range s.hooks {
		for _, c := range []struct {
			name, help string
			count      uint64
		}{
			{"understudy_hook_runs_total", "Programs of hooks that ended well.", h.ok.Load()},
			{"understudy_hook_failures_total", "Programs of hooks that could not be started or ended with another code than 0.", h.failed.Load()},
			{"understudy_hook_killed_total", "Programs of hooks that were killed because they took too long, or with the server.", h.killed.Load()},
			{"understudy_hook_dropped_total", "Events given up because a hook was too slow, or the server stopped.", h.dropped.Load()},
		} {
			out = append(out, api.Counter{Name: c.name, Help: c.help, Label: "hook", Value: h.label, Count: c.count})
		}
	}
	return out
}
