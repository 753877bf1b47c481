package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/understudy-ha/understudy/lease"
)

// What a process says, a line each: WHAT, the boot-time clock in nanoseconds, and more words.
const (
	saidReady    = "ready"    // it can be told what to do; a server's address
	saidStarted  = "started"  // the role was won and the work starts
	saidStopping = "stopping" // the work is about to stop
	saidStopped  = "stopped"  // all it started has ended
	saidSent     = "sent"     // a renewal is about to be sent
	saidRenewed  = "renewed"  // that renewal was accepted: the moment at which it was sent
	saidLost     = "lost"     // the role was lost while it was held, and why
	saidResult   = "result"   // what was asked for, as JSON
	saidFailed   = "failed"   // and why
)

// processRoles are what this program does in a process of its own: the first argument names the
// role, the second has its options as JSON. Each ends when its standard input is closed.
func processRoles() map[string]func(*child, []byte) error {
	return map[string]func(*child, []byte) error{
		workerRole: withOptions(runWorker), etcdRole: withOptions(runEtcd),
		delivererRole: withOptions(runDeliverer), sinkRole: withOptions(runSink),
		loadRole: withOptions(runLoad), bareRole: withOptions(runBare), spinRole: withOptions(runSpin),
		senderRole: withOptions(runSender), agentsRole: withOptions(runAgents), sessionsRole: withOptions(runSessions),
	}
}

// withOptions reads a role's options.
func withOptions[O any](run func(*child, O) error) func(*child, []byte) error {
	return func(c *child, data []byte) error {
		var o O
		if err := json.Unmarshal(data, &o); err != nil {
			return err
		}
		return run(c, o)
	}
}

// child is such a process as seen from inside.
type child struct {
	clock lease.Clock
	out   sync.Mutex
}

// runRole is the whole life of a child; it returns the exit code.
func runRole(run func(*child, []byte) error, options string) int {
	c := &child{clock: lease.BootClock()}
	if err := run(c, []byte(options)); err != nil {
		c.say(saidFailed, err.Error())
		return 1
	}
	return 0
}

func (c *child) say(what string, more ...string) { c.sayAt(c.clock.Now(), what, more...) }

// sayAt writes one line in one write, so that a kill leaves no half of one.
func (c *child) sayAt(at time.Duration, what string, more ...string) {
	line := what + " " + strconv.FormatInt(int64(at), 10)
	for _, m := range more {
		line += " " + strings.ReplaceAll(m, "\n", " ")
	}
	c.out.Lock()
	defer c.out.Unlock()
	_, _ = os.Stdout.WriteString(line + "\n") // nobody is left to tell
}

// each calls f for every line that the child is told, as words, until there are no more.
func (c *child) each(f func(words []string)) {
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		f(strings.Fields(lines.Text()))
	}
}

// answer says the result of every command.
func (c *child) answer(obey func(words []string) (lots, error)) {
	c.say(saidReady)
	c.each(func(words []string) {
		out, err := obey(words)
		if err != nil {
			out.Failed = err.Error()
		}
		data, _ := json.Marshal(out) // of plain fields, cannot fail
		c.say(saidResult, string(data))
	})
}

// untilClosed returns when the parent has closed the standard input, or has ended.
func (c *child) untilClosed() { _, _ = io.Copy(io.Discard, os.Stdin) }

// said is one line of a child.
type said struct {
	what string
	at   time.Duration
	more string
}

// member is a child as seen from here.
type member struct {
	b     *bed
	cmd   *exec.Cmd
	in    io.WriteCloser
	lines chan said
	ended chan struct{} // closed when the process has ended and all it said was read

	mu      sync.Mutex
	sent    time.Duration // when the last renewal was sent …
	renewed time.Duration // … and the last one that was accepted
}

// start runs this program once more in a role of its own, and waits until it is ready. It ends with the bed.
func start(b *bed, role string, options any) *member {
	m := launch(b, role, options)
	m.await(saidReady, 2*time.Minute)
	return m
}

// launch is start that does not wait.
func launch(b *bed, role string, options any) *member {
	self, err := os.Executable()
	b.check(err, "finding this program")
	data, err := json.Marshal(options)
	b.check(err, "telling a %s what to do", role)
	m := &member{b: b, cmd: exec.Command(self, role, string(data)), lines: make(chan said, 10_000), ended: make(chan struct{})}
	m.cmd.Stderr = os.Stderr
	m.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := m.cmd.StdoutPipe()
	if err == nil {
		m.in, err = m.cmd.StdinPipe()
	}
	b.check(err, "starting a %s", role)
	started := make(chan error, 1)
	go func() {
		// The death signal follows the thread that started the process.
		runtime.LockOSThread()
		err := m.cmd.Start()
		started <- err
		if err == nil {
			m.listen(out)
			_ = m.cmd.Wait()
		}
		close(m.ended)
	}()
	b.check(<-started, "starting a %s", role)
	b.Cleanup(m.end)
	return m
}

func (m *member) listen(out io.Reader) {
	defer close(m.lines)
	for lines := bufio.NewScanner(out); lines.Scan(); {
		what, rest, _ := strings.Cut(lines.Text(), " ")
		stamp, more, _ := strings.Cut(rest, " ")
		n, err := strconv.ParseInt(stamp, 10, 64)
		if err != nil {
			continue // the half of a line that a kill left
		}
		at := time.Duration(n)
		switch what {
		case saidSent:
			m.mu.Lock()
			m.sent = at
			m.mu.Unlock()
		case saidRenewed:
			m.mu.Lock()
			m.renewed = at
			m.mu.Unlock()
		default:
			m.lines <- said{what, at, more}
		}
	}
}

func (m *member) pid() int { return m.cmd.Process.Pid }

// sendCommand gives the process a command.
func (m *member) sendCommand(format string, args ...any) {
	if _, err := fmt.Fprintf(m.in, format+"\n", args...); err != nil {
		m.b.Fatalf("bench: a process does not listen: %v", err)
	}
}

// await returns the next line of a kind, and drops those before it.
func (m *member) await(what string, within time.Duration) said {
	timer := time.NewTimer(within)
	defer timer.Stop()
	for {
		select {
		case s, ok := <-m.lines:
			switch {
			case !ok:
				m.b.Fatalf("bench: a process ended while it should say %q", what)
			case s.what == saidFailed:
				m.b.Fatalf("bench: a process failed: %s", s.more)
			case s.what == what:
				return s
			}
		case <-timer.C:
			m.b.Fatalf("bench: a process did not say %q within %v", what, within)
		}
	}
}

// drain returns all that was said so far.
func (m *member) drain() (all []said) {
	for {
		select {
		case s, ok := <-m.lines:
			if !ok {
				m.b.Fatalf("bench: a process ended early")
			}
			if s.what == saidFailed {
				m.b.Fatalf("bench: a process failed: %s", s.more)
			}
			all = append(all, s)
		default:
			return all
		}
	}
}

// kill ends the process with SIGKILL and tells when it sent the last renewal that
// was accepted, and whether another was under way: then nobody can know which
// one the store counts from.
func (m *member) kill() (renewed time.Duration, doubtful bool) {
	_ = m.cmd.Process.Kill()
	<-m.ended
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.renewed, m.sent != m.renewed
}

// end lets the process end by itself, for a while.
func (m *member) end() {
	_ = m.in.Close()
	select {
	case <-m.ended:
		return
	case <-time.After(5 * time.Second):
	}
	_ = m.cmd.Process.Kill()
	<-m.ended
}
