package origin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/understudy-ha/understudy/cache"
	"github.com/understudy-ha/understudy/internal/procgroup"
	"github.com/understudy-ha/understudy/internal/secret"
	"github.com/understudy-ha/understudy/internal/untrusted"
	"github.com/understudy-ha/understudy/lease"
)

// ExecConfig tells which program has the values.
type ExecConfig struct {
	// Command is the program and its arguments, in which {key} stands for the key:
	// see the package's documentation, and [Split]. Required.
	Command []string
	// Env is its environment, to which UNDERSTUDY_KEY and UNDERSTUDY_TERM are
	// added. Default: that of this process, without UNDERSTUDY_STORE and
	// UNDERSTUDY_TOKEN, which are secrets.
	Env []string
	// Dir is its working directory. Default: that of this process.
	Dir string
	// MaxValue bounds what it writes, in bytes. A program that writes more is
	// killed, and has failed. Default 16 MiB.
	MaxValue int
}

const (
	keyMark = "{key}"
	// defaultMaxValue bounds a value of a program or a URL where nothing else is said.
	defaultMaxValue = 16 << 20
	// exitNotFound is EX_NOINPUT of sysexits.h.
	exitNotFound = 66
	// lingering is how long a program's output may be held open by what it left
	// behind.
	lingering = time.Second
)

// Validate returns an error that wraps [lease.ErrInvalid].
func (c ExecConfig) Validate() error {
	switch {
	case len(c.Command) == 0 || c.Command[0] == "":
		return fmt.Errorf("origin: %w: no program", lease.ErrInvalid)
	case strings.Contains(c.Command[0], keyMark):
		return fmt.Errorf("origin: %w: the program %q contains {key}: a key must not choose what is run", lease.ErrInvalid, c.Command[0])
	case slices.ContainsFunc(c.Command, func(a string) bool { return strings.ContainsRune(a, 0) }):
		return fmt.Errorf("origin: %w: the program's arguments contain a zero byte", lease.ErrInvalid)
	case interpreted(c.Command):
		return fmt.Errorf("origin: %w: a shell would run what a key says: write sh -c '… \"$1\" …' -- {key} instead, or use \"$UNDERSTUDY_KEY\"", lease.ErrInvalid)
	case c.MaxValue < 0:
		return fmt.Errorf("origin: %w: the largest value (%d bytes) cannot be negative", lease.ErrInvalid, c.MaxValue)
	}
	return nil
}

// interpreted reports whether a shell is given a script that contains the key. With a c among its options, the script is
// the first word that is no option: sh -c -ex '…'. A shell may also be an argument of a program that has a -c of its own
// (su -s /bin/sh user -c '…'): behind other words, a word right after an option that ends in c is taken for a script.
func interpreted(command []string) bool {
	at := slices.IndexFunc(command, isShell)
	if at < 0 {
		return false
	}
	options, script, arguments := true, false, 0
	for i, word := range command[at+1:] {
		keyed, before := strings.Contains(word, keyMark), command[at+i]
		option := options && word != "--" && (strings.HasPrefix(word, "-") || strings.HasPrefix(word, "+"))
		script = script || option && takesScript(word) || !options && takesScript(before) && strings.HasSuffix(before, "c")
		switch {
		case keyed && script:
			return true
		case option && takesArgument(word):
			arguments++
		case option, word == "--":
		case isShell(word):
			options, script, arguments = true, false, 0
		case options && arguments > 0:
			arguments--
		case script:
			return false // what follows are arguments of the script
		default:
			options = false
		}
	}
	return false
}

func isShell(word string) bool {
	switch filepath.Base(word) {
	case "sh", "bash", "dash", "ash", "ksh", "mksh", "zsh", "fish", "busybox":
		return true
	}
	return false
}

// takesScript is whether an option says that a script follows, perhaps after other options.
func takesScript(option string) bool {
	short := strings.HasPrefix(option, "-") && !strings.HasPrefix(option, "--")
	return short && strings.Contains(option, "c") || strings.HasPrefix(option, "--command")
}

// takesArgument is whether an option of a shell has an argument of its own: sh -euo pipefail, bash --rcfile FILE.
func takesArgument(option string) bool {
	switch option {
	case "--rcfile", "--init-file", "--emulate":
		return true
	}
	return !strings.HasPrefix(option, "--") && strings.ContainsAny(option, "oO")
}

type program struct {
	ExecConfig
	name string // without the arguments, which may hold secrets
}

