//go:build linux

package fault

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/internal/testkit/realserver"
	"github.com/understudy-ha/understudy/lease"
)

// Soak is three servers (understudy serve) on one store, each with every part in its one process: a role, a job, a queue, a monitor, a
// cache, and an agent with a database node of its own.
type Soak struct {
	Programs Programs
	Database Database
	Timing   lease.Timing
	Sink     *AlarmSink
	Origin   *Origin
	Messages *SoakReceiver
	Servers  []*SoakServer

	tb  testing.TB
	dir string
}

// SoakServer is one of the servers.
type SoakServer struct {
	Name string
	// Link is its way to the store.
	Link *Proxy

	soak                    *Soak
	listen, peer, api, node string
	file, log               string
	cmd                     *exec.Cmd
	done                    chan struct{}
	Lives                   int
}

// soakPeriod is that of the job; soakCheck the interval of the check hb, of which soakMissed may be missing.
const (
	soakPeriod = 10 * time.Second
	soakCheck  = time.Second
	soakMissed = 3
)

// NewSoak starts three servers, a receiver of each kind, and a source of values. They end with the test.
func NewSoak(tb testing.TB, p Programs, db Database, seed uint64) *Soak {
	tb.Helper()
	s := &Soak{Programs: p, Database: db, Timing: lease.Timing{Interval: 500 * time.Millisecond, Timeout: 4 * time.Second},
		Sink: NewAlarmSink(tb, seed), Origin: NewOrigin(tb, "127.0.0.1:0"), Messages: newSoakReceiver(tb), tb: tb, dir: tb.TempDir()}
	s.Origin.Takes(200 * time.Millisecond)
	address := func() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(realserver.FreePort(tb))) }
	for i, name := range []string{"a", "b", "c"} {
		one := &SoakServer{Name: name, Link: NewProxy(tb, db.Addr, seed+uint64(i)), soak: s, listen: address(), peer: address(), api: address(), node: address(),
			file: filepath.Join(s.dir, name+".yaml"), log: filepath.Join(s.dir, name+".log")}
		s.Servers = append(s.Servers, one)
	}
	tb.Cleanup(s.kill)
	for _, one := range s.Servers {
		if err := os.MkdirAll(one.folder("node"), 0o700); err != nil {
			tb.Fatal(err)
		}
		text, err := json.MarshalIndent(one.config(), "", "  ") // JSON is YAML, too
		if err == nil {
			err = os.WriteFile(one.file, text, 0o600)
		}
		if err != nil {
			tb.Fatal(err)
		}
		one.Start()
	}
	return s
}

func (s *Soak) mark() string { return "UNDERSTUDY_FAULT=" + s.dir }

func (s *Soak) ledgerOf(what string) string { return filepath.Join(s.dir, what+".ledger") }

func (o *SoakServer) folder(of string) string { return filepath.Join(o.soak.dir, o.Name+"-"+of) }

// config is the server's file. Retention is short: what is kept has to be level, too.
func (o *SoakServer) config() any {
	type m = map[string]any
	type l = []any
	s := o.soak
	interval, timeout := s.Timing.Interval.String(), s.Timing.Timeout.String()
	var peers l
	for _, other := range s.Servers {
		if other != o {
			peers = append(peers, m{"url": "tcp://" + other.peer, "api": "tcp://" + other.api})
		}
	}
	_, port, _ := net.SplitHostPort(o.node)
	return m{
		"name": o.Name, "store": s.Database.through(s.tb, o.Link.Addr), "listen": o.listen, "interval": interval, "timeout": timeout, "history_keep": 5000,
		"roles": l{m{"role": "r", "stop_grace": "300ms", "command": l{s.Programs.Worker, "-ledger", s.ledgerOf("role"), "-every", "200ms"}}},
		"jobs": l{m{"job": "j", "schedule": "every " + soakPeriod.String(), "stop_grace": "300ms", "missed": "all",
			"command": l{s.Programs.Worker, "-ledger", s.ledgerOf("job"), "-every", "100ms", "-for", "500ms"}}},
		"queues": l{m{"queue": "q", "webhook": m{"url": s.Messages.URL, "deduplicates": true}, "first_window": "5s", "second_window": "20s", "keep": "5m",
			"on_failure": "retry"}},
		"cache": m{"url": "tcp://" + o.peer, "api": "tcp://" + o.api, "peers": peers, "origin": m{"url": s.Origin.Of(o.Name)}, "ttl": "10s", "data": o.folder("cache")},
		"monitor": m{"checks": l{m{"check": "hb", "interval": soakCheck.String(), "missed": soakMissed}}, "keep_alarms": "5m",
			"sinks": l{m{"sink": "ops", "webhook": m{"url": s.Sink.URL, "deduplicates": true}, "keep": "5m"}}},
		"shards": l{m{"shard": "s", "node": o.node, "data": o.folder("node"), "interval": interval, "timeout": timeout,
			"command": l{realserver.Find(s.tb, "redis-server"), "--bind", "127.0.0.1", "--port", port, "--dir", o.folder("node"), "--save", "",
				"--appendonly", "yes", "--repl-diskless-sync-delay", "0"}}},
	}
}

