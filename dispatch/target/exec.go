package target

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/internal/procgroup"
	"github.com/understudy-ha/understudy/internal/secret"
	"github.com/understudy-ha/understudy/internal/untrusted"
	"github.com/understudy-ha/understudy/lease"
)

// ExecConfig tells which program is run for each message.
type ExecConfig struct {
	// Argv is the program and its arguments. Required.
	Argv []string
	// Env is its environment, to which UNDERSTUDY_QUEUE, _KEY, _MESSAGE_ID, _TERM,
	// _ATTEMPT, _SEQUENCE, _CONTENT_TYPE and _HEADERS (JSON) are added. Default: that of this
	// process, without UNDERSTUDY_STORE and UNDERSTUDY_TOKEN, which are secrets.
	Env []string
	// Dir is its working directory. Default: that of this process.
	Dir string
	// AtMostOnce: the program is not run again for a message whose outcome is unknown: its key blocks until an operator
	// decides. Default: it is run again, with a growing pause.
	AtMostOnce bool
	// Deduplicates declares that the program deduplicates by the id of a message that it
	// has done, however late it comes again.
	Deduplicates bool
}

// Validate returns an error that wraps [lease.ErrInvalid].
func (c ExecConfig) Validate() error {
	if len(c.Argv) == 0 || c.Argv[0] == "" {
		return fmt.Errorf("%w: no program", lease.ErrInvalid)
	}
	if slices.ContainsFunc(c.Argv, func(a string) bool { return strings.ContainsRune(a, 0) }) {
		return fmt.Errorf("%w: the program's arguments contain a zero byte", lease.ErrInvalid)
	}
	return checkOnce(c.AtMostOnce, c.Deduplicates)
}

// Exit codes with a meaning; they are those of sysexits.h.
const (
	exitDone     = 0
	exitInvalid  = 65
	exitBusy     = 75
	exitNoRights = 77
	exitConfig   = 78
)

// lingering is how long a program's output may be held open by what it left
// behind.
const lingering = 200 * time.Millisecond

// Exec runs a program for each message, with the payload on its standard input.
//
// At the deadline the program is killed with its process group. On Linux it is
// killed too when the instance dies; what it had started by itself continues then,
// and on other systems so does the program, which should bound its own time.
type Exec struct {
	cfg ExecConfig
	env []string
}

// NewExec returns a target that runs a program.
func NewExec(c ExecConfig) (*Exec, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	env := c.Env
	if env == nil {
		env = secret.DropFrom(os.Environ())
	}
	return &Exec{cfg: c, env: env}, nil
}

// Name implements [dispatch.Target]. Arguments may hold secrets, and are left out.
func (e *Exec) Name() string { return "exec " + filepath.Base(e.cfg.Argv[0]) }

// Semantics implements [dispatch.Target].
func (e *Exec) Semantics() dispatch.Semantics {
	return dispatch.Semantics{Resend: !e.cfg.AtMostOnce, Deduplicates: e.cfg.Deduplicates}
}

// Status implements [dispatch.Target]; a program cannot be asked.
func (e *Exec) Status(_ context.Context, as []dispatch.Assignment) []dispatch.Answer {
	return slices.Repeat([]dispatch.Answer{{Outcome: dispatch.Uncertain, Detail: "a program cannot be asked"}}, len(as))
}

// Submit implements [dispatch.Target].
func (e *Exec) Submit(ctx context.Context, a dispatch.Assignment) dispatch.Answer {
	if err := ctx.Err(); err != nil {
		return dispatch.Answer{Outcome: dispatch.Busy, Detail: "not started: " + err.Error()}
	}
	// The death signal comes when the thread that started the program ends.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var out untrusted.Tail
	cmd := exec.CommandContext(ctx, e.cfg.Argv[0], e.cfg.Argv[1:]...)
	cmd.Dir, cmd.Env = e.cfg.Dir, e.environment(a)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(a.Payload), &out, &out
	running, err := procgroup.Start(cmd, lingering)
	if err != nil {
		return dispatch.Answer{Outcome: startOutcome(err), Detail: "not started: " + untrusted.Words(err.Error())}
	}
	err = running.Wait()
	answer := classifyExit(cmd.ProcessState, err, context.Cause(ctx), out.String())
	answer.RequestEnded = answer.Outcome == dispatch.Uncertain && cmd.ProcessState != nil
	return answer
}

func (e *Exec) environment(a dispatch.Assignment) []string {
	return append(e.env[:len(e.env):len(e.env)],
		"UNDERSTUDY_QUEUE="+a.Queue,
		"UNDERSTUDY_KEY="+a.Key,
		"UNDERSTUDY_MESSAGE_ID="+a.ID,
		"UNDERSTUDY_BATCH="+a.ID, // the old name, for one more version
		"UNDERSTUDY_TERM="+strconv.FormatInt(a.Term, 10),
		"UNDERSTUDY_ATTEMPT="+strconv.Itoa(a.Attempt),
		"UNDERSTUDY_SEQUENCE="+strconv.FormatInt(a.Seq, 10),
		"UNDERSTUDY_CONTENT_TYPE="+a.ContentType,
		"UNDERSTUDY_HEADERS="+cmp.Or(dispatch.EncodeHeaders(a.Headers), "{}"),
	)
}

// startOutcome of a program that could not be started: it is this machine that
// lacks something, or the program will never start.
func startOutcome(err error) dispatch.Outcome {
	for _, lacking := range []error{syscall.EAGAIN, syscall.ENOMEM, syscall.EMFILE, syscall.ENFILE, context.Canceled, context.DeadlineExceeded} {
		if errors.Is(err, lacking) {
			return dispatch.Busy
		}
	}
	return dispatch.Misconfigured
}

func classifyExit(state *os.ProcessState, err, ended error, output string) dispatch.Answer {
	a := dispatch.Answer{Outcome: dispatch.Uncertain, Detail: output}
	switch {
	case state == nil:
		a.Detail = join("its end was not seen: "+untrusted.Words(fmt.Sprint(err)), output)
		return a
	case state.ExitCode() < 0 && errors.Is(ended, context.DeadlineExceeded):
		a.Detail = join("killed at its deadline", output)
		return a
	case state.ExitCode() < 0 && ended != nil:
		a.Detail = join("killed: "+ended.Error(), output)
		return a
	case state.ExitCode() < 0:
		a.Detail = join(state.String(), output)
		return a
	}
	a.Code = state.ExitCode()
	switch a.Code {
	case exitDone:
		a.Outcome = dispatch.Done
	case exitInvalid:
		a.Outcome = dispatch.InvalidMessage
	case exitBusy:
		a.Outcome = dispatch.Busy
	case exitNoRights, exitConfig:
		a.Outcome = dispatch.Misconfigured
	}
	if a.Outcome != dispatch.Done {
		a.Detail = join(state.String(), output)
	}
	return a
}

func join(what, output string) string {
	if output == "" {
		return what
	}
	return what + ": " + output
}
