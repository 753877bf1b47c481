// Package realserver starts the real servers that tests need (PostgreSQL, Redis,
// PgBouncer), each on a loopback port and in a directory of its own, and stops
// what it started, by the process id it was given.
//
// A server that is not installed skips the test by name on a laptop, and fails
// it when UNDERSTUDY_REQUIRE_BACKENDS=1, which `make test` and CI set; what only root may do fails it in `make prove` alone. With -short,
// which `make unit` sets, each test that needs another program is skipped.
package realserver

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/internal/testkit/syncbuffer"
)

// RequireEnv makes a missing server a failure instead of a skipped test.
const RequireEnv = "UNDERSTUDY_REQUIRE_BACKENDS"

// proveEnv is set by `make prove`, whose table must not lack what only root may do.
const proveEnv = "UNDERSTUDY_PROVE"

// SkipIfShort skips, with -short, a test that needs another program.
func SkipIfShort(tb testing.TB, program string) {
	tb.Helper()
	if testing.Short() {
		tb.Skipf("needs %s, which -short leaves out", program)
	}
}

// NeedRoot skips a test that does what only root may, or fails it in `make prove`.
func NeedRoot(tb testing.TB, what string) {
	tb.Helper()
	needRoot(tb, what, os.Getuid())
}

func needRoot(tb testing.TB, what string, user int) {
	tb.Helper()
	if user == 0 {
		return
	}
	if os.Getenv(proveEnv) == "1" {
		tb.Fatalf("%s needs root and %s=1: run it as root", what, proveEnv)
	}
	tb.Skipf("%s needs root", what)
}

// Find returns the path of a program: from PATH, or the newest match of the
// patterns. Those of redis-server and postgres can be others: see RedisEnv and PostgresEnv.
func Find(tb testing.TB, program string, patterns ...string) string {
	tb.Helper()
	SkipIfShort(tb, program)
	if other := os.Getenv(RedisEnv); other != "" && program == "redis-server" {
		return other
	}
	if other := os.Getenv(PostgresEnv); other != "" && program == "postgres" {
		return filepath.Join(other, program)
	}
	for _, p := range patterns {
		if found, _ := filepath.Glob(p); len(found) > 0 {
			return found[len(found)-1]
		}
	}
	path, err := exec.LookPath(program)
	if err == nil {
		return path
	}
	if os.Getenv(RequireEnv) == "1" {
		tb.Fatalf("%s is not installed and %s=1: run `make test` as root, or install it", program, RequireEnv)
	}
	tb.Skipf("%s is not installed", program)
	return ""
}

// FreePort returns a loopback port that is free, and nobody else's who asks here until the
// test ends. It is below those that the kernel gives to outgoing connections, so that a server
// which is restarted finds it free again, below those that a demonstration takes, and above
// all that a browser refuses to open (10080, amanda, is the last of them).
func FreePort(tb testing.TB) int {
	tb.Helper()
	const first, last = 10_100, 24_000
	for range 1000 {
		port := first + rand.IntN(last-first)
		release := reserve(tb, strconv.Itoa(port))
		if release == nil {
			continue
		}
		if l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port))); err == nil {
			_ = l.Close()
			tb.Cleanup(release)
			return port
		}
		release()
	}
	tb.Fatal("no free port")
	return 0
}

// FreeNet returns the beginning of 254 loopback addresses, such as "127.5.7.", of which no
// other test has any that asks here, until this one ends.
func FreeNet(tb testing.TB) string {
	tb.Helper()
	for {
		prefix := fmt.Sprintf("127.%d.%d.", 1+rand.IntN(254), rand.IntN(255))
		if release := reserve(tb, prefix); release != nil {
			tb.Cleanup(release)
			return prefix
		}
	}
}

// reserve keeps a name from all who ask for it, in any process of this user, until it is
// released, which the end of the process does too. It returns nil if someone has it.
func reserve(tb testing.TB, name string) (release func()) {
	tb.Helper()
	dir := filepath.Join(os.TempDir(), "understudy-ports-"+strconv.Itoa(os.Getuid()))
	if err := os.MkdirAll(dir, 0o777); err != nil {
		tb.Fatal(err)
	}
	lock, err := os.OpenFile(filepath.Join(dir, name), os.O_CREATE|os.O_RDWR, 0o666)
	if err != nil {
		tb.Fatal(err)
	}
	release = func() { _ = lock.Close() }
	if syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil {
		release()
		return nil
	}
	return release
}

// FreeAddress returns 127.0.0.1 with a FreePort.
func FreeAddress(tb testing.TB) string {
	tb.Helper()
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(FreePort(tb)))
}

// Process is a server that was started. Its methods act on the process that was
// started, never on a name.
type Process struct {
	cmd  *exec.Cmd
	out  *syncbuffer.Buffer
	done chan struct{}
}

// Start runs a server until the test ends. It dies with the test process.
func Start(tb testing.TB, cmd *exec.Cmd) *Process {
	tb.Helper()
	p := &Process{cmd: cmd, out: &syncbuffer.Buffer{}, done: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = p.out, p.out
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	dieWithTest(cmd.SysProcAttr)
	started := make(chan error, 1)
	go func() {
		// The death signal follows the thread that started the process.
		runtime.LockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait()
		}
		close(p.done)
	}()
	if err := <-started; err != nil {
		tb.Fatalf("starting %s: %v", cmd.Path, err)
	}
	tb.Cleanup(func() { p.Kill(); dumpIfFailed(tb, cmd.Path, p.out) })
	return p
}

// Signal sends a signal to the process, for instance SIGSTOP.
func (p *Process) Signal(s syscall.Signal) { _ = p.cmd.Process.Signal(s) }

// Pid of the process.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Kill ends the process at once and waits for its end.
func (p *Process) Kill() {
	p.Signal(syscall.SIGKILL)
	<-p.done
}

// Stop ends the process with a signal of its choice and waits up to a minute.
func (p *Process) Stop(s syscall.Signal) {
	p.Signal(s)
	select {
	case <-p.done:
	case <-time.After(time.Minute):
		p.Kill()
	}
}

// Exited reports whether the process has ended.
func (p *Process) Exited() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// Output is what the process has printed.
func (p *Process) Output() string { return p.out.String() }

// Eventually calls ready until it returns nil, or fails the test after the given time with the
// last error. It waits a few milliseconds between two calls, and a tenth of what it has
// waited already, so that many who wait long leave the machine to what they wait for.
func Eventually(tb testing.TB, within time.Duration, what string, ready func() error) {
	tb.Helper()
	for began := time.Now(); ; {
		err := ready()
		if err == nil {
			return
		}
		waited := time.Since(began)
		if waited > within {
			tb.Fatalf("%s: not within %v: %v", what, within, err)
		}
		<-time.After(min(max(waited/10, 5*time.Millisecond), 100*time.Millisecond)) // each look costs what others wait for
	}
}

func dumpIfFailed(tb testing.TB, name string, out *syncbuffer.Buffer) {
	if tb.Failed() {
		tb.Logf("%s printed:\n%s", name, out.String())
	}
}