// Start starts the server, unless it runs.
func (o *SoakServer) Start() {
	if !o.Exited() {
		return
	}
	o.soak.tb.Helper()
	o.cmd = exec.Command(o.soak.Programs.Understudy, "serve", "-c", o.file)
	o.cmd.Dir, o.cmd.Env = o.soak.dir, append(os.Environ(), o.soak.mark())
	o.done = make(chan struct{})
	o.Lives++
	start(o.soak.tb, o.cmd, o.log, o.done)
}

// Exited reports whether it has ended, or was never started.
func (o *SoakServer) Exited() bool {
	if o.cmd == nil {
		return true
	}
	select {
	case <-o.done:
		return true
	default:
		return false
	}
}

// Signal sends a signal to its process alone. It is not stopped in the middle of a write to a file.
func (o *SoakServer) Signal(sig syscall.Signal) {
	signal := func(sig syscall.Signal) { _ = o.cmd.Process.Signal(sig) }
	if sig == syscall.SIGSTOP {
		stopOutsideWrites(o.cmd.Process.Pid, signal)
		return
	}
	signal(sig)
}

// KillNode ends the process of its database node, if that runs.
func (o *SoakServer) KillNode() bool {
	pid := firstIn(o.folder("node"))
	return pid != 0 && syscall.Kill(pid, syscall.SIGKILL) == nil
}

// Ask sends it a request, and returns the status and the answer; 0 and what went wrong if there was none in time.
func (o *SoakServer) Ask(within time.Duration, method, path, body string) (status int, answer string) {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	return ask(ctx, http.DefaultClient, method, "http://"+o.listen+path, "text/plain", body)
}

// Uses is what a process takes of the machine.
type Uses struct {
	At                 time.Time
	KiB                int // resident
	Descriptors, Tasks int
}

func (u Uses) String() string {
	return fmt.Sprintf("%.1f MiB, %d descriptors, %d threads", float64(u.KiB)/1024, u.Descriptors, u.Tasks)
}

// Uses is what the server takes, without its children.
func (o *SoakServer) Uses() (u Uses) {
	dir := filepath.Join("/proc", strconv.Itoa(o.cmd.Process.Pid))
	status, _ := os.ReadFile(filepath.Join(dir, "status"))
	for line := range strings.Lines(string(status)) {
		_, _ = fmt.Sscanf(line, "VmRSS: %d kB", &u.KiB)
		_, _ = fmt.Sscanf(line, "Threads: %d", &u.Tasks)
	}
	descriptors, _ := os.ReadDir(filepath.Join(dir, "fd"))
	u.At, u.Descriptors = time.Now(), len(descriptors)
	return u
}

// Stop stops all servers in order, and sees to it that nothing of them is left.
func (s *Soak) Stop() {
	s.tb.Helper()
	for _, one := range s.Servers {
		one.Signal(syscall.SIGTERM)
	}
	for _, one := range s.Servers {
		select {
		case <-one.done:
		case <-time.After(2 * patience):
			s.tb.Errorf("%s did not stop within %v", one.Name, 2*patience)
		}
	}
	left := s.processes()
	for end := since() + patience; len(left) > 0 && since() < end; left = s.processes() {
		<-time.After(100 * time.Millisecond)
	}
	for _, p := range left {
		s.tb.Errorf("this should have ended: %v", p)
	}
}

// processes are all that the servers have started, and themselves.
func (s *Soak) processes() []Proc {
	all := marked(s.mark())
	for _, one := range s.Servers {
		all = append(all, processesIn(one.folder("node"))...)
	}
	return all
}

func (s *Soak) kill() {
	for _, one := range s.Servers {
		if one.cmd != nil {
			_ = one.cmd.Process.Kill()
			<-one.done
		}
	}
	for _, p := range s.processes() {
		_ = syscall.Kill(p.PID, syscall.SIGKILL)
	}
	if !s.tb.Failed() {
		return
	}
	for _, one := range s.Servers {
		text, _ := os.ReadFile(one.log)
		s.tb.Logf("%s said:\n%s", one.Name, tail(string(text), 20_000))
	}
}
