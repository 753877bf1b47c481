package node

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// handle is a pidfd: it stays with its process, whatever becomes of the number.
type handle struct {
	file *os.File
	raw  syscall.RawConn
}

func open(pid int) (*handle, error) {
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EINVAL) {
		return nil, errNotThere
	}
	if err != nil {
		return nil, fmt.Errorf("node: pidfd of process %d: %w", pid, err)
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	h := &handle{file: os.NewFile(uintptr(fd), "pidfd")}
	if h.raw, err = h.file.SyscallConn(); err != nil {
		_ = h.file.Close()
		return nil, err
	}
	return h, nil
}

// wait returns at the end of the process, or false once the handle is closed.
func (h *handle) wait(<-chan struct{}) bool { return h.raw.Read(ready) == nil }

// ready reports whether a pidfd can be read, which it can when the process has ended.
func ready(fd uintptr) bool {
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
	return err == nil && n == 1
}

func (h *handle) ended() bool {
	var yes bool
	err := h.raw.Control(func(fd uintptr) { yes = ready(fd) })
	return err == nil && yes
}

func (h *handle) signal(s syscall.Signal) error {
	var err error
	if failed := h.raw.Control(func(fd uintptr) { err = unix.PidfdSendSignal(int(fd), s, nil, 0) }); failed != nil {
		return failed
	}
	return err
}

func (h *handle) close() { _ = h.file.Close() }

// selfPath leads to this very binary, even when its file was replaced.
func selfPath() string { return "/proc/self/exe" }

// apart gives a process a session of its own, and no signal when its parent dies.
func apart() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }

// startOf is when a process began, in the kernel's ticks since the boot.
func startOf(pid int) (string, error) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return "", errNotThere
	}
	// The program's name stands in parentheses and may hold anything.
	_, rest, _ := strings.Cut(string(b[strings.LastIndexByte(string(b), ')')+1:]), " ")
	fields := strings.Fields(rest)
	if len(fields) < 20 {
		return "", fmt.Errorf("node: /proc/%d/stat is not understood", pid)
	}
	return fields[19], nil
}

func bootID() string {
	b, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(b))
}
