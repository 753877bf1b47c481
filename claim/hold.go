package claim

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/understudy-ha/understudy/lease"
)

// HoldConfig tells [Hold] what to hold.
type HoldConfig struct {
	// Space of the keys. Required; see [Config]. A part of this module may have one
	// that no user can have: its name, '/', and a space.
	Space string
	// Keeper of this instance's session, whose timing is that of Windows, and
	// Table, of the same store. Required.
	Keeper *lease.Keeper
	Table  Table
	// Windows that keep keys from others. Without steps only the first counts. Default 30 s.
	Windows Windows
	// Most is how many keys this instance holds at most. Default 10,000.
	Most int
	// Logger; nil is silent.
	Logger *slog.Logger
}

func (c HoldConfig) withDefaults() HoldConfig {
	c.Windows = c.Windows.WithDefaults()
	if c.Most == 0 {
		c.Most = defaultMost
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

func (c HoldConfig) validate() error {
	for part := range strings.SplitSeq(c.Space, "/") {
		if err := lease.ValidateSpace(part); err != nil {
			return err
		}
	}
	if err := validateHolder(c.Keeper, c.Table, c.Windows, c.Most); err != nil {
		return err
	}
	return c.Windows.Validate(0)
}

// validateHolder checks what [Run] and [Hold] have in common.
func validateHolder(k *lease.Keeper, t Table, w Windows, most int) error {
	switch {
	case k == nil || t == nil:
		return fmt.Errorf("%w: a keeper and a table are needed", lease.ErrInvalid)
	case most < 1:
		return fmt.Errorf("%w: hold at least one key", lease.ErrInvalid)
	case k.Timing() != w.Timing():
		return fmt.Errorf("%w: the keeper's session has timing %v, and the windows need %v", lease.ErrInvalid, k.Timing(), w.Timing())
	}
	return nil
}

// Hold claims this instance's fair share of a space's keys until ctx ends, for
// work that has no steps: whatever is done under these claims must do no harm if two
// do it, or compare terms. Keys that are offered are held at once and stay ready.
//
// Hold calls changed from its own goroutine whenever what it holds has
// changed, with all of it in the order of the keys: before it gives keys back, after it
// took some, and with none when the session is over or ctx has ended. It
// returns nil when everything was given back. The keeper must run, and go on running until
// Hold has returned.
func Hold(ctx context.Context, cfg HoldConfig, changed func(session string, held []Claim)) error {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return fmt.Errorf("claims of %q: %w", cfg.Space, err)
	}
	h := &hold{holder: newHolder(cfg.Keeper, cfg.Table, cfg.Space, cfg.Most, cfg.Logger), keeper: cfg.Keeper, changed: changed}
	for ctx.Err() == nil {
		live, err := cfg.Keeper.Session(ctx)
		if err != nil {
			break
		}
		h.underSession(ctx, live)
	}
	return nil
}

// hold is Hold's state; one goroutine owns it.
type hold struct {
	holder
	keeper  *lease.Keeper
	changed func(string, []Claim)
	told    []Claim
}

// underSession holds keys until the session is over or ctx ends.
func (h *hold) underSession(ctx context.Context, live *lease.Live) {
	woken := h.keeper.Hub().Subscribe(Wake(h.space))
	defer woken.Close()
	clear(h.keys)
	h.lookAt = h.clock.Now()
	left := h.lookAt // keys are left to others until then
	for ctx.Err() == nil {
		if h.clock.Now() >= h.lookAt {
			h.look(ctx, live.ID(), true) // asleep: there is no step that would end by itself
			h.give(ctx, live.ID(), h.shed)
			if h.shed > 0 { // who gave is woken first, and what it gave is for others
				h.shed, left = 0, h.clock.Now()+Linger
			}
			if h.lain { // nobody may want them: who gave them back stops
				h.lookAt = h.clock.Now() + Linger + Linger/4
			}
		}
		timer, stop := h.clock.Timer(h.lookAt - h.clock.Now())
		select {
		case <-ctx.Done():
		case <-live.Done():
			stop()
			h.log.Warn("the session is over; its keys are left to whoever takes them")
			clear(h.keys)
			h.tell(live.ID(), nil)
			return
		case <-woken.C():
			h.lookAt = max(h.clock.Now(), left)
		case <-timer:
		}
		stop()
	}
	h.give(ctx, live.ID(), len(h.keys))
}

// give gives so many keys back, once it is told that they are not held. What the
// store did not take back is held again.
func (h *hold) give(ctx context.Context, session string, n int) {
	claims := make([]Claim, 0, len(h.keys))
	for _, k := range h.keys {
		claims = append(claims, k.Claim)
	}
	slices.SortFunc(claims, func(a, b Claim) int { return strings.Compare(a.Key, b.Key) })
	n = min(n, len(claims))
	keep := len(claims) - n
	h.tell(session, claims[:keep])
	h.release(ctx, session, claims[keep:])
	if len(h.keys) > keep && ctx.Err() == nil {
		h.tell(session, claims)
	}
}

// tell calls changed if there is something new.
func (h *hold) tell(session string, held []Claim) {
	if slices.Equal(h.told, held) {
		return
	}
	h.told = slices.Clone(held)
	h.changed(session, held)
}
