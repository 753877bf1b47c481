//go:build unix

package procgroup

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// Running is a program that was started, and the reading of its output.
type Running struct {
	cmd     *exec.Cmd
	lingers time.Duration
	pipes   []*pipe
	all     sync.WaitGroup
}

// Start starts a command, whose Stdout and Stderr may be any writers, in a process group of its own. The end of the
// command's context kills the group. [Running.Wait] must follow.
func Start(cmd *exec.Cmd, lingers time.Duration) (*Running, error) {
	cmd.SysProcAttr = ownGroup()
	if cmd.Cancel != nil { // it has a context
		cmd.Cancel = func() error {
			// Before the process is waited for, so that its number cannot be another's by then.
			if syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) != nil {
				return cmd.Process.Kill()
			}
			return nil
		}
	}
	cmd.WaitDelay = lingers // of what holds the standard input
	r := &Running{cmd: cmd, lingers: lingers}
	var theirs []*os.File
	defer func() {
		for _, w := range theirs {
			_ = w.Close()
		}
	}()
	instead := map[io.Writer]*os.File{}
	for _, out := range []*io.Writer{&cmd.Stdout, &cmd.Stderr} {
		if *out == nil {
			continue
		}
		if instead[*out] == nil {
			ours, w, err := os.Pipe()
			if err != nil {
				r.close()
				return nil, err
			}
			theirs, instead[*out] = append(theirs, w), w
			r.pipes = append(r.pipes, &pipe{file: ours, to: *out})
		}
		*out = instead[*out]
	}
	if err := cmd.Start(); err != nil {
		r.close()
		return nil, err
	}
	for _, p := range r.pipes {
		r.all.Go(func() {
			_, p.err = io.Copy(p.to, p)
			_ = p.file.Close() // who writes on is told so
		})
	}
	return r, nil
}

func (r *Running) close() {
	for _, p := range r.pipes {
		_ = p.file.Close()
	}
}

// Wait waits for the program's end, and then for the end of its output. Who else holds that open is
// waited for for so long as Start was told: then Wait returns [exec.ErrWaitDelay]. What the
// program itself has written is read in any case, however busy this process is.
func (r *Running) Wait() error {
	err := r.cmd.Wait()
	timer := time.AfterFunc(r.lingers, func() {
		for _, p := range r.pipes {
			_ = p.file.SetReadDeadline(time.Unix(1, 0))
		}
	})
	r.all.Wait()
	timer.Stop()
	for _, p := range r.pipes {
		if err == nil {
			err = p.err
		}
	}
	return err
}

// most is the most that a pipe holds, unless someone has asked for more.
const most = 64 << 10

// pipe is the end of a program's output that is read.
type pipe struct {
	file *os.File // not embedded: it has more ways to be read than Read
	to   io.Writer
	err  error
	late int // bytes that were read after its deadline
}

// Read reads, after the deadline too what is in the pipe already.
func (p *pipe) Read(b []byte) (n int, err error) {
	if n, err = p.file.Read(b); !errors.Is(err, os.ErrDeadlineExceeded) {
		return n, err
	}
	if p.late >= most {
		return 0, exec.ErrWaitDelay
	}
	raw, err := p.file.SyscallConn()
	if err != nil {
		return 0, err
	}
	held := raw.Control(func(fd uintptr) {
		for n, err = syscall.Read(int(fd), b); errors.Is(err, syscall.EINTR); {
			n, err = syscall.Read(int(fd), b)
		}
	})
	switch {
	case held != nil:
		return 0, held
	case errors.Is(err, syscall.EAGAIN):
		return 0, exec.ErrWaitDelay
	case err != nil:
		return 0, err
	case n == 0:
		return 0, io.EOF
	}
	p.late += n
	return n, nil
}
