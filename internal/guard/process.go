//go:build linux || darwin || freebsd || openbsd

package guard

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Process is a program that runs under watch.
type Process struct {
	program string
	log     *slog.Logger

	mu      sync.Mutex
	stopped bool
	orders  []*os.File // to the watchers, the outer one first; nil once they are gone

	pid     int           // valid once started
	started chan struct{} // closed when the program runs
	hangUp  chan struct{} // closed when it is to end
	done    chan struct{} // closed when nothing is alive
	exit    Exit          // valid once done, as is err
	err     error
}

// Start runs a program. ctx bounds starting it, not running it: when it ends
// before the program has started, nothing is left running. A program that cannot
// be started is a [StartError].
//
// Start is for a process whose main function calls [Watch] when its first
// argument is [WatcherArg].
func Start(ctx context.Context, cfg Config) (*Process, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	path, err := lookUp(cfg.Argv[0])
	if err != nil {
		return nil, &StartError{Program: cfg.Argv[0], Code: shellCode(err), Err: err}
	}
	p := &Process{
		program: cfg.Argv[0], log: cfg.Logger,
		started: make(chan struct{}), hangUp: make(chan struct{}), done: make(chan struct{}),
	}
	if p.log == nil {
		p.log = slog.New(slog.DiscardHandler)
	}
	if err := p.launch(cfg, path); err != nil {
		return nil, err
	}
	select {
	case <-p.started:
		return p, nil
	case <-p.done:
	case <-ctx.Done():
		p.Stop()
		<-p.done
		return nil, fmt.Errorf("guard: starting %q: %w", p.program, context.Cause(ctx))
	}
	select {
	case <-p.started: // and has ended since
		return p, nil
	default:
		return nil, p.err
	}
}

// Extend moves the deadline: a reading of [lease.BootClock]. A program that is
// being stopped already is not saved by it, but has its whole grace. It never
// waits for a watcher.
func (p *Process) Extend(until time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, f := range p.orders {
		// A watcher that cannot take it keeps to an earlier deadline.
		_ = send(f, order{kind: orderExtend, value: int64(until + ahead())})
	}
}

// Forwarded is the signals that whoever guards a program in a terminal or under a
// supervisor should pass on to it. SIGINT and SIGTERM are not among them: they
// ask the guard to end, which starts with [Process.Stop].
func Forwarded() []os.Signal {
	return []os.Signal{
		syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH, syscall.SIGCONT,
	}
}

// Signal sends a signal to the program alone, except that SIGTERM is
// [Process.Stop]. It returns [os.ErrProcessDone] when everything has ended.
func (p *Process) Signal(s os.Signal) error {
	n, ok := s.(syscall.Signal)
	if !ok {
		return fmt.Errorf("guard: signal %v: %w", s, errors.ErrUnsupported)
	}
	if n == syscall.SIGTERM {
		p.Stop()
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.orders) == 0 {
		return os.ErrProcessDone
	}
	if err := send(p.orders[len(p.orders)-1], order{kind: orderSignal, value: int64(n)}); err != nil {
		return fmt.Errorf("guard: passing on %v: %w", n, err)
	}
	return nil
}

// Stop starts to stop the program and all its descendants: SIGTERM now, SIGKILL
// after StopGrace or at the deadline. It does not wait.
func (p *Process) Stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped {
		return
	}
	p.stopped = true
	close(p.hangUp)
	for _, f := range p.orders {
		if send(f, order{kind: orderStop}) != nil {
			_ = f.Close() // says the same to a watcher that does not read
		}
	}
}

// Done is closed when nothing that was started is alive.
func (p *Process) Done() <-chan struct{} { return p.done }

// Wait returns how the program ended, when nothing that was started is alive.
func (p *Process) Wait() (Exit, error) {
	<-p.done
	return p.exit, p.err
}

// send never waits: the pipe is non-blocking, and takes an order whole or not.
func send(f *os.File, o order) error {
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = conn.Write(func(fd uintptr) bool {
		_, failed = unix.Write(int(fd), o.encode())
		return failed != unix.EINTR
	})
	return errors.Join(err, failed)
}

// lookUp looks a program up. One with a slash is left to the kernel.
func lookUp(program string) (string, error) {
	if strings.Contains(program, "/") {
		return program, nil
	}
	path, err := exec.LookPath(program)
	if errors.Is(err, exec.ErrNotFound) {
		return "", fmt.Errorf("%w in PATH", fs.ErrNotExist)
	}
	return path, err
}

// launch starts the outer watcher, which starts the rest.
func (p *Process) launch(cfg Config, path string) error {
	j := task{
		further: layers - 1, grace: cfg.StopGrace, deadline: cfg.Deadline + ahead(),
		path: path, argv: cfg.Argv,
	}
	if cfg.Afterwards != nil {
		j.afterwards = cfg.Afterwards.Arg
	}
	cmd := exec.Command(selfPath())
	cmd.Args = append([]string{os.Args[0], WatcherArg}, j.args()...)
	cmd.Env, cmd.SysProcAttr = cfg.Env, watcherAttr()
	// A nil file in an interface is not nil.
	if cfg.Stdin != nil {
		cmd.Stdin = cfg.Stdin
	}
	if cfg.Stdout != nil {
		cmd.Stdout = cfg.Stdout
	}
	if cfg.Stderr != nil {
		cmd.Stderr = cfg.Stderr
	}
	var reports []*os.File
	defer func() { closeAll(cmd.ExtraFiles) }()
	err := p.makePipes(cmd, &reports)
	if err == nil && cfg.Afterwards != nil {
		err = leave(cmd, cfg.Afterwards.Input)
	}
	gone := make(chan struct{})
	if err == nil {
		err = startLocked(cmd, gone)
	}
	if err != nil {
		closeAll(p.orders)
		closeAll(reports)
		return fmt.Errorf("guard: starting a watcher: %w", err)
	}
	go p.collect(cmd, reports, gone)
	return nil
}

// makePipes makes the pipes, in the order in which watchers expect them.
func (p *Process) makePipes(cmd *exec.Cmd, reports *[]*os.File) error {
	for range layers {
		r, w, err := os.Pipe()
		if err != nil {
			return err
		}
		cmd.ExtraFiles, p.orders = append(cmd.ExtraFiles, r), append(p.orders, w)
		if r, w, err = os.Pipe(); err != nil {
			return err
		}
		cmd.ExtraFiles, *reports = append(cmd.ExtraFiles, w), append(*reports, r)
	}
	return nil
}

// leave puts the input into the watcher's last pipe, which nobody reads unless this process is gone.
func leave(cmd *exec.Cmd, input []byte) error {
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	cmd.ExtraFiles = append(cmd.ExtraFiles, r)
	_, err = w.Write(input)
	return errors.Join(err, w.Close())
}

// startLocked starts a process whose parent-death signal means the death of this
// process, not that of the thread that happened to start it.
func startLocked(cmd *exec.Cmd, gone chan<- struct{}) error {
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // its reports tell how it ended
			close(gone)
		}
	}()
	return <-started
}

func closeAll(files []*os.File) {
	for _, f := range files {
		_ = f.Close()
	}
}
