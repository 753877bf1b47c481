package shardagent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/understudy-ha/understudy/api"
	"github.com/understudy-ha/understudy/api/apitype"
	"github.com/understudy-ha/understudy/internal/instance"
	"github.com/understudy-ha/understudy/internal/podlabel"
	"github.com/understudy-ha/understudy/internal/sdnotify"
	"github.com/understudy-ha/understudy/internal/startlistener"
	"github.com/understudy-ha/understudy/internal/termtext"
	"github.com/understudy-ha/understudy/internal/usererr"
	"github.com/understudy-ha/understudy/shard"
	"github.com/understudy-ha/understudy/shard/agent"
	"github.com/understudy-ha/understudy/shard/checks"
	"github.com/understudy-ha/understudy/shard/node"
	"github.com/understudy-ha/understudy/shard/sentinel"
	"github.com/understudy-ha/understudy/store"
)

// Connections are those of an agent to its store: what waits for commands, watches, reports, keeps the session, and
// decides must not wait for each other.
const Connections = 5

// LaunchArg is the first argument of a process that is to call [Launch] with the arguments after it, before it does
// anything else.
const LaunchArg = node.LaunchArg

// Launch becomes the node that an agent starts. It returns only if it cannot.
func Launch(argv []string) error { return node.Launch(argv) }

// listeners are where an agent answers, and what it labels: opened before the store is reached.
type listeners struct {
	http     *startlistener.Door // nil without one
	sentinel net.Listener        // nil without one
	pod      *podlabel.Pod       // nil without one
}

func (l listeners) close(ctx context.Context) {
	if l.sentinel != nil {
		_ = l.sentinel.Close()
	}
	if l.http != nil {
		l.http.Close(ctx)
	}
}

// Listen makes the data folder, and listens: before the store is reached.
func (f *Flags) Listen(log *slog.Logger) (err error) {
	f.open, err = f.openListeners(log)
	return err
}

// Close lets go of what Listen has opened.
func (f *Flags) Close(ctx context.Context) { f.open.close(ctx) }

func (f *Flags) openListeners(log *slog.Logger) (out listeners, err error) {
	if err := os.MkdirAll(f.Config.Dir, 0o700); err != nil {
		return out, usererr.Errorf("--data: %v", err)
	}
	if f.Pod != "" {
		if out.pod, err = podlabel.New(f.Pod, log); err != nil {
			return out, err
		}
	}
	if f.Sentinel != "" {
		if out.sentinel, err = startlistener.Listen("--sentinel", f.Sentinel); err != nil {
			return out, err
		}
		f.Config.SentinelAddress = f.sentinelAddress(out.sentinel.Addr().String())
	}
	if f.Settings.Listen != "" {
		l, err := startlistener.Listen("--listen", f.Settings.Listen)
		if err != nil {
			out.close(context.Background())
			return listeners{}, err
		}
		out.http = startlistener.Open(l, log, "the store has not been reached yet")
	}
	return out, nil
}

// Run runs an agent, alone in its process, until ctx ends.
func Run(ctx context.Context, h *instance.Host, f *Flags) error {
	if err := f.Listen(h.Log); err != nil {
		return err
	}
	defer f.Close(ctx)
	on := *h
	on.Connections = Connections
	st, err := on.Open(ctx, instance.Opening{Patient: true})
	if err != nil {
		return instance.Stopped(err)
	}
	defer st.Close()
	made, done, err := newAgent(f, st)
	if err != nil {
		return err
	}
	defer done()
	return run(ctx, h, f, made, true)
}

// newAgent makes an agent on a store; done lets go of what it asks others with.
func newAgent(f *Flags, st store.Store) (_ *agent.Agent, done func(), err error) {
	shards, err := instance.Shards(st)
	if err != nil {
		return nil, nil, err
	}
	f.Config.Registry, f.Config.Commands, f.Config.Leases = shards.Registry(), shards.Commands(), st
	asking, err := checks.NewClient(checks.ClientConfig{Timeout: f.Config.Timing.Timeout / 5})
	if err != nil {
		return nil, nil, err
	}
	f.Config.Promisers = asking
	made, err := agent.New(f.Config)
	if err != nil {
		asking.Close()
		return nil, nil, err
	}
	return made, asking.Close, nil
}

