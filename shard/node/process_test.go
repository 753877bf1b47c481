//go:build linux

package node

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
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
	"github.com/understudy-ha/understudy/shard/engine/redis"
)

const patience = time.Minute

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wait(t *testing.T, done <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(patience):
		t.Fatal("never: " + what)
	}
}

// start starts a node that is killed at the end of the test.
func start(t *testing.T, cfg Config) *Process {
	t.Helper()
	p, err := New(cfg)
	must(t, err)
	t.Cleanup(func() {
		_ = p.Kill()
		<-p.Done()
		must(t, p.Close())
	})
	must(t, p.Start(t.Context()))
	return p
}

// alive reports whether the process with that number runs, and is no zombie.
func alive(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	text := string(b)
	return !strings.HasPrefix(text[strings.LastIndexByte(text, ')')+1:], " Z")
}

func logged(t *testing.T, dir, text string) {
	t.Helper()
	realserver.Eventually(t, patience, "the log says "+text, func() error {
		b, err := os.ReadFile(filepath.Join(dir, "node.log"))
		if err == nil && !strings.Contains(string(b), text) {
			err = fmt.Errorf("it says %q", b)
		}
		return err
	})
}

func TestStartAndKill(t *testing.T) {
	dir := t.TempDir()
	p := start(t, nodeConfig(dir, "wait"))
	first := p.PID()
	if !p.Running() || !alive(first) {
		t.Fatal("it does not run")
	}
	logged(t, dir, "the node is here "+strconv.Itoa(first))
	must(t, p.Start(t.Context())) // again is no harm
	if p.PID() != first {
		t.Errorf("process %d became %d", first, p.PID())
	}
	if sid, err := syscall.Getpgid(first); err != nil || sid != first {
		t.Errorf("process %d is in group %d, %v", first, sid, err)
	}
	// Stopped is no protection.
	must(t, syscall.Kill(first, syscall.SIGSTOP))
	done := p.Done()
	must(t, p.Kill())
	wait(t, done, "a stopped node ends when it is killed")
	if p.Running() || p.PID() != 0 || alive(first) {
		t.Error("it still runs")
	}
	if err := syscall.Kill(first, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("it was not reaped: %v", err)
	}
	must(t, p.Kill())
	must(t, p.Stop(t.Context()))
	must(t, p.Start(t.Context()))
	if p.PID() == first || !p.Running() {
		t.Errorf("after a new start: %d", p.PID())
	}
}

func TestStop(t *testing.T) {
	dir := t.TempDir()
	p := start(t, nodeConfig(dir, "term"))
	logged(t, dir, "ready")
	must(t, p.Stop(t.Context()))
	if p.Running() {
		t.Error("it still runs")
	}
	dir = t.TempDir()
	p = start(t, nodeConfig(dir, "stubborn"))
	logged(t, dir, "ready")
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := p.Stop(ctx); !errors.Is(err, context.DeadlineExceeded) || !p.Running() {
		t.Errorf("a node that does not want to end: %v", err)
	}
}

// startAgent starts this binary as an agent, of the kind that the variable names, and returns its first line.
func startAgent(t *testing.T, kind, dir string) (agent *exec.Cmd, line string) {
	t.Helper()
	self, err := os.Executable()
	must(t, err)
	agent = exec.Command(self)
	agent.Env = append(os.Environ(), kind+"="+dir)
	out, err := agent.StdoutPipe()
	must(t, err)
	in, err := agent.StdinPipe()
	must(t, err)
	t.Cleanup(func() { in.Close() })
	must(t, agent.Start())
	line, err = bufio.NewReader(out).ReadString('\n')
	must(t, err)
	return agent, line
}

// The agent is killed; the node lives, and the next agent adopts it, sees its end and can kill it.
func TestAgentDies(t *testing.T) {
	dir := t.TempDir()
	agent, line := startAgent(t, agentDir, dir)
	var pid int
	if _, err := fmt.Sscanf(line, "%d <nil>", &pid); err != nil {
		t.Fatalf("the agent said %q", line)
	}
	must(t, agent.Process.Kill())
	_ = agent.Wait()
	if !alive(pid) {
		t.Fatal("the node died with its agent")
	}
	p := start(t, nodeConfig(dir, "wait"))
	if p.PID() != pid {
		t.Fatalf("the new agent has process %d, not %d", p.PID(), pid)
	}
	// A second agent that is stopped in between changes nothing.
	other, err := New(nodeConfig(dir, "wait"))
	must(t, err)
	must(t, other.Start(t.Context()))
	must(t, other.Close())
	select {
	case <-other.Done():
		t.Error("closing looks like the node's end")
	default:
	}
	if !alive(pid) {
		t.Fatal("the node died with the watching")
	}
	done := p.Done()
	must(t, p.Kill())
	wait(t, done, "an adopted node's end is seen")
}

