//go:build linux

package fault

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/internal/guard"
	"github.com/understudy-ha/understudy/internal/testkit/realserver"
)

// Node is one `understudy role run`.
type Node struct {
	Name string
	// Link to the store's server; nil for a store without one. It outlives the
	// node: one of the same name that is started later has it too.
	Link *Proxy

	cluster *Cluster
	cmd     *exec.Cmd
	log     string
	done    chan struct{}
}

// run starts the node's process. It dies with the test process, and the watchers
// then see to the rest.
func (n *Node) run(tb testing.TB, args []string) {
	tb.Helper()
	n.cmd = exec.Command(n.cluster.Programs.Understudy, args...)
	n.cmd.Dir = n.cluster.dir
	if n.cluster.Quiet {
		none, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
		if err != nil {
			tb.Fatal(err)
		}
		defer none.Close()
		n.cmd.Stdout = none
	}
	n.cmd.Env = append(os.Environ(), n.cluster.mark(), n.mark())
	start(tb, n.cmd, n.log, n.done)
}

// start starts a process that dies with the test process. What it says goes to the
// end of the log; done is closed when it has ended.
func start(tb testing.TB, cmd *exec.Cmd, log string, done chan<- struct{}) {
	tb.Helper()
	file, err := os.OpenFile(log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		tb.Fatal(err)
	}
	defer file.Close()
	// A file, not a pipe: the end of the process is not the end of what it started.
	cmd.Stderr = file
	if cmd.Stdout == nil {
		cmd.Stdout = file
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	started := make(chan error, 1)
	go func() {
		// The death signal comes when the thread ends that started the process.
		runtime.LockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait()
		}
		close(done)
	}()
	if err := <-started; err != nil {
		tb.Fatalf("starting %s: %v", cmd.Path, err)
	}
}

// PID of the guard.
func (n *Node) PID() int { return n.cmd.Process.Pid }

// Signal sends a signal to the guard alone.
func (n *Node) Signal(s syscall.Signal) { _ = n.cmd.Process.Signal(s) }

// Pause stops the guard where it is, save in the middle of a write to a store
// that is a file: there it would keep the file's lock, and with it everyone from
// the store, until it continues or dies. What that does to the role is shown with
// a lock of someone else's.
func (n *Node) Pause(tb testing.TB) {
	tb.Helper()
	realserver.Eventually(tb, patience, n.Name+" is paused", func() error {
		if stopOutsideWrites(n.PID(), n.Signal) {
			return nil
		}
		return errors.New("it writes at this moment")
	})
}

// Exited reports whether the guard has ended.
func (n *Node) Exited() bool {
	select {
	case <-n.done:
		return true
	default:
		return false
	}
}

// Exit waits for the end of the guard and returns its exit code, -1 if a signal
// ended it.
func (n *Node) Exit(tb testing.TB, within time.Duration) int {
	tb.Helper()
	select {
	case <-n.done:
		return n.cmd.ProcessState.ExitCode()
	case <-time.After(within):
		tb.Fatalf("%s has not ended within %v", n.Name, within)
		return 0
	}
}

// Watchers returns the process ids of the guard's watchers, the outer one first.
// There are none while the node is not primary.
func (n *Node) Watchers() []int {
	var pids []int
	for _, p := range Descendants(n.PID()) {
		if len(p.Args) > 1 && p.Args[1] == guard.WatcherArg {
			pids = append(pids, p.PID)
		}
	}
	return pids
}

// Program returns the process id of the guarded program itself, 0 if there is none.
func (n *Node) Program() int {
	for _, p := range Descendants(n.PID()) {
		if p.Args[0] == n.cluster.Programs.Worker && !slices.Contains(p.Args, "-depth") {
			return p.PID
		}
	}
	return 0
}

// Stop tells the node to stop, as an operator would, and ends it if it does not.
func (n *Node) Stop(within time.Duration) (inTime bool) {
	n.Signal(syscall.SIGTERM)
	n.Signal(syscall.SIGCONT)
	select {
	case <-n.done:
		return true
	case <-time.After(within):
		n.Signal(syscall.SIGKILL)
		<-n.done
		return false
	}
}

// Says waits until the node has logged the words.
func (n *Node) Says(tb testing.TB, words string, within time.Duration) {
	tb.Helper()
	realserver.Eventually(tb, within, fmt.Sprintf("%s says %q", n.Name, words), func() error {
		if !strings.Contains(n.output(), words) {
			return fmt.Errorf("it has not")
		}
		return nil
	})
}

func (n *Node) output() string {
	text, _ := os.ReadFile(n.log)
	return string(text)
}

// Is reports whether a holder's label is that of this node, in whichever run.
func (n *Node) Is(holder string) bool {
	name, _, _ := strings.Cut(holder, "/")
	return name == n.Name
}

func (c *Cluster) roleRun(name, url string, extra []string) []string {
	if len(extra) == 0 {
		extra = []string{"--restart"}
	}
	args := []string{"role", "run", c.Role, "--store", url, "--name", name, "--log-level", "debug",
		"--interval", c.Timing.Interval.String(), "--timeout", c.Timing.Timeout.String(), "--stop-grace", c.StopGrace.String()}
	args = append(args, extra...)
	return slices.Concat(args, []string{"--", c.Programs.Worker, "-ledger", c.ledger()}, c.Worker)
}

func (c *Cluster) ledger() string { return filepath.Join(c.dir, "ledger") }
