package server

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/understudy-ha/understudy/elect"
	"github.com/understudy-ha/understudy/internal/instance"
	"github.com/understudy-ha/understudy/internal/settings"
	"github.com/understudy-ha/understudy/lease"
)

// campaigns are the roles that the server campaigns for, each by itself.
type campaigns struct {
	log     *slog.Logger
	keeper  *lease.Keeper
	held    *heldRoles
	store   string // its URL
	part    func(string, func(context.Context) error)
	running map[string]campaign // used by one goroutine at a time
}

type campaign struct {
	stop context.CancelFunc
	done chan struct{}
}

func (c *campaigns) start(r settings.Role) {
	quit := make(chan struct{})
	one := campaign{stop: sync.OnceFunc(func() { close(quit) }), done: make(chan struct{})}
	c.running[r.Role] = one
	c.part("role "+r.Role, func(ctx context.Context) error {
		defer close(one.done)
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		go func() {
			select {
			case <-quit:
				cancel()
			case <-ctx.Done():
			}
		}()
		return c.serve(ctx, r)
	})
}

// stop stops a role's program, and returns when the role was given back.
func (c *campaigns) stop(name string) {
	one := c.running[name]
	one.stop()
	<-one.done
	delete(c.running, name)
}

// config is how a role is campaigned for.
func (c *campaigns) config(r settings.Role) elect.Config {
	return elect.Config{Keeper: c.keeper, Role: r.Role, Holders: r.Holders, With: r.With, StopGrace: r.StopGrace, Logger: c.log}
}

// serve campaigns for one role for as long as the server runs.
func (c *campaigns) serve(ctx context.Context, r settings.Role) error {
	program := &instance.Program{Log: c.log, Argv: r.Command, StopGrace: r.StopGrace, PassStore: r.PassStore, StoreURL: c.store}
	cfg := c.config(r)
	if len(r.Command) > 0 {
		cfg.Overrun = program.Overrun
	}
	return campaignAgain(ctx, cfg, func(ctx context.Context, term elect.Term) error {
		defer c.held.enter(term)()
		if len(r.Command) > 0 {
			return program.Run(ctx, term)
		}
		<-ctx.Done()
		return context.Cause(ctx)
	})
}

// campaignAgain campaigns for a role until ctx ends or it is not possible with these settings. Work that ends by itself gives the
// role back.
func campaignAgain(ctx context.Context, cfg elect.Config, work func(context.Context, elect.Term) error) error {
	for {
		err := elect.Run(ctx, cfg, work)
		if ctx.Err() != nil {
			return nil
		}
		if errors.Is(err, lease.ErrInvalid) || errors.Is(err, lease.ErrUnsafeTiming) {
			return err
		}
		level, pause := slog.LevelWarn, cfg.Keeper.Timing().Interval // not at once, so that a program that cannot start does not spin
		if errors.Is(err, elect.ErrHolders) {                        // the file of one of the two has to change
			level, pause = slog.LevelError, time.Minute
		}
		cfg.Logger.Log(ctx, level, "the work or the campaign of a role ended; standing by again", "role", cfg.Role, "err", err, "again_in", pause)
		if !rest(ctx, pause) {
			return nil
		}
	}
}

// heldRoles knows which roles this process holds now.
type heldRoles struct {
	mu    sync.Mutex
	terms map[string]elect.Term
}

func newHeldRoles() *heldRoles { return &heldRoles{terms: map[string]elect.Term{}} }

func (h *heldRoles) enter(t elect.Term) (leave func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.terms[t.Role] = t
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.terms, t.Role)
	}
}

// term returns the term under which this process is primary of a role, if it may
// believe so now.
func (h *heldRoles) term(role string) (elect.Term, bool) {
	h.mu.Lock()
	t, ok := h.terms[role]
	h.mu.Unlock()
	return t, ok && t.Session.Valid()
}