// The agent is killed after it has started something and before that is written down: no node is left of which the next
// agent does not know.
func TestAgentDiesBeforeTheNodeIsKnown(t *testing.T) {
	dir := t.TempDir()
	agent, line := startAgent(t, preparing, dir)
	first, err := strconv.Atoi(strings.TrimSpace(line))
	must(t, err)
	if !alive(first) {
		t.Fatal("nothing was started")
	}
	must(t, agent.Process.Kill())
	_ = agent.Wait()
	logged(t, dir, "the agent ended before")
	realserver.Eventually(t, patience, "what the agent had started ends", func() error {
		if alive(first) {
			return fmt.Errorf("process %d runs", first)
		}
		return nil
	})
	p := start(t, nodeConfig(dir, "wait"))
	logged(t, dir, "the node is here "+strconv.Itoa(p.PID()))
	if text, err := os.ReadFile(p.logFile()); err != nil || strings.Count(string(text), "the node is here") != 1 {
		t.Errorf("another node was there before: %s, %v", text, err)
	}
}

// What a mark says of another process, another boot or nothing at all is not adopted, and the process
// that has the number is left alone.
func TestMarks(t *testing.T) {
	stranger := exec.Command("sleep", "1000")
	must(t, stranger.Start())
	defer func() { _ = stranger.Process.Kill(); _ = stranger.Wait() }()
	right := newMark(stranger.Process.Pid, nil)
	if r, err := right.find(); err != nil {
		t.Errorf("the right mark: %v", err)
	} else {
		r.close()
	}
	for name, m := range map[string]mark{
		"other start": {PID: right.PID, Start: "1", Boot: right.Boot},
		"other boot":  {PID: right.PID, Start: right.Start, Boot: "8f0c"},
		"no boot":     {PID: right.PID, Start: right.Start},
		"init":        {PID: 1, Start: right.Start, Boot: right.Boot},
		"group":       {PID: -1, Start: right.Start, Boot: right.Boot},
		"nothing":     {},
	} {
		dir := t.TempDir()
		must(t, m.write(filepath.Join(dir, "node.pid")))
		p := start(t, nodeConfig(dir, "wait"))
		if p.PID() == right.PID || !p.Running() {
			t.Errorf("%s: process %d was adopted", name, p.PID())
		}
	}
	if !alive(right.PID) {
		t.Error("the stranger was killed")
	}
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "node.pid"), []byte("{"), 0o600))
	p, err := New(nodeConfig(dir, "wait"))
	must(t, err)
	if err := p.Start(t.Context()); err == nil || p.Running() {
		t.Errorf("a mark that cannot be read: %v", err)
	}
}

func TestStartFails(t *testing.T) {
	for _, cfg := range []Config{{}, {Argv: []string{"x"}}, {Argv: []string{""}, Dir: "/"}, {Argv: []string{"x"}, Dir: "/", LogSize: -1}} {
		if _, err := New(cfg); !errors.Is(err, lease.ErrInvalid) {
			t.Errorf("%+v: %v", cfg, err)
		}
	}
	for _, cfg := range []Config{
		{Argv: []string{"/no/such/program"}, Dir: t.TempDir()},
		{Argv: []string{"sleep", "1"}, Dir: "/no/such/dir"},
	} {
		p, err := New(cfg)
		must(t, err)
		wait(t, p.Done(), "nothing runs yet")
		if err := p.Start(t.Context()); err == nil || p.Running() || p.PID() != 0 {
			t.Errorf("%+v: %v", cfg, err)
		}
	}
	// One that ends at once was started, and has ended.
	p := start(t, nodeConfig(t.TempDir(), "fail"))
	wait(t, p.Done(), "it ends by itself")
}

func TestShorten(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "node.log")
	out, err := os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	must(t, err)
	defer out.Close()
	fmt.Fprint(out, strings.Repeat("a", 100), "the end")
	must(t, shorten(file, 1000))
	must(t, shorten(file, 7))
	fmt.Fprint(out, "more")
	for name, want := range map[string]string{file: "more", file + ".1": "the end"} {
		if b, err := os.ReadFile(name); err != nil || string(b) != want {
			t.Errorf("%s: %q, %v", name, b, err)
		}
	}
}

// A supervised node is fenced from its first moment on.
func TestStartsFenced(t *testing.T) {
	port := strconv.Itoa(realserver.FreePort(t))
	address := net.JoinHostPort("127.0.0.1", port)
	dir := t.TempDir()
	start(t, Config{
		Argv:   []string{realserver.Find(t, "redis-server"), "--port", port, "--bind", "127.0.0.1", "--save", "", "--dir", dir},
		Append: redis.StartArgs(), Dir: dir,
	})
	var answer string
	realserver.Eventually(t, patience, "the node answers", func() error {
		c, err := net.Dial("tcp", address)
		if err != nil {
			return err
		}
		defer c.Close()
		fmt.Fprint(c, "SET k v\r\n")
		answer, err = bufio.NewReader(c).ReadString('\n')
		return err
	})
	if !strings.HasPrefix(answer, "-NOREPLICAS") && !strings.HasPrefix(answer, "-READONLY") {
		t.Errorf("its first answer to a write is %q", answer)
	}
}

