//go:build linux

package fault

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/internal/testkit/realserver"
)

// redisServer is a Redis server that keeps every write on disk before it
// answers, and whose wall clock can be stepped.
type redisServer struct {
	addr string
	dir  string
	argv []string
	env  []string
	proc *realserver.Process
}

func newRedisServer(tb testing.TB) *redisServer {
	tb.Helper()
	port := strconv.Itoa(realserver.FreePort(tb))
	s := &redisServer{addr: net.JoinHostPort("127.0.0.1", port), dir: tb.TempDir()}
	s.argv = []string{realserver.Find(tb, "redis-server"), "--bind", "127.0.0.1", "--port", port, "--dir", s.dir,
		"--save", "", "--appendonly", "yes", "--appendfsync", "always"}
	// The server's own allocator asks for the time before libfaketime is ready to
	// tell it; that of the C library, preloaded behind it, does not.
	lib := realserver.Find(tb, "libfaketime.so.1", "/usr/lib/*/faketime/libfaketime.so.1", "/usr/lib*/faketime/libfaketime.so.1")
	s.env = append(os.Environ(), "LD_PRELOAD="+lib+":libc.so.6", "FAKETIME_TIMESTAMP_FILE="+s.clock(),
		"FAKETIME_NO_CACHE=1", "FAKETIME_DONT_FAKE_MONOTONIC=1", "DONT_FAKE_MONOTONIC=1")
	s.Step(tb, 0)
	s.Start(tb)
	return s
}

func (s *redisServer) clock() string { return filepath.Join(s.dir, "clock") }

func (s *redisServer) Start(tb testing.TB) {
	tb.Helper()
	cmd := exec.Command(s.argv[0], s.argv[1:]...)
	cmd.Env = s.env
	s.proc = realserver.Start(tb, cmd)
	realserver.Eventually(tb, time.Minute, "redis-server answers", func() error {
		if s.proc.Exited() {
			tb.Fatalf("redis-server has ended:\n%s", s.proc.Output())
		}
		return s.ping()
	})
}

func (s *redisServer) ping() error {
	conn, err := net.DialTimeout("tcp", s.addr, time.Second)
	if err != nil {
		return err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
	answer := make([]byte, 5)
	if _, err := conn.Write([]byte("PING\r\n")); err != nil {
		return err
	}
	if _, err := conn.Read(answer); err != nil || string(answer) != "+PONG" {
		return fmt.Errorf("answered %q: %w", answer, err)
	}
	return nil
}

func (s *redisServer) Stop()   { s.proc.Stop(syscall.SIGTERM) }
func (s *redisServer) Kill()   { s.proc.Kill() }
func (s *redisServer) Pause()  { s.proc.Signal(syscall.SIGSTOP) }
func (s *redisServer) Resume() { s.proc.Signal(syscall.SIGCONT) }

func (s *redisServer) Step(tb testing.TB, d time.Duration) {
	tb.Helper()
	// Renamed into place, so that the server never reads half a line.
	next := s.clock() + ".next"
	err := os.WriteFile(next, fmt.Appendf(nil, "%+fs\n", d.Seconds()), 0o600)
	if err == nil {
		err = os.Rename(next, s.clock())
	}
	if err != nil {
		tb.Fatal(err)
	}
}
