package guard

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/understudy-ha/understudy/lease"
)

// layers of watchers between a guard and its program.
const layers = 2

// now is the clock that guard and watchers share, and ahead what it is ahead of
// the guard's [lease.BootClock].
func now() time.Duration   { return lease.BootClock().Now() }
func ahead() time.Duration { return 0 }

// selfPath leads to this very binary, even when its file was replaced.
func selfPath() string { return "/proc/self/exe" }

// watcherAttr puts a watcher into a session of its own, and asks it to stop its
// program when its parent dies.
func watcherAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGTERM}
}

// programAttr gives the program a session, and so a process group, of its own.
func programAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
}

// adoptOrphans makes this process the parent of every descendant whose parent
// dies, and makes sure that they can be seen.
func adoptOrphans() error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("guard: orphans cannot be adopted: %w", err)
	}
	if _, ok := readProcess(os.Getpid()); !ok {
		return fmt.Errorf("guard: processes cannot be seen, is /proc mounted?: %w", os.ErrNotExist)
	}
	return nil
}

// raisePriority puts this thread before others on a busy host, as far as that is allowed.
// Sessions share the processor among each other where autogroups are on, so that
// this watcher's has to come first as well; the program has another.
func raisePriority() {
	_ = unix.Setpriority(unix.PRIO_PROCESS, 0, -20)
	_ = os.WriteFile("/proc/self/autogroup", []byte("-20"), 0)
}

// alarm rings on the boot clock: after a suspension it is not late.
type alarm struct {
	fd   int32
	late <-chan time.Time // other systems ring here
}

func newAlarm() (*alarm, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_BOOTTIME, unix.TFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("guard: no timer: %w", err)
	}
	return &alarm{fd: int32(fd)}, nil
}

func (a *alarm) set(at time.Duration) {
	// A time of 0 would switch the timer off.
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(max(1, int64(at)))}
	if err := unix.TimerfdSettime(int(a.fd), unix.TFD_TIMER_ABSTIME, &spec, nil); err != nil {
		// It is refused only for a bad argument. The other watcher sees to the rest.
		panic("guard: the timer cannot be set: " + err.Error())
	}
}

// groupIsKept: descendants are found without their group, so that it need not be signalled when its first process is gone.
const groupIsKept = false

// leftBehind reports whether the program's group is alive: whoever is becomes the watcher's child, and is waited for as that.
func leftBehind(int) bool { return false }

// terminateAll sends SIGTERM to all descendants, lets those that are stopped see it, and
// tells how many there are. program is 0 when it was reaped.
func terminateAll(program int) int {
	all := descendants(os.Getpid())
	if len(all) == 0 && program != 0 {
		_ = unix.Kill(-program, unix.SIGTERM)
	}
	for _, p := range all {
		_ = unix.Kill(p.pid, unix.SIGTERM)
		_ = unix.Kill(p.pid, unix.SIGCONT)
	}
	return len(all)
}

// killAll kills all descendants that can be seen now. Whoever was born meanwhile
// is seen the next time.
//
// All are frozen before the first is killed, parents before children, so that
// none reacts to the end of another. Whole process groups come first: the kernel
// signals one without letting a fork slip through. A group below a watcher has no
// members elsewhere, as the watcher began a new session. Process ids are used
// again only after all the others: none changes its owner in between. program, which may be hidden from /proc, is 0 when it was reaped.
func killAll(program int) {
	all := descendants(os.Getpid())
	own := unix.Getpgrp()
	targets := make([]int, 0, 2*len(all)+1)
	seen := map[int]bool{own: true, 0: true, 1: true}
	for _, p := range append(all, process{group: program}) {
		if !seen[p.group] {
			seen[p.group] = true
			targets = append(targets, -p.group)
		}
	}
	for _, p := range all {
		targets = append(targets, p.pid)
	}
	for _, signal := range []unix.Signal{unix.SIGSTOP, unix.SIGKILL} {
		for _, t := range targets {
			_ = unix.Kill(t, signal)
		}
	}
}

// process is an entry of /proc.
type process struct{ pid, parent, group int }

// descendants of a process, parents before children. Those whose parent died
// while /proc was being read may be missing.
func descendants(root int) []process {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	children := make(map[int][]process)
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if p, ok := readProcess(pid); ok {
			children[p.parent] = append(children[p.parent], p)
		}
	}
	all := children[root]
	for i := 0; i < len(all); i++ {
		all = append(all, children[all[i].pid]...)
	}
	return all
}

// readProcess reads /proc/PID/stat: "PID (any name, even with ')') STATE PARENT GROUP …".
func readProcess(pid int) (process, bool) {
	var buf [512]byte
	fd, err := unix.Open("/proc/"+strconv.Itoa(pid)+"/stat", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return process{}, false
	}
	n, err := unix.Read(fd, buf[:])
	_ = unix.Close(fd)
	if err != nil {
		return process{}, false
	}
	stat := buf[:n]
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 3 {
		return process{}, false
	}
	parent, err1 := strconv.Atoi(string(fields[1]))
	group, err2 := strconv.Atoi(string(fields[2]))
	return process{pid: pid, parent: parent, group: group}, err1 == nil && err2 == nil
}
