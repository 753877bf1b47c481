package agent

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/understudy-ha/understudy/internal/backoff"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/shard"
)

// Defaults of a [Config].
const (
	DefaultPriority    = 100
	DefaultForgetAfter = 7 * 24 * time.Hour
	DefaultHookTimeout = 5 * time.Second
)

// ErrAbandon is the cause with which the context of [Agent.Run] is cancelled to stop the
// agent as its crash would: at once, with node, session and record left as they are.
var ErrAbandon = errors.New("shard: agent abandoned")

// Config tells an [Agent] whose agent it is and how it acts.
type Config struct {
	// Shard to which the node belongs. Required.
	Shard string
	// Node is the address at which the agent talks to its node. Required.
	Node string
	// Private is the address between nodes, under which the node is registered. Default Node.
	Private string
	// Announced is the address for clients. Default Node.
	Announced string
	// AgentAddress is where other agents ask this one for promises. "" is nowhere: then the
	// shard's primary closes while the store is down.
	AgentAddress string
	// SentinelAddress is where clients that know Redis Sentinel reach this agent's endpoint: others name it to them.
	// "" is nowhere.
	SentinelAddress string
	// Dir is the data folder, made if it is missing. It belongs to this agent alone. Required.
	Dir string

	// Engines reaches the nodes. Required.
	Engines shard.Engines
	// Process is the node's, if the agent starts it. Optional.
	Process shard.Process
	// Adopt finds the process of a node that someone else started on this host, from the id
	// that the node tells; 0 if it does not. Optional: without it such a node's death is seen when it
	// refuses connections, and it cannot be killed when it hangs.
	Adopt func(pid int) (shard.Process, error)
	// Inspect examines each run of the node's process before anything is done with it. An error, which wraps
	// [shard.ErrNotManaged], has the node left alone as long as it lasts; a warning is reported as the node's trouble.
	// It must not block. Optional.
	Inspect func(n shard.State) (warning string, err error)
	// Local reports whether an address is this host's. Default: asks the network interfaces.
	Local func(address string) bool

	// Registry, Commands and Leases are those of one store. Required.
	Registry shard.Registry
	Commands shard.Commands
	Leases   lease.Store

	// Timing of the reports and of the primary's session. Default 1 s and 5 s. It needs
	// T ≥ 3·I and a fifth of T, in which the fence closes: T ≥ 3.75·I.
	Timing lease.Timing
	// Policy of the plans that this agent makes.
	Policy shard.Policy
	// Priority decides between replicas that are equal; 0 is promoted only where an operator names it. nil is
	// DefaultPriority.
	Priority *int
	// MinReplicas: the primary rejects writes that fewer replicas acknowledge. 0: one while any replica is connected, and
	// none when there is none.
	MinReplicas int
	// KillHung has the node's process killed if it does not answer when its fence has to be
	// closed. Without it such a node may accept what it had received, once it continues.
	KillHung bool
	// RestartGrace is how long the node's process may take to be back before its death is
	// reported. 0 reports it at once.
	RestartGrace time.Duration
	// HandOver has a stop of the agent hand a primary over that it did not start, because the two stop together.
	HandOver bool
	// DiscardData allows the node to lose data that was never the shard's, in order to join it.
	DiscardData bool
	// ForgetAfter is how long a member may be silent before it is forgotten. Default 7 days;
	// negative: for ever.
	ForgetAfter time.Duration

	// Hooks are called before a promotion, which does not happen if they fail, and after changes of role. Optional.
	Hooks shard.Hooks
	// HookTimeout bounds each call of a hook, and a promotion may take so much longer: let all agents of a shard have the same.
	// Default 5 s.
	HookTimeout time.Duration
	// Promisers reaches other agents while the store is down. Optional.
	Promisers shard.Promisers

	// Clock of this host. Default [lease.BootClock].
	Clock lease.Clock
	// Boot identifies the run of this host's clock. Default: the operating system's boot id.
	Boot string
	// Logger; nil is silent.
	Logger *slog.Logger
	// Jitter returns a random duration in [0, d). Default: the runtime's source.
	Jitter func(d time.Duration) time.Duration
}

// Validate returns an error that wraps [lease.ErrInvalid] or [lease.ErrUnsafeTiming]
// unless an agent can run with the configuration.
func (c Config) Validate() error {
	c = c.withDefaults()
	if err := shard.ValidateName(c.Shard); err != nil {
		return err
	}
	if err := shard.ValidateAddress("Sentinel address", cmp.Or(c.SentinelAddress, c.Node)); err != nil {
		return err
	}
	if err := lease.ValidateText("agent address", c.AgentAddress, 0, lease.MaxAddress); err != nil {
		return err
	}
	switch {
	case c.Dir == "":
		return fmt.Errorf("%w: an agent needs a data folder", lease.ErrInvalid)
	case c.Engines == nil || c.Registry == nil || c.Commands == nil || c.Leases == nil:
		return fmt.Errorf("%w: an agent needs an engine and a store that keeps shards", lease.ErrInvalid)
	case c.Policy.FlapLimit < 0 || c.Policy.Patience < 0:
		return fmt.Errorf("%w: the patience and failovers of a policy cannot be negative", lease.ErrInvalid)
	}
	return c.ValidateSettings(func(field string) string { return field })
}

