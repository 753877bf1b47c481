package settings

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/understudy-ha/understudy/elect"
	"github.com/understudy-ha/understudy/internal/strict"
	"github.com/understudy-ha/understudy/internal/usage"
	"github.com/understudy-ha/understudy/shard"
)

// Limits of hooks.
const (
	maxHooks       = 64
	maxHookTimeout = time.Hour
	hookTimeout    = 10 * time.Second
)

// Hook is a program that is run on each change.
type Hook struct {
	// On is which changes: role, shard, alarm, batch. Default: all of them.
	On []string `yaml:"on"`
	// Match is which names, such as "billing" or "billing*"; a star stands for anything. Default: all.
	Match string `yaml:"match"`
	// Command is the program and its arguments.
	Command []string `yaml:"command"`
	// Timeout after which it is killed with everything that it started. Default 10s.
	Timeout strict.Duration `yaml:"timeout"`
	// OnlyPrimaryOf is a role of this file: the program is run only where that is held.
	OnlyPrimaryOf string `yaml:"only_primary_of"`
}

// HookParts is what the history calls the things that hooks are about.
func HookParts() map[string]string {
	return map[string]string{"role": elect.Space, "shard": shard.Space, "alarm": "monitor", "batch": "batch"}
}

// complete fills the defaults, and checks.
func (h *Hook) complete() error {
	parts := HookParts()
	for _, on := range h.On {
		if parts[on] == "" {
			return usage.Errorf("on: %q is nothing that changes; use role, shard, alarm or batch", on)
		}
	}
	if len(h.On) == 0 {
		h.On = []string{"role", "shard", "alarm", "batch"}
	}
	if len(h.Command) == 0 || h.Command[0] == "" {
		return usage.Errorf("command is missing; write the program and its arguments, as in [./notify, --all]")
	}
	h.Match = cmp.Or(h.Match, "*")
	h.Timeout = cmp.Or(h.Timeout, strict.Duration(hookTimeout))
	if t := time.Duration(h.Timeout); t < 100*time.Millisecond || t > maxHookTimeout {
		return usage.Errorf("timeout is %v; use 100ms to %v", t, maxHookTimeout)
	}
	if h.OnlyPrimaryOf != "" {
		if err := elect.ValidateRole(h.OnlyPrimaryOf); err != nil {
			return fmt.Errorf("only_primary_of: %w", err)
		}
	}
	return nil
}

// completeHooks fills and checks a list of hooks of a server that campaigns for the roles.
func completeHooks(hooks []Hook, roles []string) error {
	if len(hooks) > maxHooks {
		return usage.Errorf("%d hooks; at most %d are possible", len(hooks), maxHooks)
	}
	for i := range hooks {
		h := &hooks[i]
		if err := h.complete(); err != nil {
			return fmt.Errorf("hook %d: %w", i+1, err)
		}
		if h.OnlyPrimaryOf != "" && !slices.Contains(roles, h.OnlyPrimaryOf) {
			return usage.Errorf("hook %d: only_primary_of: role %q is not among the roles of this file, so that it would never run here", i+1, h.OnlyPrimaryOf)
		}
	}
	return nil
}
