//go:build unix && !linux

package node

import (
	"errors"
	"os"
	"sync/atomic"
	"syscall"
	"time"
)

// handle is a process that is asked for: there is nothing that stays with it here.
type handle struct {
	pid  int
	gone atomic.Bool
}

const askEvery = 100 * time.Millisecond

func open(pid int) (*handle, error) { return &handle{pid: pid}, nil }

// wait returns at the end of the process, or false once nobody wants to know.
func (h *handle) wait(closed <-chan struct{}) bool {
	tick := time.NewTicker(askEvery)
	defer tick.Stop()
	for !h.ended() {
		select {
		case <-closed:
			return false
		case <-tick.C:
		}
	}
	return true
}

func (h *handle) ended() bool {
	if h.gone.Load() {
		return true
	}
	// A child that has ended stays until it is reaped, here.
	var status syscall.WaitStatus
	pid, err := syscall.Wait4(h.pid, &status, syscall.WNOHANG, nil)
	if pid == h.pid || err != nil && errors.Is(syscall.Kill(h.pid, 0), syscall.ESRCH) {
		h.gone.Store(true)
	}
	return h.gone.Load()
}

func (h *handle) signal(s syscall.Signal) error {
	if h.ended() {
		return syscall.ESRCH
	}
	return syscall.Kill(h.pid, s)
}

func (h *handle) close() {}

func selfPath() string {
	path, err := os.Executable()
	if err != nil {
		return os.Args[0]
	}
	return path
}

func apart() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }

func startOf(int) (string, error) { return "", errors.ErrUnsupported }

func bootID() string { return "" }

func listens(int, string) error { return errors.ErrUnsupported }

func listener(string) (int, error) { return 0, errors.ErrUnsupported }
