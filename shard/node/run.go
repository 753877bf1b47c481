package node

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// run is one run of a process.
type run struct {
	pid    int
	handle *handle
	done   chan struct{} // closed at its end
	closed chan struct{} // closed when nobody wants to know any more
	once   sync.Once
	wg     sync.WaitGroup
}

// over is a run that has ended.
func over() *run {
	r := &run{done: make(chan struct{}), closed: make(chan struct{})}
	close(r.done)
	return r
}

// watch waits for the end of a process, and reaps it if it is the child of cmd.
func watch(pid int, cmd *exec.Cmd) (*run, error) {
	h, err := open(pid)
	if err != nil {
		return nil, err
	}
	r := &run{pid: pid, handle: h, done: make(chan struct{}), closed: make(chan struct{})}
	r.wg.Go(func() {
		ended := h.wait(r.closed)
		if cmd != nil && ended {
			_ = cmd.Wait()
		} else if cmd != nil {
			_ = cmd.Process.Release()
		}
		if ended {
			close(r.done)
		}
	})
	return r, nil
}

func (r *run) running() bool {
	select {
	case <-r.done:
		return false
	default:
		return r.handle != nil && !r.handle.ended()
	}
}

// PID is 0 when it does not run.
func (r *run) PID() int {
	if !r.running() {
		return 0
	}
	return r.pid
}

func (r *run) signal(s syscall.Signal) error {
	if r.handle == nil {
		return nil
	}
	if err := r.handle.signal(s); err != nil && !errors.Is(err, syscall.ESRCH) {
		return err
	}
	return nil
}

func (r *run) kill() error { return r.signal(syscall.SIGKILL) }

func (r *run) close() {
	r.once.Do(func() {
		close(r.closed)
		if r.handle != nil {
			r.handle.close()
		}
	})
	r.wg.Wait()
}

// logCheck is how often the size of the log is looked at.
const logCheck = 10 * time.Second

// tidy keeps the node's log within its size as long as the node is watched.
func (r *run) tidy(file string, size int64) {
	r.wg.Go(func() {
		tick := time.NewTicker(logCheck)
		defer tick.Stop()
		for {
			_ = shorten(file, size)
			select {
			case <-tick.C:
			case <-r.done:
				return
			case <-r.closed:
				return
			}
		}
	})
}

// shorten moves the end of a log that is too long to another file. The node continues
// writing to the same one, at its end.
func shorten(file string, size int64) error {
	info, err := os.Stat(file)
	if err != nil || info.Size() <= size {
		return err
	}
	from, err := os.Open(file)
	if err != nil {
		return err
	}
	defer from.Close()
	if _, err := from.Seek(-size, io.SeekEnd); err != nil {
		return err
	}
	to, err := os.OpenFile(file+".1", os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(to, io.LimitReader(from, size))
	return errors.Join(err, to.Close(), os.Truncate(file, 0))
}
