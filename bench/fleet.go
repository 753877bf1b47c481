package main

import (
	"bufio"
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
)

// said is one line of a worker.
type said struct {
	what string
	at   time.Duration
	more string
}

// member is a worker as seen from here.
type member struct {
	b     *bed
	cmd   *exec.Cmd
	in    io.WriteCloser
	lines chan said
	kept  []said        // read from lines, but not asked for yet
	ended chan struct{} // closed when the process has ended and all it said was read

	mu      sync.Mutex
	sent    time.Duration // when the last renewal was sent …
	renewed time.Duration // … and the last one that was accepted
}

// startWorker starts a worker and waits until it is ready. It ends with the bed.
func startWorker(b *bed, o workerOptions) *member {
	m := launchWorker(b, o)
	m.await(saidReady, 2*time.Minute)
	return m
}

func launchWorker(b *bed, o workerOptions) *member { return launch(b, o.args()) }

// launch starts this program once more, as what the arguments say.
func launch(b *bed, args []string) *member {
	self, err := os.Executable()
	if err != nil {
		b.Fatalf("bench: finding this program: %v", err)
	}
	m := &member{b: b, cmd: exec.Command(self, args...), lines: make(chan said, 10_000), ended: make(chan struct{})}
	m.cmd.Stderr = os.Stderr
	m.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := m.cmd.StdoutPipe()
	if err == nil {
		m.in, err = m.cmd.StdinPipe()
	}
	if err != nil {
		b.Fatalf("bench: starting a worker: %v", err)
	}
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
	if err := <-started; err != nil {
		b.Fatalf("bench: starting a worker: %v", err)
	}
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

// tell gives the worker a command.
func (m *member) tell(format string, args ...any) {
	if _, err := fmt.Fprintf(m.in, format+"\n", args...); err != nil {
		m.b.Fatalf("bench: a worker does not listen: %v", err)
	}
}

// await returns the next line of a kind, and drops those before it.
func (m *member) await(what string, within time.Duration) said {
	s := m.keepUntil(what, within)
	m.kept = nil
	return s
}

// keepUntil is await that keeps what comes before, for drain.
func (m *member) keepUntil(what string, within time.Duration) said {
	timer := time.NewTimer(within)
	defer timer.Stop()
	for {
		select {
		case s, ok := <-m.lines:
			switch {
			case !ok:
				m.b.Fatalf("bench: a worker ended while it should say %q", what)
			case s.what == saidFailed:
				m.b.Fatalf("bench: a worker failed: %s", s.more)
			case s.what == what:
				return s
			}
			m.kept = append(m.kept, s)
		case <-timer.C:
			m.b.Fatalf("bench: a worker did not say %q within %v", what, within)
		}
	}
}

// drain returns all that was said so far.
func (m *member) drain() (all []said) {
	all, m.kept = m.kept, nil
	for {
		select {
		case s, ok := <-m.lines:
			if !ok {
				m.b.Fatalf("bench: a worker ended early")
			}
			if s.what == saidFailed {
				m.b.Fatalf("bench: a worker failed: %s", s.more)
			}
			all = append(all, s)
		default:
			return all
		}
	}
}

// kill ends the worker with SIGKILL and tells when it sent the last renewal that
// was accepted, and whether another was under way: then nobody can know which
// one the store counts from.
func (m *member) kill() (renewed time.Duration, doubtful bool) {
	_ = m.cmd.Process.Kill()
	<-m.ended
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.renewed, m.sent != m.renewed
}

// end lets the worker end by itself, for a while.
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