// ValidateSettings is the part of [Config.Validate] that needs no store: the node's addresses, the numbers and the times, where
// zero does not stand for a default. name is what the caller calls a field: "hook timeout", say.
func (c Config) ValidateSettings(name func(field string) string) error {
	for _, a := range []struct{ what, address string }{{"node", c.Node}, {"private address", cmp.Or(c.Private, c.Node)}, {"announced address", cmp.Or(c.Announced, c.Node)}} {
		if err := shard.ValidateAddress(name(a.what), a.address); err != nil {
			return err
		}
	}
	for _, n := range []struct {
		what         string
		value, least int64
	}{{"priority", int64(*c.Priority), 0}, {"min replicas", int64(c.MinReplicas), 0}, {"max lag", c.Policy.MaxLag, 0}, {"parallel syncs", int64(c.Policy.Parallel), 1}} {
		if n.value < n.least {
			return fmt.Errorf("%w: %s %d: it is at least %d", lease.ErrInvalid, name(n.what), n.value, n.least)
		}
	}
	switch {
	case c.MinReplicas > shard.MaxMembers:
		return fmt.Errorf("%w: %s %d: a shard has at most %d members", lease.ErrInvalid, name("min replicas"), c.MinReplicas, shard.MaxMembers)
	case c.RestartGrace < 0:
		return fmt.Errorf("%w: %s %v: it cannot be negative", lease.ErrInvalid, name("restart grace"), c.RestartGrace)
	case c.HookTimeout <= 0:
		return fmt.Errorf("%w: %s %v: it must be positive", lease.ErrInvalid, name("hook timeout"), c.HookTimeout)
	}
	return c.validateTiming(name("interval"), name("timeout"))
}

// validateTiming names the bound itself. The margin is a part of T: with the T that
// [lease.Timing.Validate] would suggest it grows, so that T is too short again.
func (c Config) validateTiming(interval, timeout string) error {
	t := c.Timing
	least := (15*t.Interval + 3) / 4 // T ≥ 3·I + T/5, rounded up
	if t.Interval < lease.MinInterval || least > lease.MaxTimeout || t.Timeout >= least {
		return t.Validate(c.margin())
	}
	safe := fmt.Sprintf("%s %v", timeout, least)
	if i := (t.Timeout * 4 / 15).Truncate(time.Millisecond); i >= lease.MinInterval {
		safe += fmt.Sprintf(", or %s %v", interval, i)
	}
	return fmt.Errorf("%w: %s %v and %s %v break T ≥ 3·I and a fifth of T, in which the fence closes; safe are %s",
		lease.ErrUnsafeTiming, interval, t.Interval, timeout, t.Timeout, safe)
}

func (c Config) withDefaults() Config {
	if c.Private == "" {
		c.Private = c.Node
	}
	if c.Announced == "" {
		c.Announced = c.Node
	}
	c.Timing = c.Timing.WithDefaults()
	if c.Policy.FenceDelay == 0 && c.Engines != nil {
		c.Policy.FenceDelay = c.Engines.FenceDelay()
	}
	c.Policy = c.Policy.WithDefaults()
	if c.Priority == nil {
		c.Priority = new(DefaultPriority)
	}
	if c.ForgetAfter == 0 {
		c.ForgetAfter = DefaultForgetAfter
	}
	if c.HookTimeout == 0 {
		c.HookTimeout = DefaultHookTimeout
	}
	if c.Hooks != nil {
		c.Policy.HookTimeout = c.HookTimeout
	}
	if c.Local == nil {
		c.Local = localAddress
	}
	if c.Clock == nil {
		c.Clock = lease.BootClock()
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Jitter == nil {
		c.Jitter = backoff.Random
	}
	return c
}

// nodeTimeout is the deadline of one try to change the fence; other exchanges with the node have at least an interval
// (common.withNodeTimeout).
func (c Config) nodeTimeout() time.Duration { return c.Timing.Timeout / 10 }

// margin of trust in which the fence is closed: room for two exchanges.
func (c Config) margin() time.Duration { return 2 * c.nodeTimeout() }

// storeTimeout is the deadline of one request to the store.
func (c Config) storeTimeout() time.Duration { return c.Timing.CallTimeout() }

// retry is the pauses between attempts of one loop.
func (c Config) retry(first, most time.Duration) backoff.Backoff {
	return backoff.Backoff{First: first, Most: most, Jitter: c.Jitter}
}
