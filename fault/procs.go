//go:build linux

package fault

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Proc is a process as /proc shows it.
type Proc struct {
	PID, Parent int
	State       byte // Z for one that has ended and was not waited for
	Args        []string
}

func (p Proc) String() string {
	return fmt.Sprintf("%d (parent %d, %c) %s", p.PID, p.Parent, p.State, strings.Join(p.Args, " "))
}

// Adopt makes this process the parent of all its descendants whose own parents
// end, so that [Leftovers] finds them. A test's main function calls it.
func Adopt() error { return unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }

// Leftovers waits for the descendants of this process to end, up to the given
// time, then ends those that have not, and returns them. The dead ones that this
// process adopted are waited for.
func Leftovers(within time.Duration) []Proc {
	deadline := time.Now().Add(within)
	for {
		var living []Proc
		for _, p := range Descendants(os.Getpid()) {
			switch {
			case p.State != 'Z':
				living = append(living, p)
			case p.Parent == os.Getpid():
				_, _ = syscall.Wait4(p.PID, nil, syscall.WNOHANG, nil)
			}
		}
		if len(living) == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			for _, p := range living {
				_ = syscall.Kill(p.PID, syscall.SIGKILL)
			}
			return living
		}
		<-time.After(20 * time.Millisecond)
	}
}

// Descendants are the children of a process, their children, and so on.
func Descendants(pid int) []Proc {
	children := map[int][]Proc{}
	for _, p := range processes() {
		children[p.Parent] = append(children[p.Parent], p)
	}
	var found []Proc
	for next := []int{pid}; len(next) > 0; next = next[1:] {
		for _, p := range children[next[0]] {
			found = append(found, p)
			next = append(next, p.PID)
		}
	}
	return found
}

// marked returns the living processes that were started with the given setting
// in their environment.
func marked(setting string) []Proc {
	var found []Proc
	for _, p := range processes() {
		env, _ := os.ReadFile(filepath.Join("/proc", strconv.Itoa(p.PID), "environ"))
		if p.State != 'Z' && bytes.Contains(append(env, 0), append([]byte(setting), 0)) {
			found = append(found, p)
		}
	}
	return found
}

// stopped waits a moment until all threads of a process are stopped.
func stopped(pid int) bool {
	for range 1000 {
		all := true
		tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
		for _, file := range tasks {
			fields := statFields(file)
			all = all && len(fields) > 0 && fields[0] == "T"
		}
		if all && len(tasks) > 0 {
			return true
		}
		<-time.After(time.Millisecond)
	}
	return false
}

// stopOutsideWrites stops a process where it is, and reports true, unless that is in the middle of a write to a file: then it goes on.
func stopOutsideWrites(pid int, signal func(syscall.Signal)) bool {
	signal(syscall.SIGSTOP)
	if stopped(pid) && !writes(pid) {
		return true
	}
	signal(syscall.SIGCONT)
	return false
}

// writes reports whether a process holds a lock on a file that nobody may share.
func writes(pid int) bool {
	locks, _ := os.ReadFile("/proc/locks")
	for line := range strings.Lines(string(locks)) {
		// 1: POSIX  ADVISORY  WRITE 123 08:01:456 120 120
		f := strings.Fields(line)
		if len(f) > 4 && f[1] == "POSIX" && f[3] == "WRITE" && f[4] == strconv.Itoa(pid) {
			return true
		}
	}
	return false
}

func processes() []Proc {
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	var all []Proc
	for _, dir := range dirs {
		pid, _ := strconv.Atoi(filepath.Base(dir))
		fields := statFields(filepath.Join(dir, "stat"))
		if len(fields) < 2 {
			continue // it has ended
		}
		parent, _ := strconv.Atoi(fields[1])
		args, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
		all = append(all, Proc{PID: pid, Parent: parent, State: fields[0][0],
			Args: strings.Split(strings.TrimRight(string(args), "\x00"), "\x00")})
	}
	return all
}

// statFields are what a stat file of /proc tells after the name, which stands in
// parentheses and may contain anything: the state, the parent, and so on.
func statFields(file string) []string {
	stat, _ := os.ReadFile(file)
	return strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
}