func TestAdopt(t *testing.T) {
	s := realserver.Redis(t, realserver.RedisOptions{})
	info, err := s.Do("INFO", "server")
	must(t, err)
	_, rest, _ := strings.Cut(info, "process_id:")
	pid, err := strconv.Atoi(strings.Fields(rest)[0])
	must(t, err)
	p, err := Adopt(pid, s.Addr)
	must(t, err)
	if !p.Running() || p.PID() != pid {
		t.Errorf("process %d runs: %t", p.PID(), p.Running())
	}
	if err := p.Start(t.Context()); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("Start: %v", err)
	}
	must(t, syscall.Kill(pid, syscall.SIGSTOP))
	must(t, p.Kill())
	wait(t, p.Done(), "the end of somebody else's process is seen")
	s.Start(t)

	// Processes that are not the node: gone, on another port, this one, init.
	other := realserver.Redis(t, realserver.RedisOptions{})
	for name, n := range map[string]int{"gone": pid, "this one": os.Getpid(), "init": 1, "group": -pid} {
		if p, err := Adopt(n, s.Addr); err == nil {
			t.Errorf("%s: process %d was adopted", name, p.PID())
		}
	}
	info, err = s.Do("INFO", "server")
	must(t, err)
	_, rest, _ = strings.Cut(info, "process_id:")
	pid, err = strconv.Atoi(strings.Fields(rest)[0])
	must(t, err)
	if _, err := Adopt(pid, other.Addr); err == nil {
		t.Error("a process that listens on another port was adopted")
	}
	// A node that does not tell its process is found by its port.
	if p, err = Adopt(0, s.Addr); err != nil || p.PID() != pid {
		t.Errorf("found by its port: %v, %v; want process %d", p, err, pid)
	}
	if p, err := Adopt(0, "127.0.0.1:1"); err == nil {
		t.Errorf("process %d was found where nothing listens", p.PID())
	}
}

// Debian's unit of Redis has PrivateUsers=, so that not even its own user may look into its process.
func TestAdoptInUserNamespace(t *testing.T) {
	realserver.NeedRoot(t, "running programs as another user")
	const nobody = 65534
	// The agent cannot read where go test has this binary.
	dir, err := os.MkdirTemp("/tmp", "understudy-adopt-")
	must(t, err)
	defer os.RemoveAll(dir)
	must(t, os.Chmod(dir, 0o755))
	self, err := os.ReadFile("/proc/self/exe")
	must(t, err)
	agent := filepath.Join(dir, "agent")
	must(t, os.WriteFile(agent, self, 0o755))

	redis := realserver.Find(t, "redis-server")
	node := func(port string) *exec.Cmd {
		c := exec.CommandContext(t.Context(), redis, "--port", port, "--bind", "127.0.0.1", "--save", "", "--dir", "/tmp")
		c.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags:  syscall.CLONE_NEWUSER,
			Credential:  &syscall.Credential{Uid: nobody, Gid: nobody},
			UidMappings: []syscall.SysProcIDMap{{ContainerID: nobody, HostID: nobody, Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{ContainerID: nobody, HostID: nobody, Size: 1}},
		}
		must(t, c.Start())
		realserver.Eventually(t, patience, "the node answers", func() error {
			conn, err := net.Dial("tcp", "127.0.0.1:"+port)
			if err == nil {
				_ = conn.Close()
			}
			return err
		})
		return c
	}
	adopt := func(pid int, port string) string {
		c := exec.CommandContext(t.Context(), agent)
		c.Env = append(os.Environ(), fmt.Sprintf("%s=%d 127.0.0.1:%s", adoptee, pid, port))
		c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
		out, err := c.CombinedOutput()
		must(t, err)
		return string(out)
	}
	mine, other := strconv.Itoa(realserver.FreePort(t)), strconv.Itoa(realserver.FreePort(t))
	a, b := node(mine), node(other)
	if got := adopt(b.Process.Pid, mine); !strings.Contains(got, "cannot be looked into") {
		t.Errorf("the node of another port: %s", got)
	}
	must(t, a.Process.Signal(syscall.SIGSTOP))
	if got := adopt(a.Process.Pid, mine); got != "killed" {
		t.Errorf("the node itself: %s", got)
	}
	_ = a.Wait()
	must(t, b.Process.Kill())
	_ = b.Wait()
}
