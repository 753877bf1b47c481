package sim

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/shard"
	"github.com/understudy-ha/understudy/shard/agent"
	"github.com/understudy-ha/understudy/shard/shardtest"
)

// shardHost is a host with a node, an agent, clients, clocks and ways to the rest.
type shardHost struct {
	w             *shardWorld
	i             int
	name, address string
	dir           string
	dice          *dice
	node          *shardtest.Node

	mu      sync.Mutex
	clock   *clock
	boot    string
	line    shardLine
	moved   chan struct{} // closed and replaced when the line changes
	ids     map[string]bool
	agent   *agent.Agent
	stop    context.CancelCauseFunc
	done    chan error
	began   time.Time // when its agent was started
	leaving bool      // it was told to stop
	hung    time.Time // when its node was stopped last, and
	went    time.Time // went on
	ops     chan struct{}
}

// shardLine is a host's way to the store.
type shardLine int

const (
	lineWell shardLine = iota
	lineRefused
	lineMute
)

func (w *shardWorld) newHost(i int, dir string) *shardHost {
	d := newDice(w.setup.Seed, uint64(100+i))
	worst := w.setup.RateError * w.setup.Timing.RateTolerance()
	h := &shardHost{
		w: w, i: i, name: string(rune('a' + i)), address: fmt.Sprintf("10.0.0.%d:6379", i+1), dir: dir, dice: d,
		clock: &clock{gate: &gate{dice: d}, begin: time.Now(), rate: 1 + worst*[]float64{-1, 1, 0, 0.5}[d.n(4)], offset: time.Hour + d.upTo(1000*time.Hour), wall: d.upTo(time.Hour)},
		boot:  "boot", ops: make(chan struct{}, 1), ids: map[string]bool{}, moved: make(chan struct{}),
	}
	h.node = w.nodes.Add(h.address)
	h.node.Fenced()
	if w.setup.Supervised {
		h.node.Alone()
	}
	return h
}

// is reports whether the host's node has, or had, this id.
func (h *shardHost) is(id string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.ids[id]
}

// alive is the host's agent, nil while there is none.
func (h *shardHost) alive() *agent.Agent {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.agent
}

func (h *shardHost) id() string {
	if a := h.alive(); a != nil {
		return a.ID()
	}
	return ""
}

// kernel is the run of the host's kernel: its clock, and the name of its boot.
func (h *shardHost) kernel() (*clock, string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.clock, h.boot
}

// reboot gives the host another run of its kernel, whose clock starts again.
func (h *shardHost) reboot(offset time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	c := h.clock
	h.clock = &clock{gate: c.gate, begin: time.Now(), rate: c.rate, offset: offset, wall: c.wall}
	h.boot += "'"
}

// start starts the host's agent.
func (h *shardHost) start() {
	h.ops <- struct{}{}
	defer func() { <-h.ops }()
	if h.alive() != nil {
		return
	}
	w := h.w
	link := shardLink{h}
	clock, boot := h.kernel()
	cfg := agent.Config{
		Shard: shardName, Node: h.address, AgentAddress: "agent-" + h.name, Dir: h.dir, Engines: h.engines(),
		Local: func(address string) bool { return address == h.address }, KillHung: w.setup.KillHung, MinReplicas: w.setup.MinReplicas,
		Registry: link, Commands: link, Leases: shardLeases{link}, Promisers: shardPromisers{h}, Timing: w.setup.Timing,
		Clock: clock, Boot: boot, Policy: shard.Policy{FlapLimit: 1000, Patience: w.setup.Timing.Timeout * 2 / 5},
		Jitter: func(d time.Duration) time.Duration { return h.dice.upTo(d - 1) },
	}
	if w.setup.Supervised {
		cfg.Process = h.node.Process()
	} else {
		cfg.Adopt = func(int) (shard.Process, error) { return h.node.Process(), nil }
	}
	if w.setup.Trace != nil {
		cfg.Logger = slog.New(shardLog{h})
	}
	if twin := w.setup.Twin.Agent; twin != nil {
		twin(h, &cfg)
	}
	started, err := agent.New(cfg)
	if err != nil {
		panic(err) // the set-up is ours
	}
	w.judge.trace("%s: agent starts", h.name)
	ctx, cancel := context.WithCancelCause(context.Background())
	done := make(chan error, 1)
	h.mu.Lock()
	h.agent, h.stop, h.done, h.began = started, cancel, done, time.Now()
	h.ids[started.ID()], h.leaving = true, false
	h.mu.Unlock()
	go func() { done <- started.Run(ctx) }()
}

// crash ends the agent as SIGKILL would, leave as SIGTERM.
func (h *shardHost) crash() { h.finish(agent.ErrAbandon) }
func (h *shardHost) leave() { h.finish(nil) }

func (h *shardHost) finish(cause error) {
	h.ops <- struct{}{}
	defer func() { <-h.ops }()
	h.mu.Lock()
	running, stop, done := h.agent, h.stop, h.done
	if cause != nil {
		h.agent = nil // it continues until it has handed over otherwise
	}
	h.leaving = running != nil
	h.mu.Unlock()
	if running == nil {
		return
	}
	h.w.judge.trace("%s: agent ends (%v)", h.name, cause)
	stop(cause)
	if err := <-done; err != nil {
		h.w.judge.breach("the agent of %s returned %v", h.name, err)
	}
	h.mu.Lock()
	h.agent = nil
	h.mu.Unlock()
	h.w.judge.hurt(h) // who stops closes its node
}

// setLine changes the way to the store.
func (h *shardHost) setLine(l shardLine) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.line = l
	close(h.moved)
	h.moved = make(chan struct{})
}

func (h *shardHost) lineNow() (shardLine, <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.line, h.moved
}

// clients write all the time.
func (h *shardHost) clients() {
	d := newDice(h.w.setup.Seed, uint64(200+h.i))
	for {
		select {
		case <-h.w.quiet:
			return
		case <-time.After(d.between(10*time.Millisecond, 80*time.Millisecond)):
		}
		_, _ = h.node.Write()
	}
}

// shardPromisers asks other agents, where agents reach each other.
type shardPromisers struct{ h *shardHost }

func (p shardPromisers) RequestPromise(ctx context.Context, address string, q shard.Promise, mac string) (string, error) {
	w := p.h.w
	for _, o := range w.hosts {
		if "agent-"+o.name != address {
			continue
		}
		w.mu.Lock()
		cut := w.whisper[[2]int{p.h.i, o.i}]
		w.mu.Unlock()
		asked := o.alive()
		switch {
		case cut:
			<-ctx.Done()
			return "", context.Cause(ctx)
		case asked == nil:
			return "", errors.New("connection refused")
		}
		answer, err := asked.GrantPromise(q, mac)
		if w.faulty() && w.dice.hit(w.setup.Mute) {
			<-ctx.Done()
			return "", context.Cause(ctx)
		}
		return answer, err
	}
	return "", errors.New("no such host")
}

// shardLog traces what an agent logs.
type shardLog struct{ h *shardHost }

func (l shardLog) Enabled(context.Context, slog.Level) bool { return true }
func (l shardLog) WithGroup(string) slog.Handler            { return l }
func (l shardLog) WithAttrs([]slog.Attr) slog.Handler       { return l }

func (l shardLog) Handle(_ context.Context, r slog.Record) error {
	s := r.Message
	r.Attrs(func(a slog.Attr) bool { s += " " + a.String(); return true })
	l.h.w.judge.trace("   %s| %s", l.h.name, s)
	return nil
}

var _ lease.Clock = (*clock)(nil)
