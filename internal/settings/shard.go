package settings

import (
	"cmp"
	"fmt"
	"log/slog"
	"reflect"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/understudy-ha/understudy/internal/agent"
	"github.com/understudy-ha/understudy/internal/strict"
	"github.com/understudy-ha/understudy/internal/usage"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/shard"
)

// Shard is an agent beside a node, in the server's file. Its keys are the flags of
// `shard agent`, with the same defaults.
type Shard struct {
	Shard string `yaml:"shard"`
	Node  string `yaml:"node"`
	Data  string `yaml:"data"`
	// Command is the node's program, if the agent is to start it.
	Command []string `yaml:"command"`
	Engine  string   `yaml:"engine"`
	// Where other nodes and clients reach the node. Default: Node.
	PrivateAddress string `yaml:"private_address"`
	Announce       string `yaml:"announce"`

	Interval strict.Duration `yaml:"interval"`
	Timeout  strict.Duration `yaml:"timeout"`

	// Listen is where the agent answers HTTP checks and the other agents.
	Listen               string `yaml:"listen"`
	AgentAddress         string `yaml:"agent_address"`
	Sentinel             string `yaml:"sentinel"`
	SentinelPasswordFile string `yaml:"sentinel_password_file"`

	Priority      *int            `yaml:"priority"`
	MinReplicas   int             `yaml:"min_replicas"`
	MaxLag        int64           `yaml:"max_lag"`
	ParallelSyncs int             `yaml:"parallel_syncs"`
	KillHung      *bool           `yaml:"kill_hung"`
	RestartGrace  strict.Duration `yaml:"restart_grace"`
	ForgetAfter   strict.Duration `yaml:"forget_after"`
	DiscardData   bool            `yaml:"discard_data"`
	KeepNode      bool            `yaml:"keep_node"`
	StopWait      strict.Duration `yaml:"stop_wait"`

	User         string `yaml:"user"`
	PasswordFile string `yaml:"password_file"`
	TLS          bool   `yaml:"tls"`
	TLSCA        string `yaml:"tls_ca"`
	TLSCert      string `yaml:"tls_cert"`
	TLSKey       string `yaml:"tls_key"`

	Hook        string          `yaml:"hook"`
	HookTimeout strict.Duration `yaml:"hook_timeout"`
}

// timing is that of the agent, as its flags have it.
func (c *Shard) timing() lease.Timing {
	return lease.Timing{
		Interval: cmp.Or(time.Duration(c.Interval), lease.DefaultInterval),
		Timeout:  cmp.Or(time.Duration(c.Timeout), lease.DefaultTimeout),
	}
}

// Agent is what the command line of the agent would be, checked.
func (c *Shard) Agent(log *slog.Logger) (*agent.Flags, error) {
	f := &agent.Flags{}
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	f.Register(fs)
	v := reflect.ValueOf(c).Elem()
	for _, k := range strict.Keys(v.Type()) {
		field := v.FieldByIndex(k.Index)
		flag := fs.Lookup(strings.ReplaceAll(k.Name, "_", "-"))
		if flag == nil || field.IsZero() {
			continue
		}
		if field.Kind() == reflect.Pointer {
			field = field.Elem()
		}
		if err := flag.Value.Set(flagText(field)); err != nil {
			return nil, usage.Errorf("%s: %v", k.Name, err)
		}
	}
	if err := shard.ValidateName(c.Shard); err != nil {
		return nil, err
	}
	return f, AsKeys(f.ForShard(c.Shard, c.Command, log))
}

// flagText is a value as a flag takes it.
func flagText(v reflect.Value) string {
	if d, ok := v.Interface().(strict.Duration); ok {
		return time.Duration(d).String()
	}
	return fmt.Sprint(v.Interface())
}

// AsKeys names the keys of the file where the command line names flags.
func AsKeys(err error) error {
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

func (c *Server) checkShards(f *strict.Findings) {
	quiet := slog.New(slog.DiscardHandler)
	seen, nodes := map[string]bool{}, map[string]bool{}
	for i := range c.Shards {
		s, path := &c.Shards[i], fmt.Sprintf("shards[%d]", i)
		checked, err := s.Agent(quiet)
		if err != nil {
			f.At(path, fmt.Errorf("shard %q: %w", s.Shard, err))
			continue
		}
		if seen[checked.Config.Dir] {
			f.At(path, usage.Errorf("shard %q: data %s is that of another node, too; each node has its own", s.Shard, s.Data))
		}
		if nodes[s.Node] {
			f.At(path, usage.Errorf("shard %q: node %s stands twice; each node has one agent", s.Shard, s.Node))
		}
		seen[checked.Config.Dir], nodes[s.Node] = true, true
	}
}
