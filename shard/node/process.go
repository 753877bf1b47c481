package node

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/shard"
)

var _ shard.Process = (*Process)(nil)

// DefaultLogSize bounds the node's log, in bytes; as much again is kept of what came before.
const DefaultLogSize = 16 << 20

// Config tells how to start a node.
type Config struct {
	// Argv is the program, found by PATH, and its arguments. Required.
	Argv []string
	// Append is added to Argv: what keeps the node fenced from its first moment on. See
	// StartArgs of the engines.
	Append []string
	// Env is added to the agent's environment, as NAME=VALUE.
	Env []string
	// Dir is the agent's data folder, where node.pid and node.log are. Required. The node runs in
	// WorkDir, or where the agent runs.
	Dir, WorkDir string
	// LogSize bounds node.log, which takes what the node prints. Default DefaultLogSize.
	LogSize int64
	// Logger; nil is silent.
	Logger *slog.Logger
}

// Validate returns an error that wraps lease.ErrInvalid for a configuration that cannot work.
func (c Config) Validate() error {
	switch {
	case len(c.Argv) == 0 || c.Argv[0] == "":
		return fmt.Errorf("%w: no program to start as the node", lease.ErrInvalid)
	case c.Dir == "":
		return fmt.Errorf("%w: no data folder", lease.ErrInvalid)
	case c.LogSize < 0:
		return fmt.Errorf("%w: a log of %d bytes", lease.ErrInvalid, c.LogSize)
	}
	return nil
}

// Process is a node's process. It is safe to use from several goroutines.
type Process struct {
	cfg  Config
	argv []string
	mu   sync.Mutex
	run  *run
}

// New returns a process that is not yet started.
func New(cfg Config) (*Process, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.LogSize == 0 {
		cfg.LogSize = DefaultLogSize
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Process{cfg: cfg, argv: slices.Concat(cfg.Argv, cfg.Append), run: over()}, nil
}

// Start implements [shard.Process]: unless it runs, it adopts what an earlier agent
// started, or starts it.
func (p *Process) Start(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := ctx.Err(); err != nil || p.run.running() {
		return err
	}
	last, err := readMark(p.markFile())
	if err != nil {
		return err
	}
	if r, err := last.find(); err == nil {
		if last.Argv != hash(p.argv) {
			p.cfg.Logger.Warn("the node runs with other arguments than it would be started with now", "pid", last.PID)
		}
		p.cfg.Logger.Info("the node runs already", "pid", last.PID)
		p.run = r
	} else if !errors.Is(err, errNotThere) {
		return fmt.Errorf("node: process %d of an earlier agent: %w", last.PID, err)
	} else if p.run, err = p.launch(); err != nil {
		p.run = over()
		return err
	}
	p.run.tidy(p.logFile(), p.cfg.LogSize)
	return nil
}

func (p *Process) launch() (*run, error) {
	out, err := os.OpenFile(p.logFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	cmd, gate, err := p.prepare(out)
	if err != nil {
		return nil, fmt.Errorf("node: starting %s: %w", p.argv[0], err)
	}
	defer gate.Close()
	r, err := watch(cmd.Process.Pid, cmd)
	if err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		return nil, fmt.Errorf("node: %s was started and cannot be watched: %w", p.argv[0], err)
	}
	// In this order: the next agent must know the node from its first moment on.
	err = newMark(cmd.Process.Pid, p.argv).write(p.markFile())
	if err == nil {
		_, err = gate.Write([]byte{1})
	}
	if err != nil {
		_ = r.kill()
		<-r.done
		return nil, fmt.Errorf("node: starting %s: %w", p.argv[0], err)
	}
	p.cfg.Logger.Info("the node was started", "pid", r.pid, "program", p.argv[0])
	return r, nil
}

func (p *Process) current() *run {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.run
}

// Running implements [shard.Process].
func (p *Process) Running() bool { return p.current().running() }

// Done implements [shard.Process]. It is closed when nothing was started yet.
func (p *Process) Done() <-chan struct{} { return p.current().done }

// Kill implements [shard.Process].
func (p *Process) Kill() error { return p.current().kill() }

// PID implements [shard.Process].
func (p *Process) PID() int { return p.current().PID() }

// Stop asks the node to end as an operator would, with SIGTERM, and waits until it has ended or
// ctx does.
func (p *Process) Stop(ctx context.Context) error {
	r := p.current()
	if !r.running() {
		return nil
	}
	if err := r.signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-r.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("node: process %d was asked to end: %w", r.pid, context.Cause(ctx))
	}
}

// Close ends the watching, not the node. Done is not closed by it.
func (p *Process) Close() error {
	p.current().close()
	return nil
}

func (p *Process) markFile() string { return filepath.Join(p.cfg.Dir, "node.pid") }
func (p *Process) logFile() string  { return filepath.Join(p.cfg.Dir, "node.log") }

func hash(argv []string) string {
	sum := sha256.Sum256([]byte(strings.Join(argv, "\x00")))
	return hex.EncodeToString(sum[:])
}