// run runs the agent and what stands before it, and returns when all of it has stopped:
// the agent last, so that others see what it still does. Alone in its process, it tells systemd
// how that is.
func run(ctx context.Context, h *instance.Host, f *Flags, running *agent.Agent, alone bool) error {
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
	if f.open.http != nil {
		inside, err := checks.Handler(checks.Config{Agent: running, Version: h.Version, Metrics: api.ShardAgentMetrics(running, h.Version), Logger: h.Log})
		if err != nil {
			return errors.Join(err, end(ctx, running))
		}
		f.open.http.Lead(http.MaxBytesHandler(inside, 64<<10))
		part("http", f.open.http.Wait)
	}
	if f.open.sentinel != nil {
		s, err := sentinel.New(sentinel.Config{Where: running, ID: running.ID(), Password: f.sentinelPassword, Logger: h.Log})
		if err != nil {
			return errors.Join(err, end(ctx, running))
		}
		part("sentinel", func(ctx context.Context) error { return s.Serve(ctx, f.open.sentinel) })
	}
	log := h.Log
	if !alone { // of several in one log
		log = h.Log.With("shard", f.Config.Shard, "node", f.Config.Node)
	}
	part("log", func(ctx context.Context) error { return logChanges(ctx, log, running, f.open.pod) })
	if f.open.pod != nil {
		part("pod", f.open.pod.Run)
		defer func() { labelPod(f.open.pod, running.Status()) }()
	}
	args := []any{"shard", f.Config.Shard, "node", f.Config.Node, "id", ShortID(running.ID()), "store", termtext.URL(h.StoreURL),
		"interval", f.Config.Timing.Interval, "timeout", f.Config.Timing.Timeout}
	if f.open.http != nil {
		args = append(args, "checks", "http://"+f.open.http.Addr)
	}
	if f.open.sentinel != nil {
		args = append(args, "sentinel", f.open.sentinel.Addr().String())
	}
	h.Log.Info("standing beside the node", args...)
	if alone {
		part("watchdog", func(ctx context.Context) error { return watchAgent(ctx, running) })
		sdnotify.Ready()
		defer context.AfterFunc(ctx, sdnotify.Stopping)()
	}
	err := running.Run(ctx)
	err = errors.Join(err, f.endNode(ctx, h.Log, running.Status().Open))
	if cause := context.Cause(ctx); err == nil && cause != nil && !errors.Is(cause, context.Canceled) {
		err = cause // a part failed for good
	}
	return err
}

// Agent is an agent on a store, ready to run.
type Agent struct {
	name  string
	host  *instance.Host
	flags *Flags
	agent *agent.Agent
	done  func()
}

// OnStore makes the agent on a store, as one of several in its process. It listens already, and nothing runs yet.
func (f *Flags) OnStore(h *instance.Host, st store.Store) (*Agent, error) {
	made, done, err := newAgent(f, st)
	if err != nil {
		return nil, err
	}
	return &Agent{name: f.Config.Shard + " at " + cmp.Or(f.Config.Announced, f.Config.Node), host: h, flags: f, agent: made, done: done}, nil
}

// Name tells it from others in the process.
func (s *Agent) Name() string { return s.name }

// Run stands beside the node until ctx ends.
func (s *Agent) Run(ctx context.Context) error {
	defer s.done()
	return run(ctx, s.host, s.flags, s.agent, false)
}

// GiveUp lets go of one that never ran.
func (s *Agent) GiveUp(ctx context.Context) {
	_ = end(ctx, s.agent)
	s.done()
}

// end gives up what an agent that never ran has opened.
func end(ctx context.Context, running *agent.Agent) error {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(ctx)) // a stop that came first would be the cause
	cancel(agent.ErrAbandon)
	return running.Run(ctx)
}

