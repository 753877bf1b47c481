package settings

import (
	"fmt"
	"log/slog"
	"regexp"
	"strings"

	"github.com/understudy-ha/understudy/internal/shardagent"
	"github.com/understudy-ha/understudy/internal/strictyaml"
	"github.com/understudy-ha/understudy/internal/usererr"
	"github.com/understudy-ha/understudy/shard"
)

// Shard is an agent beside a node, in the server's file. Its keys are the flags of `shard agent`.
type Shard struct {
	Shard               string   `yaml:"shard" help:"name of the shard"`
	Command             []string `yaml:"command" help:"the node's program, which the agent starts and supervises (default: the node is started elsewhere)"`
	shardagent.Settings `yaml:",inline"`
}

// Agent checks what the command line of the agent would be, and makes it.
func (c *Shard) Agent(log *slog.Logger) (*shardagent.Flags, error) {
	if err := shard.ValidateName(c.Shard); err != nil {
		return nil, err
	}
	f := &shardagent.Flags{Settings: c.Settings}
	strictyaml.ApplyDefaults(&f.Settings)
	return f, AsKeys(f.ForShard(c.Shard, c.Command, log))
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

func (c *Server) checkShards(f *strictyaml.Findings) {
	quiet := slog.New(slog.DiscardHandler)
	seen, nodes, pods := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for i := range c.Shards {
		s, path := &c.Shards[i], fmt.Sprintf("shards[%d]", i)
		checked, err := s.Agent(quiet)
		if err != nil {
			f.At(path, fmt.Errorf("shard %q: %w", s.Shard, err))
			continue
		}
		if seen[checked.Config.Dir] {
			f.At(path, usererr.Errorf("shard %q: data %s is that of another node, too; each node has its own", s.Shard, s.Data))
		}
		if nodes[s.Node] {
			f.At(path, usererr.Errorf("shard %q: node %s appears twice; each node has one agent", s.Shard, s.Node))
		}
		if s.Pod != "" && pods[s.Pod] {
			f.At(path, usererr.Errorf("shard %q: pod %s appears twice; a pod has one node", s.Shard, s.Pod))
		}
		seen[checked.Config.Dir], nodes[s.Node], pods[s.Pod] = true, true, true
	}
}
