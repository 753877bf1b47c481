package claim

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/understudy-ha/understudy/lease"
)

// HoldConfig of [Hold].
type HoldConfig struct {
	// Space of the keys. Required; see [Config]. A part of this module may have one
	// that no user can have: its name, '/', and a space.
	Space string
	// Keeper of this instance's session, whose timing is that of Windows, and
	// Table, of the same store. Required.
	Keeper *lease.Keeper
	Table  KeyTable
	// Windows that keep keys from others. Without steps only the first counts. Default 30 s.
	Windows Windows
	// MaxKeys is how many keys this instance holds at most. Default 10,000.
	MaxKeys int
	// Logger; nil is silent.
	Logger *slog.Logger
}

func (c HoldConfig) withDefaults() HoldConfig {
	c.Windows = c.Windows.WithDefaults()
	c.MaxKeys = cmp.Or(c.MaxKeys, defaultMost)
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	return c
}

func (c HoldConfig) validate() error {
	for part := range strings.SplitSeq(c.Space, "/") {
		if err := lease.ValidateSpace(part); err != nil {
			return err
		}
	}
	if err := validateHolder(c.Keeper, c.Table, c.Windows, c.MaxKeys); err != nil {
		return err
	}
	return c.Windows.Validate(0)
}

// validateHolder checks what [Run] and [Hold] have in common.
func validateHolder(k *lease.Keeper, t KeyTable, w Windows, most int) error {
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

// Hold claims this instance's fair share of a space's keys until ctx ends, for work
// without steps: two instances may do it at once for a moment, so it must be harmless
// or compare terms. Keys that are offered are held at once and stay ready.
//
// Hold calls changed from its own goroutine whenever what it holds has
// changed, with all of it in the order of the keys: before it releases keys, after it
// claimed some, and with none when the session or ctx has ended. It returns nil when
// everything was released. The keeper must run until Hold has returned: if it cannot
// continue, Hold returns its error.
func Hold(ctx context.Context, cfg HoldConfig, changed func(session string, held []Claim)) error {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return fmt.Errorf("claims of %q: %w", cfg.Space, err)
	}
	h := &keyHolder{holder: newHolder(cfg.Keeper, cfg.Table, cfg.Space, cfg.MaxKeys, cfg.Logger), keeper: cfg.Keeper, changed: changed}
	for ctx.Err() == nil {
		live, err := cfg.Keeper.Session(ctx)
		if err != nil && ctx.Err() == nil {
			return fmt.Errorf("claims of %q: %w", cfg.Space, err)
		}
		if err != nil {
			break
		}
		h.holdUnderSession(ctx, live)
	}
	return nil
}

// keyHolder is Hold's state; one goroutine owns it.
type keyHolder struct {
	holder
	keeper   *lease.Keeper
	changed  func(string, []Claim)
	reported []Claim
}

// holdUnderSession holds keys until the session ends or ctx ends.
func (h *keyHolder) holdUnderSession(ctx context.Context, live *lease.ActiveSession) {
	woken := h.keeper.Notifier().Subscribe(WakeID(h.space))
	defer woken.Close()
	clear(h.keys)
	h.claimAt = h.clock.Now()
	left := h.claimAt // keys are left to others until then
	calls := context.WithoutCancel(ctx)
	for ctx.Err() == nil {
		if h.clock.Now() >= h.claimAt {
			h.joinAndClaim(calls, live.ID(), true) // asleep: there is no step that would end by itself
			h.releaseKeys(ctx, live.ID(), h.surplus)
			if h.surplus > 0 { // our own release wakes us first, and the keys are for others
				h.surplus, left = 0, h.clock.Now()+Linger
			}
			if h.leftForOthers { // their last holder may have stopped, and no one else wants them
				h.claimAt = h.clock.Now() + Linger + Linger/4
			}
		}
		timer, stop := h.clock.Timer(h.claimAt - h.clock.Now())
		select {
		case <-ctx.Done():
		case <-live.Done():
			stop()
			h.log.Info("session ended; other instances take its keys")
			clear(h.keys)
			h.report(live.ID(), nil)
			return
		case <-woken.C():
			h.claimAt = max(h.clock.Now(), left)
		case <-timer:
		}
		stop()
	}
	h.releaseKeys(ctx, live.ID(), len(h.keys))
}

// releaseKeys releases n keys, after reporting that they are not held: the caller must
// have stopped before another instance can claim them. What could not be released is
// held again.
func (h *keyHolder) releaseKeys(ctx context.Context, session string, n int) {
	claims := make([]Claim, 0, len(h.keys))
	for _, k := range h.keys {
		claims = append(claims, k.Claim)
	}
	slices.SortFunc(claims, func(a, b Claim) int { return strings.Compare(a.Key, b.Key) })
	n = min(n, len(claims))
	keep := len(claims) - n
	h.report(session, claims[:keep])
	h.release(context.WithoutCancel(ctx), session, claims[keep:])
	if len(h.keys) > keep && ctx.Err() == nil {
		h.report(session, claims)
	}
}

// report calls changed if what is held has changed.
func (h *keyHolder) report(session string, held []Claim) {
	if slices.Equal(h.reported, held) {
		return
	}
	h.reported = slices.Clone(held)
	h.changed(session, held)
}
