package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"reflect"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/shard"
	"github.com/understudy-ha/understudy/store"
)

// shardConfig is an agent beside a node, in the server's file. Its keys are the flags of
// `shard agent`, with the same defaults.
type shardConfig struct {
	Shard string `yaml:"shard"`
	Node  string `yaml:"node"`
	Data  string `yaml:"data"`
	// Command is the node's program, if the agent is to start it.
	Command []string `yaml:"command"`
	Engine  string   `yaml:"engine"`
	// Where other nodes and clients reach the node. Default: Node.
	PrivateAddress string `yaml:"private_address"`
	Announce       string `yaml:"announce"`

	Interval duration `yaml:"interval"`
	Timeout  duration `yaml:"timeout"`

	// Listen is where the agent answers HTTP checks and the other agents.
	Listen               string `yaml:"listen"`
	AgentAddress         string `yaml:"agent_address"`
	Sentinel             string `yaml:"sentinel"`
	SentinelPasswordFile string `yaml:"sentinel_password_file"`

	Priority      *int     `yaml:"priority"`
	MinReplicas   int      `yaml:"min_replicas"`
	MaxLag        int64    `yaml:"max_lag"`
	ParallelSyncs int      `yaml:"parallel_syncs"`
	KillHung      *bool    `yaml:"kill_hung"`
	RestartGrace  duration `yaml:"restart_grace"`
	ForgetAfter   duration `yaml:"forget_after"`
	DiscardData   bool     `yaml:"discard_data"`
	KeepNode      bool     `yaml:"keep_node"`
	StopWait      duration `yaml:"stop_wait"`

	User         string `yaml:"user"`
	PasswordFile string `yaml:"password_file"`
	TLS          bool   `yaml:"tls"`
	TLSCA        string `yaml:"tls_ca"`
	TLSCert      string `yaml:"tls_cert"`
	TLSKey       string `yaml:"tls_key"`

	Hook        string   `yaml:"hook"`
	HookTimeout duration `yaml:"hook_timeout"`

	open agentListeners
}

// timing is that of the agent, as its flags have it.
func (c *shardConfig) timing() lease.Timing {
	return lease.Timing{
		Interval: cmp.Or(time.Duration(c.Interval), lease.DefaultInterval),
		Timeout:  cmp.Or(time.Duration(c.Timeout), lease.DefaultTimeout),
	}
}

// flags are what the command line of the agent would be, checked.
func (c *shardConfig) flags(a *app) (*agentFlags, error) {
	f := &agentFlags{argv: c.Command}
	f.cfg.Shard = c.Shard
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	f.register(fs)
	v := reflect.ValueOf(c).Elem()
	for _, k := range fileKeys(v.Type()) {
		field := v.FieldByIndex(k.index)
		flag := fs.Lookup(strings.ReplaceAll(k.name, "_", "-"))
		if flag == nil || field.IsZero() {
			continue
		}
		if field.Kind() == reflect.Pointer {
			field = field.Elem()
		}
		if err := flag.Value.Set(flagText(field)); err != nil {
			return nil, usagef("%s: %v", k.name, err)
		}
	}
	if err := shard.ValidateName(c.Shard); err != nil {
		return nil, err
	}
	return f, asKeys(f.complete(a))
}

// flagText is a value as a flag takes it.
func flagText(v reflect.Value) string {
	if d, ok := v.Interface().(duration); ok {
		return time.Duration(d).String()
	}
	return fmt.Sprint(v.Interface())
}

// asKeys names the keys of the file where the command line names flags.
func asKeys(err error) error {
	if err == nil {
		return nil
	}
	flag := regexp.MustCompile(`--[a-z][a-z-]*`)
	text := flag.ReplaceAllStringFunc(err.Error(), func(f string) string { return strings.ReplaceAll(f[2:], "-", "_") })
	return reworded{strings.ReplaceAll(text, "a program after --", "command"), err}
}

// reworded is an error in other words.
type reworded struct {
	text string
	error
}

func (r reworded) Error() string { return r.text }
func (r reworded) Unwrap() error { return r.error }

func (c *serveConfig) checkShards(f *findings) {
	quiet := &app{log: slog.New(slog.DiscardHandler), stdout: io.Discard, stderr: io.Discard}
	seen, nodes := map[string]bool{}, map[string]bool{}
	for i := range c.Shards {
		s, path := &c.Shards[i], fmt.Sprintf("shards[%d]", i)
		checked, err := s.flags(quiet)
		if err != nil {
			f.at(path, fmt.Errorf("shard %q: %w", s.Shard, err))
			continue
		}
		if seen[checked.cfg.Dir] {
			f.at(path, usagef("shard %q: data %s is that of another node, too; each node has its own", s.Shard, s.Data))
		}
		if nodes[s.Node] {
			f.at(path, usagef("shard %q: node %s stands twice; each node has one agent", s.Shard, s.Node))
		}
		seen[checked.cfg.Dir], nodes[s.Node] = true, true
	}
}

// servedAgent is an agent of the server, ready to run.
type servedAgent struct {
	name  string
	flags *agentFlags
	agent *shard.Agent
	done  func()
}

// openAgents listens for the agents of the file, before the store is reached.
func (a *app) openAgents(cfg *serveConfig) (closed func(), err error) {
	closed = func() {
		for i := range cfg.Shards {
			cfg.Shards[i].open.close(context.Background())
		}
	}
	for i := range cfg.Shards {
		c := &cfg.Shards[i]
		f, err := c.flags(a)
		if err == nil {
			c.open, err = a.agentListen(f)
			err = asKeys(err)
		}
		if err != nil {
			closed()
			return nil, fmt.Errorf("shard %q: %w", c.Shard, err)
		}
	}
	return closed, nil
}

// serveAgents makes the agents of the file. Nothing runs yet.
func (a *app) serveAgents(ctx context.Context, cfg *serveConfig, st store.Store) ([]servedAgent, error) {
	var out []servedAgent
	for i := range cfg.Shards {
		c := &cfg.Shards[i]
		f, err := c.flags(a)
		if err != nil {
			return nil, fmt.Errorf("shard %q: %w", c.Shard, err)
		}
		agent, done, err := a.agentOn(f, st)
		if err != nil {
			for _, s := range out {
				_ = endAgent(ctx, s.agent)
				s.done()
			}
			return nil, fmt.Errorf("shard %q: %w", c.Shard, err)
		}
		f.open = c.open
		out = append(out, servedAgent{name: c.Shard + " at " + cmp.Or(c.Announce, c.Node), flags: f, agent: agent, done: done})
	}
	return out, nil
}

// serveAgent stands beside the node until ctx ends.
func (a *app) serveAgent(ctx context.Context, s servedAgent) error {
	defer s.done()
	return a.runAgent(ctx, s.flags, s.agent, false)
}
