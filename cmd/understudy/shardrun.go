package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/understudy-ha/understudy/api"
	"github.com/understudy-ha/understudy/internal/sdnotify"
	"github.com/understudy-ha/understudy/shard"
	"github.com/understudy-ha/understudy/shard/checks"
	"github.com/understudy-ha/understudy/shard/node"
	"github.com/understudy-ha/understudy/shard/sentinel"
	"github.com/understudy-ha/understudy/store"
)

// agentConnections: what waits for commands, watches, reports, keeps the session, and
// decides must not wait for each other.
const agentConnections = 5

// agentListeners are where an agent answers: opened before the store is reached.
type agentListeners struct {
	front *door        // nil without one
	guide net.Listener // nil without one
}

func (l agentListeners) close(ctx context.Context) {
	if l.guide != nil {
		_ = l.guide.Close()
	}
	if l.front != nil {
		l.front.close(ctx)
	}
}

// agentListen makes the data folder, and listens.
func (a *app) agentListen(f *agentFlags) (out agentListeners, err error) {
	if err := os.MkdirAll(f.cfg.Dir, 0o700); err != nil {
		return out, usagef("--data: %v", err)
	}
	if f.sentinel != "" {
		if out.guide, err = listenOn("--sentinel", f.sentinel); err != nil {
			return out, err
		}
	}
	if f.listen != "" {
		l, err := listenOn("--listen", f.listen)
		if err != nil {
			out.close(context.Background())
			return agentListeners{}, err
		}
		out.front = openDoor(l, a.log, "the store has not been reached yet")
	}
	return out, nil
}

// shardAgent runs an agent until ctx ends.
func (a *app) shardAgent(ctx context.Context, f *agentFlags) error {
	var err error
	if f.open, err = a.agentListen(f); err != nil {
		return err
	}
	defer f.open.close(ctx)
	a.connections = agentConnections
	st, err := a.openPatiently(ctx, true)
	if err != nil {
		return stoppedWith(err)
	}
	defer st.Close()
	agent, done, err := a.agentOn(f, st)
	if err != nil {
		return err
	}
	defer done()
	return a.runAgent(ctx, f, agent, true)
}

// agentOn makes an agent on a store; done lets go of what it asks others with.
func (a *app) agentOn(f *agentFlags, st store.Store) (_ *shard.Agent, done func(), err error) {
	shards, err := shardsOf(st)
	if err != nil {
		return nil, nil, err
	}
	f.cfg.Registry, f.cfg.Commands, f.cfg.Leases = shards.Registry(), shards.Commands(), st
	asking, err := checks.NewClient(checks.ClientConfig{Timeout: f.cfg.Timing.Timeout / 5})
	if err != nil {
		return nil, nil, err
	}
	f.cfg.Promisers = asking
	agent, err := shard.New(f.cfg)
	if err != nil {
		asking.Close()
		return nil, nil, err
	}
	return agent, asking.Close, nil
}

// runAgent runs the agent and what stands before it, and returns when all of it has stopped:
// the agent last, so that others see what it still does. Alone in its process, it tells systemd
// how that is.
func (a *app) runAgent(ctx context.Context, f *agentFlags, agent *shard.Agent, alone bool) error {
	front, guide := f.open.front, f.open.guide
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	var parts sync.WaitGroup
	defer parts.Wait()
	defer stop()
	part := func(name string, run func(context.Context) error) {
		parts.Go(func() {
			if err := run(serving); err != nil && serving.Err() == nil {
				cancel(fmt.Errorf("%s: %w", name, err))
			}
		})
	}
	if front != nil {
		h, err := checks.Handler(checks.Config{Agent: agent, Version: version(), Metrics: api.ShardAgentMetrics(agent, version()), Logger: a.log})
		if err != nil {
			return errors.Join(err, endAgent(ctx, agent))
		}
		front.lead(http.MaxBytesHandler(h, 64<<10))
		part("http", front.wait)
	}
	if guide != nil {
		password, err := readPassword("--sentinel-password-file", f.sentinelPass)
		if err != nil {
			return errors.Join(err, endAgent(ctx, agent))
		}
		s, err := sentinel.New(sentinel.Config{Where: agent, Password: password, Logger: a.log})
		if err != nil {
			return errors.Join(err, endAgent(ctx, agent))
		}
		part("sentinel", func(ctx context.Context) error { return s.Serve(ctx, guide) })
	}
	story := *a
	if !alone { // of several in one log
		story.log = a.log.With("shard", f.cfg.Shard, "of", f.cfg.Node)
	}
	part("story", func(ctx context.Context) error { return story.tellStory(ctx, agent) })
	args := []any{"shard", f.cfg.Shard, "node", f.cfg.Node, "id", shortID(agent.ID()), "store", redact(a.storeURL),
		"interval", f.cfg.Timing.Interval, "timeout", f.cfg.Timing.Timeout}
	if front != nil {
		args = append(args, "checks", "http://"+front.addr)
	}
	if guide != nil {
		args = append(args, "sentinel", guide.Addr().String())
	}
	a.log.Info("standing beside the node", args...)
	if alone {
		part("watchdog", func(ctx context.Context) error { return watchAgent(ctx, agent) })
		sdnotify.Ready()
		defer context.AfterFunc(ctx, sdnotify.Stopping)()
	}
	err := agent.Run(ctx)
	err = errors.Join(err, a.endNode(ctx, f))
	if cause := context.Cause(ctx); err == nil && cause != nil && !errors.Is(cause, context.Canceled) {
		err = cause // a part failed for good
	}
	return err
}