// Exec returns an origin that runs a program. One that cannot be found is refused.
func Exec(c ExecConfig) (cache.Origin, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if inDir := c.Dir != "" && !filepath.IsAbs(c.Command[0]) && filepath.Base(c.Command[0]) != c.Command[0]; !inDir {
		if _, err := exec.LookPath(c.Command[0]); err != nil {
			return nil, fmt.Errorf("origin: %w: %w", lease.ErrInvalid, err)
		}
	}
	if c.Env == nil {
		c.Env = secret.DropFrom(os.Environ())
	}
	if c.MaxValue == 0 {
		c.MaxValue = defaultMaxValue
	}
	c.Command, c.Env = slices.Clone(c.Command), slices.Clone(c.Env)
	p := program{c, filepath.Base(c.Command[0])}
	return p.fetch, nil
}

// argv is the command for a key.
func (p program) argv(key string) ([]string, error) {
	if strings.ContainsRune(key, 0) {
		return nil, fmt.Errorf("origin: the key has a zero byte, which cannot be given to a program")
	}
	out := make([]string, len(p.Command))
	ended := false // no options come any more
	for i, word := range p.Command {
		if strings.HasPrefix(word, keyMark) && strings.HasPrefix(key, "-") && !ended {
			return nil, fmt.Errorf("origin: the key begins with \"-\", and %s would take it for an option: write -- before {key}", p.name)
		}
		ended = ended || i > 0 && word == "--"
		out[i] = strings.ReplaceAll(word, keyMark, key)
	}
	return out, nil
}

var errLong = errors.New("the value is too long")

func (p program) fetch(ctx context.Context, f cache.Fetch) (cache.Value, error) {
	argv, err := p.argv(f.Key)
	if err != nil {
		return cache.Value{}, err
	}
	// The death signal comes when the thread that started the program ends.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	running, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	out, said := &output{max: p.MaxValue, stop: stop}, &untrusted.Tail{}
	cmd := exec.CommandContext(running, argv[0], argv[1:]...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = p.Dir, out, said
	cmd.Env = append(slices.Clip(p.Env), "UNDERSTUDY_KEY="+f.Key, "UNDERSTUDY_TERM="+strconv.FormatInt(f.Term, 10))
	started, err := procgroup.Start(cmd, lingering)
	if err == nil {
		err = started.Wait()
	}
	return p.judge(running, cmd.ProcessState, err, out, said.String())
}

func (p program) judge(ctx context.Context, state *os.ProcessState, err error, out *output, said string) (cache.Value, error) {
	failure := func(cause error) (cache.Value, error) {
		if said != "" {
			return cache.Value{}, fmt.Errorf("origin: %s: %w: %s", p.name, cause, said)
		}
		return cache.Value{}, fmt.Errorf("origin: %s: %w", p.name, cause)
	}
	switch {
	case errors.Is(context.Cause(ctx), errLong):
		return failure(fmt.Errorf("%w: more than %d bytes", errLong, p.MaxValue))
	case ctx.Err() != nil:
		return failure(fmt.Errorf("stopped: %w", context.Cause(ctx)))
	case state == nil:
		return failure(err)
	case state.ExitCode() == exitNotFound:
		return failure(cache.ErrNotFound)
	case !state.Success():
		return failure(errors.New(state.String()))
	case !out.whole:
		return failure(errors.New("it ended, and what it left behind holds its output open: the value may be cut off"))
	}
	return cache.Value{Data: fit(out.data)}, nil
}

// output reads a program's standard output, to its end or to one byte too much.
type output struct {
	max   int
	stop  context.CancelCauseFunc
	data  []byte
	whole bool // the end was seen
}

// ReadFrom implements [io.ReaderFrom]: os/exec copies by it, once, and has ended
// it when Wait returns.
func (o *output) ReadFrom(r io.Reader) (int64, error) {
	data, err := io.ReadAll(io.LimitReader(r, int64(o.max)+1))
	if len(data) > o.max {
		o.stop(errLong)
		return int64(len(data)), errLong
	}
	o.data, o.whole = data, err == nil
	return int64(len(data)), err
}

// Write implements [io.Writer], which ReadFrom stands in for.
func (o *output) Write([]byte) (int, error) { return 0, errors.ErrUnsupported }

// fit gives back memory that a value was read into and does not need: it is
// kept for long.
func fit(value []byte) []byte {
	if cap(value)-len(value) > len(value)/8 {
		return append(make([]byte, 0, len(value)), value...)
	}
	return slices.Clip(value)
}
