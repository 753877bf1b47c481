package demo

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/understudy-ha/understudy/api/apitype"
	"github.com/understudy-ha/understudy/api/client"
	"github.com/understudy-ha/understudy/shard/engine/redis"
)

const (
	shardPrefix = "stock-" // with what tells demonstrations apart
	nodeCount   = 3
)

// shardAct shows a Redis that fails over under a writer.
type shardAct struct {
	d      *demo
	name   string
	nodes  []string // addresses
	procs  []*process
	writer *writer

	seen  string    // address of the last write that was acknowledged; the writer's, as wrote
	wrote time.Time // when that was
}

// newShardAct takes the path of redis-server.
func newShardAct(d *demo, program string) (*shardAct, error) {
	s := &shardAct{d: d, name: shardPrefix + d.run}
	free, err := d.ports.free(2 * nodeCount)
	if err != nil {
		return nil, err
	}
	for i := range nodeCount {
		if err := s.add(i, program, free[2*i], free[2*i+1]); err != nil {
			return nil, err
		}
	}
	for i := range nodeCount {
		d.record.addLanes("shard", s.procs[2*i].name)
	}
	s.writer = newWriter(d, s)
	return s, nil
}

// add makes a node and its agent. The node is no child of the agent's, so that either
// can be killed alone.
func (s *shardAct) add(i int, program, node, checks string) error {
	d := s.d
	name := fmt.Sprintf("redis-%d", i+1)
	dir := filepath.Join(d.dir, name)
	if err := os.MkdirAll(filepath.Join(dir, "agent"), 0o700); err != nil {
		return err
	}
	_, port, err := net.SplitHostPort(node)
	if err != nil {
		return err
	}
	t := d.cfg.Timing
	t.Interval = min(t.Interval, t.Timeout*4/15) // the rest is for closing the fence
	// Closed by its configuration, as docs/shard.md asks of a node that something else starts.
	config, closed := filepath.Join(dir, "redis.conf"), strings.ReplaceAll(strings.Join(redis.StartArgs(), " "), "--", "\n")
	if err := os.WriteFile(config, []byte(closed+"\n"), 0o600); err != nil {
		return err
	}
	s.nodes = append(s.nodes, node)
	s.procs = append(s.procs, &process{
		name: name, dir: dir, log: filepath.Join(dir, "redis.log"), stop: syscall.SIGKILL,
		argv: []string{program, config, "--bind", "127.0.0.1", "--port", port, "--save", "", "--appendonly", "no", "--repl-diskless-sync-delay", "0"},
	}, &process{
		name: name + "'s agent", env: d.env(), log: filepath.Join(dir, "agent.log"), stop: syscall.SIGKILL,
		argv: []string{d.cfg.Self, "shard", "agent", s.name, "--node", node, "--data", filepath.Join(dir, "agent"), "--listen", checks,
			"--interval", t.Interval.Truncate(time.Millisecond).String(), "--timeout", t.Timeout.String()},
	})
	return nil
}

// worstTakeover is how long a takeover takes at worst when the process of a primary ended, and
// no agent did: its agent sees that within an interval. docs/shard.md has the figures. The replicas look
// for the new one once per second, and no write is acknowledged before.
func (s *shardAct) worstTakeover() time.Duration { return s.d.cfg.Timing.Interval + 3*time.Second }

func (s *shardAct) part() string { return "shard" }

func (s *shardAct) run(ctx context.Context) { s.writer.run(ctx) }

// recordWrite notes that a write was acknowledged by the primary at an address. With the first at another one it says whether
// all that was acknowledged before is there; the error is that this cannot be read.
func (s *shardAct) recordWrite(at string, c *redisConn) error {
	d, now := s.d, time.Now()
	d.record.saw("shard", s.process(at).name)
	before, last := s.seen, s.wrote
	switch {
	case before == "":
		d.voice.event("shard", "%s is the primary", s.process(at).name)
	case before != at:
		if err := s.writer.countLost(c); err != nil {
			return err
		}
		o := outcome{part: "shard", counted: s.writer.String(), broken: s.writer.missing > 0}
		// The end of a process may be noted just before the last write to it; one that is back was away for longer.
		if died := s.process(before).failedAt(); died.After(last.Add(-callTimeout)) {
			o.what, o.took, o.worst = "writes went on at "+s.process(at).name, now.Sub(died), s.worstTakeover()
		} else {
			o.what, o.took = fmt.Sprintf("%s gave way to %s", s.process(before).name, s.process(at).name), now.Sub(last)
		}
		d.announce(o)
	}
	s.seen, s.wrote = at, now
	return nil
}

// process is that of a node; nil for an address that is not one of its own.
func (s *shardAct) process(address string) *process {
	if i := slices.Index(s.nodes, address); i >= 0 {
		return s.procs[2*i]
	}
	return nil
}

func (s *shardAct) offers() []offer {
	p, d := s.process(s.writer.currentAddress()), s.d
	return []offer{d.kill(p, "primary", offer{
		ID: "shard-kill", Text: "the primary: a replica takes over, no acknowledged write is lost, and writes go on",
	}, s.worstTakeover()), {
		ID: "shard-switchover", Title: "Switch over", Command: d.command("shard", "switchover", s.name), Off: unserving(p, "primary"),
		Text: "a planned switchover: a replica that has everything becomes the primary, and no acknowledged write is lost",
		do: func(ctx context.Context) error {
			_, err := d.page.Switchover(ctx, s.name, client.Switchover{By: "the demonstration", Timeout: patience})
			if err == nil {
				d.record.mark(asked, "shard", p.name)
			}
			return err
		},
	}}
}

// settled: all nodes are there, each may be promoted, and the primary is written to.
func (s *shardAct) settled(ctx context.Context) bool {
	view, err := s.d.page.Shard(ctx, s.name)
	return err == nil && s.writer.count() > 100 && view.Primary != nil && view.Plan == nil && len(view.Nodes) == nodeCount &&
		!slices.ContainsFunc(view.Nodes, func(n apitype.ShardNode) bool {
			return !n.Member || n.Condition != "up" || !n.Primary && (n.LinkUp == nil || !*n.LinkUp)
		})
}
