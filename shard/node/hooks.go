package node

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/understudy-ha/understudy/internal/procgroup"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/shard"
)

var _ shard.Hooks = (*Hooks)(nil)

// DefaultHookTimeout is how long a hook may take.
const DefaultHookTimeout = 5 * time.Second

// hookOutput is how much of the end of a hook's output is kept, in bytes.
const hookOutput = 4 << 10

// Hooks runs a program before and after a promotion, and after any other change of the node's
// role. Its environment is the agent's and
//
//	UNDERSTUDY_WHEN   before, after
//	UNDERSTUDY_EVENT  promote, role
//	UNDERSTUDY_SHARD, UNDERSTUDY_NODE, UNDERSTUDY_ROLE, UNDERSTUDY_EPOCH
//	UNDERSTUDY_FROM, UNDERSTUDY_TO  ids of the old and the new primary, may be empty
//
// A program that takes too long is killed, with what it has started in its process group.
type Hooks struct {
	// Argv is the program and its arguments. Required.
	Argv []string
	// Timeout of a run. Default 5 s.
	Timeout time.Duration
	// Logger; nil is silent.
	Logger *slog.Logger
}

// Validate returns an error that wraps lease.ErrInvalid for hooks that cannot be run.
func (h *Hooks) Validate() error {
	if len(h.Argv) == 0 || h.Argv[0] == "" || h.Timeout < 0 {
		return fmt.Errorf("%w: a hook needs a program and a timeout that is not negative", lease.ErrInvalid)
	}
	return nil
}

// Before implements [shard.Hooks].
func (h *Hooks) Before(ctx context.Context, call shard.HookCall) error {
	return h.run(ctx, "before", call)
}

// After implements [shard.Hooks]. A failure is logged.
func (h *Hooks) After(ctx context.Context, call shard.HookCall) {
	if err := h.run(ctx, "after", call); err != nil && h.Logger != nil {
		h.Logger.Error("a hook failed", "event", call.Event, "shard", call.Shard, "err", err)
	}
}

func (h *Hooks) run(ctx context.Context, when string, call shard.HookCall) error {
	if err := h.Validate(); err != nil {
		return err
	}
	timeout := h.Timeout
	if timeout == 0 {
		timeout = DefaultHookTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	// The death signal comes when the thread that started the program ends.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var out tail
	cmd := exec.CommandContext(ctx, h.Argv[0], h.Argv[1:]...)
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.Env = append(os.Environ(),
		"UNDERSTUDY_WHEN="+when, "UNDERSTUDY_EVENT="+string(call.Event), "UNDERSTUDY_SHARD="+call.Shard,
		"UNDERSTUDY_NODE="+call.Node, "UNDERSTUDY_ROLE="+string(call.Role), "UNDERSTUDY_EPOCH="+strconv.FormatInt(call.Epoch, 10),
		"UNDERSTUDY_FROM="+call.From, "UNDERSTUDY_TO="+call.To)
	// What it left behind may hold its output open.
	running, err := procgroup.Start(cmd, time.Second)
	if err == nil {
		err = running.Wait()
	}
	if ctx.Err() != nil {
		err = fmt.Errorf("it took longer than %v: %w", timeout, context.Cause(ctx))
	}
	text := strings.ToValidUTF8(strings.TrimSpace(string(out.bytes)), "?")
	if h.Logger != nil {
		h.Logger.Info("a hook ran", "when", when, "event", call.Event, "shard", call.Shard, "err", err, "output", text)
	}
	if err != nil {
		return fmt.Errorf("node: hook %s: %w; it printed %q", h.Argv[0], err, text)
	}
	return nil
}

// tail keeps the last bytes that were written to it.
type tail struct{ bytes []byte }

func (t *tail) Write(b []byte) (int, error) {
	t.bytes = append(t.bytes, b...)
	if n := len(t.bytes) - hookOutput; n > 0 {
		t.bytes = bytes.Clone(t.bytes[n:])
	}
	return len(b), nil
}
