package demo

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
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

	mu    sync.Mutex
	seen  string    // address of the last write
	wrote time.Time // when that was
	fell  time.Time // when the primary's process ended; zero once it is replaced
	from  string    // its address
	last  outcome
	times int
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
		argv: []string{program, config, "--bind", "127.0.0.1", "--port", port, "--save", "", "--appendonly", "no", "--repl-diskless-sync-delay", "0", "--shutdown-timeout", "0"},
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

// failed notes the death of the primary.
func (s *shardAct) failed(p *process) {
	at := s.writer.currentAddress()
	for i, node := range s.nodes {
		if s.procs[2*i] == p && node == at {
			s.mu.Lock()
			s.fell, s.from = p.failedAt(), node
			s.mu.Unlock()
		}
	}
}

// recordWrite tells that a write was acknowledged by the primary at an address.
func (s *shardAct) recordWrite(at string) {
	s.d.record.saw("shard", s.nameOf(at))
	s.mu.Lock()
	seen, fell, from, before := s.seen, s.fell, s.from, s.wrote
	s.seen, s.wrote = at, time.Now()
	if fell.IsZero() || at == from {
		s.mu.Unlock()
		if fell.IsZero() && at != seen {
			s.d.voice.event("shard", "%s is the primary", s.nameOf(at))
			if seen != "" {
				s.d.record.outcome(outcome{part: "shard", what: fmt.Sprintf("%s gave way to %s; %s", s.nameOf(seen), s.nameOf(at), s.writer), took: time.Since(before)})
			}
		}
		return
	}
	s.fell = time.Time{}
	s.last = outcome{
		part: "shard", what: fmt.Sprintf("writes went on at %s", s.nameOf(at)), slack: s.d.cfg.Slack,
		took: time.Since(fell), worst: s.worstTakeover(),
	}
	s.times++
	last := s.last
	s.mu.Unlock()
	s.d.announce(last)
	if !s.d.cfg.Auto {
		s.d.voice.event("shard", "so far %s", s.writer)
	}
}

func (s *shardAct) nameOf(node string) string {
	for i, n := range s.nodes {
		if n == node {
			return s.procs[2*i].name
		}
	}
	return node
}

func (s *shardAct) primary() *process {
	at := s.writer.currentAddress()
	for i, n := range s.nodes {
		if n == at {
			return s.procs[2*i]
		}
	}
	return nil
}

func (s *shardAct) offers() []offer {
	p, d := s.primary(), s.d
	return []offer{d.kill(p, "primary", offer{
		ID: "shard-kill", Part: "shard", Text: "the primary: a replica takes over, no acknowledged write is lost, and writes go on",
	}, s.worstTakeover()), {
		ID: "shard-switchover", Part: "shard", Title: "Switch over", Command: d.command("shard", "switchover", s.name), Off: unserving(p, "primary"),
		Text: "a planned switchover: a replica that has everything becomes the primary",
		do: func(ctx context.Context) error {
			_, err := d.page.Switchover(ctx, s.name, client.Switchover{By: "the demonstration"})
			if err == nil {
				d.record.mark(asked, "shard", p.name)
			}
			return err
		},
	}}
}

// settled: all nodes are there, each may be promoted, and the primary is written to.
func (s *shardAct) settled(ctx context.Context) bool {
	return s.isComplete(ctx) && s.primary() != nil && s.primary().running() != 0 && s.writer.count() > 100
}

// isComplete reports whether the shard has all its nodes, and each may be promoted.
func (s *shardAct) isComplete(ctx context.Context) bool {
	view, err := s.d.page.Shard(ctx, s.name)
	return err == nil && view.Primary != nil && view.Plan == nil && len(view.Nodes) == nodeCount &&
		!slices.ContainsFunc(view.Nodes, func(n apitype.ShardNode) bool {
			return !n.Member || n.Condition != "up" || !n.Primary && (n.LinkUp == nil || !*n.LinkUp)
		})
}

// play kills the primary's process, and looks for what was acknowledged.
func (s *shardAct) play(ctx context.Context) ([]outcome, error) {
	d := s.d
	p := s.primary()
	d.voice.event("shard", "kill -9 %d: %s is the primary under a writer; a replica must take over and have all that was acknowledged", p.running(), p.name)
	s.mu.Lock()
	times := s.times
	s.mu.Unlock()
	release, err := p.killAndHold()
	if err != nil {
		return nil, err
	}
	defer release()
	var last outcome
	if err := d.await(ctx, "writes go on", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		last = s.last
		return s.times > times
	}); err != nil {
		return nil, err
	}
	var lost int
	var unread error
	err = d.await(ctx, "what was written is read", func() bool { lost, unread = s.writer.countLost(ctx); return unread == nil })
	total := outcome{part: "shard", what: s.writer.String(), broken: err != nil || lost > 0}
	if err != nil {
		total.what = fmt.Sprintf("what was written cannot be read: %v", cmp.Or(unread, err))
	}
	d.announce(total)
	return []outcome{last, total}, nil
}
