//go:build darwin || freebsd || openbsd

package guard

import (
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/understudy-ha/understudy/lease"
)

// One watcher, which reaches the program's process group only.
const layers = 1

// now is a clock that guard and watcher share: the guard's own counts from the
// start of its process.
func now() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic("guard: the monotonic clock cannot be read: " + err.Error())
	}
	return time.Duration(ts.Nano())
}

func ahead() time.Duration { return now() - lease.BootClock().Now() }

func selfPath() string {
	path, err := os.Executable()
	if err != nil {
		return os.Args[0]
	}
	return path
}

func watcherAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }
func programAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }

func adoptOrphans() error { return nil }

func raisePriority() {}

// alarm rings on the runtime's clock.
type alarm struct {
	fd    int32
	late  <-chan time.Time
	timer *time.Timer
}

func newAlarm() (*alarm, error) {
	t := time.NewTimer(time.Hour)
	return &alarm{fd: -1, late: t.C, timer: t}, nil
}

func (a *alarm) set(at time.Duration) { a.timer.Reset(at - now()) }

// groupIsKept: the group is all that is known of what the program has started. While a process is in it, no other gets its number.
const groupIsKept = true

// leftBehind reports whether a process of the program's group is alive after the program, which was reaped.
func leftBehind(program int) bool { return unix.Kill(-program, 0) != unix.ESRCH }

func terminateAll(program int) int {
	_ = unix.Kill(-program, unix.SIGTERM)
	_ = unix.Kill(-program, unix.SIGCONT)
	return 1
}

func killAll(program int) { _ = unix.Kill(-program, unix.SIGKILL) }