// endNode stops the node that the agent supervised, unless it must run on. open tells that its fence could not be closed.
func (f *Flags) endNode(ctx context.Context, log *slog.Logger, open bool) error {
	process, ok := f.Config.Process.(*node.Process)
	if !ok {
		return nil
	}
	defer process.Close()
	switch {
	case f.KeepNode && open:
		log.Warn("the node runs on and may accept writes: its fence could not be closed", "pid", process.PID())
		return nil
	case f.KeepNode:
		log.Info("the node runs on, closed for writes", "pid", process.PID())
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), f.StopWait)
	defer cancel()
	if err := process.Stop(ctx); err != nil && open {
		return fmt.Errorf("the node is left alone and may accept writes, as its fence could not be closed: %w", err)
	} else if err != nil {
		return fmt.Errorf("the node is left alone, closed for writes: %w", err)
	}
	log.Info("the node was stopped")
	return nil
}

// troubleDelay is how long a trouble stands before it is logged: many pass while a plan continues.
const troubleDelay = 2 * time.Second

// logChanges logs what becomes of the node and its shard.
func logChanges(ctx context.Context, log *slog.Logger, running *agent.Agent, pod *podlabel.Pod) error {
	var was logState
	var busy, since time.Time
	for trouble := ""; ; {
		changed := running.Changed()
		status := running.Status()
		labelPod(pod, status)
		now := logStateOf(status)
		if now.trouble != trouble {
			trouble, since = now.trouble, time.Now()
		}
		if time.Since(since) < troubleDelay {
			now.trouble = was.trouble
		}
		if now != was && (now.registered || now.trouble != "") {
			now.logSince(log, was)
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

// labelPod has the pod, if there is one, show the node's role. It shows what it showed before while that is not known, and while the
// node goes on without its agent.
func labelPod(pod *podlabel.Pod, s shard.Status) {
	if primary := s.IsPrimary(); pod != nil && (primary || s.Registered && !s.IsUnattended()) {
		pod.Set(primary, s.View.Row.PrimaryEpoch)
	}
}

// logState is what changes are logged of.
type logState struct {
	registered, member, open bool
	role                     shard.Role
	primary, condition       string
	trouble                  string
	epoch                    int64
}

func logStateOf(s shard.Status) logState {
	t := logState{registered: s.Registered, open: s.Open, role: s.State.Role, condition: string(s.Condition), trouble: s.Trouble, epoch: s.View.Row.PrimaryEpoch}
	_, t.member = s.View.Row.Member(s.NodeID)
	if s.View.Row.Primary != "" {
		t.primary = Label(api.ViewShard(s.View), s.View.Row.Primary)
	}
	return t
}

// logSince logs what is not as it was.
func (t logState) logSince(log *slog.Logger, was logState) {
	if t.primary != was.primary || t.epoch != was.epoch {
		log.Info("the shard's primary", "primary", cmp.Or(t.primary, "none yet"), "epoch", t.epoch)
	}
	if t.member && !was.member {
		log.Info("the node is a member: it may be promoted")
	}
	if !t.member && was.member {
		log.Warn("the node is not a member any more")
	}
	if t.open != was.open {
		if t.open {
			log.Info("the node is open for writes", "epoch", t.epoch)
		} else {
			log.Info("the node is closed for writes")
		}
	}
	if t.role != was.role || t.condition != was.condition {
		log.Info("the node", "role", t.role, "condition", t.condition)
	}
	switch {
	case t.trouble != "" && t.trouble != was.trouble:
		log.Warn("trouble with the node", "trouble", t.trouble)
	case t.trouble == "" && was.trouble != "":
		log.Info("no more trouble with the node")
	}
}

// Label is a node of a shard as people know it: its address, and the beginning of its id.
func Label(s apitype.Shard, id string) string {
	if id == "" {
		return "?"
	}
	if i := slices.IndexFunc(s.Nodes, func(n apitype.ShardNode) bool { return n.ID == id }); i >= 0 {
		return fmt.Sprintf("%s (%s)", s.Nodes[i].Address, ShortID(id))
	}
	return ShortID(id)
}

// ShortID is as much of a node's id as people need.
func ShortID(id string) string { return id[:min(8, len(id))] }
