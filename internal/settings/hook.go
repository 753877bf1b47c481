package settings

import (
	"fmt"
	"slices"
	"time"

	"github.com/understudy-ha/understudy/elect"
	"github.com/understudy-ha/understudy/internal/strictyaml"
	"github.com/understudy-ha/understudy/internal/usererr"
	"github.com/understudy-ha/understudy/shard"
)

// Limits of hooks.
const (
	maxHooks       = 64
	maxHookTimeout = time.Hour
)

// Hook is a program that is run on each change.
type Hook struct {
	On            []string      `yaml:"on" help:"changes to run on: role, shard, alarm and message (default: all)"`
	Match         string        `yaml:"match" default:"*" help:"names to run for; * matches anything"`
	Command       []string      `yaml:"command" help:"the program and its arguments, run without a shell"`
	Timeout       time.Duration `yaml:"timeout" default:"10s" help:"kill the program, and everything it started, after this time"`
	OnlyPrimaryOf string        `yaml:"only_primary_of" help:"run only where this role of the file is held (default: on each server)"`
}

// HookParts is what the history calls the things that hooks are about.
func HookParts() map[string]string {
	return map[string]string{"role": elect.Space, "shard": shard.Space, "alarm": "monitor", "message": "batch"}
}

// complete fills the defaults, and checks.
func (h *Hook) complete() error {
	strictyaml.ApplyDefaults(h)
	parts := HookParts()
	for i, on := range h.On {
		if on == "batch" { // the old name
			h.On[i], on = "message", "message"
		}
		if parts[on] == "" {
			return usererr.Errorf("on: %q is not a kind of change; use role, shard, alarm or message", on)
		}
	}
	if len(h.On) == 0 {
		h.On = []string{"role", "shard", "alarm", "message"}
	}
	if len(h.Command) == 0 || h.Command[0] == "" {
		return usererr.Errorf("command is missing; write the program and its arguments, as in [./notify, --all]")
	}
	if t := h.Timeout; t < 100*time.Millisecond || t > maxHookTimeout {
		return usererr.Errorf("timeout is %v; use 100ms to %v", t, maxHookTimeout)
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
		return usererr.Errorf("%d hooks; at most %d are possible", len(hooks), maxHooks)
	}
	for i := range hooks {
		h := &hooks[i]
		if err := h.complete(); err != nil {
			return fmt.Errorf("hook %d: %w", i+1, err)
		}
		if h.OnlyPrimaryOf != "" && !slices.Contains(roles, h.OnlyPrimaryOf) {
			return usererr.Errorf("hook %d: only_primary_of: role %q is not among the roles of this file, so that it would never run here", i+1, h.OnlyPrimaryOf)
		}
	}
	return nil
}