// endAgent gives up what an agent that never ran has opened.
func endAgent(ctx context.Context, agent *shard.Agent) error {
	ctx, cancel := context.WithCancelCause(ctx)
	cancel(shard.ErrAbandon)
	return agent.Run(ctx)
}

// endNode stops the node that the agent supervised, unless it shall run on.
func (a *app) endNode(ctx context.Context, f *agentFlags) error {
	process, ok := f.cfg.Process.(*node.Process)
	if !ok {
		return nil
	}
	defer process.Close()
	if f.keepNode {
		a.log.Info("the node runs on, closed for writes", "pid", process.PID())
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), f.stopWait)
	defer cancel()
	if err := process.Stop(ctx); err != nil {
		return fmt.Errorf("the node is left alone, closed for writes: %w", err)
	}
	a.log.Info("the node was stopped")
	return nil
}

// settles is how long a trouble stands before it is told: many pass while a plan goes on.
const settles = 2 * time.Second

// tellStory logs what becomes of the node and its shard, as people would tell it.
func (a *app) tellStory(ctx context.Context, agent *shard.Agent) error {
	var was told
	var busy, since time.Time
	for trouble := ""; ; {
		changed := agent.Changed()
		now := tellOf(agent.Status())
		if now.trouble != trouble {
			trouble, since = now.trouble, time.Now()
		}
		if time.Since(since) < settles {
			now.trouble = was.trouble
		}
		if now != was && (now.registered || now.trouble != "") {
			now.tell(a, was)
			was, busy = now, time.Now()
		}
		pause := time.Second // what is open, and troubles, change without notice
		if time.Since(busy) < time.Second {
			pause = 20 * time.Millisecond // one thing leads to another
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-time.After(pause):
		}
	}
}

// told is what the story is about.
type told struct {
	registered, member, open bool
	role                     shard.Role
	primary, condition       string
	trouble                  string
	epoch                    int64
}

func tellOf(s shard.Status) told {
	t := told{registered: s.Registered, open: s.Open, role: s.State.Role, condition: string(s.Condition), trouble: s.Trouble, epoch: s.View.Row.PrimaryEpoch}
	_, t.member = s.View.Row.Member(s.NodeID)
	if s.View.Row.Primary != "" {
		t.primary = nodeLabel(seenIn(s.View), s.View.Row.Primary)
	}
	return t
}

func (t told) tell(a *app, was told) {
	if t.primary != was.primary || t.epoch != was.epoch {
		a.log.Info("the shard's primary", "primary", cmp.Or(t.primary, "none yet"), "epoch", t.epoch)
	}
	if t.member && !was.member {
		a.log.Info("the node is a member: it may be promoted")
	}
	if !t.member && was.member {
		a.log.Warn("the node is no member any more")
	}
	if t.open != was.open {
		if t.open {
			a.log.Info("the node is open for writes", "epoch", t.epoch)
		} else {
			a.log.Info("the node is closed for writes")
		}
	}
	if t.role != was.role || t.condition != was.condition {
		a.log.Info("the node", "role", t.role, "condition", t.condition)
	}
	switch {
	case t.trouble != "" && t.trouble != was.trouble:
		a.log.Warn("trouble with the node", "trouble", t.trouble)
	case t.trouble == "" && was.trouble != "":
		a.log.Info("no more trouble with the node")
	}
}
