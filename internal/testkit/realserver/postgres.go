package realserver

import (
	"context"
	"fmt"
	"maps"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// PostgresOptions describes a PostgreSQL server. The zero value is a fast one
// that may lose everything when the machine stops.
type PostgresOptions struct {
	// Fsync makes every commit durable before it is answered.
	Fsync bool
	// Faketime runs it under libfaketime, so that Step can move its clock.
	Faketime bool
	// Settings are added to its command line, as name and value.
	Settings map[string]string
}

// PostgresServer is a PostgreSQL server that was started, with a database
// cluster, a loopback port and a Unix socket of its own.
type PostgresServer struct {
	Port   int
	Socket string // the directory of the Unix socket

	dir       string
	bin       string
	argv      []string
	env       []string
	proc      *Process
	databases atomic.Int64
}

// Postgres makes a database cluster and serves it until the test ends. The only
// user is the superuser "postgres", who needs no password.
func Postgres(tb testing.TB, o PostgresOptions) *PostgresServer {
	tb.Helper()
	bin := filepath.Dir(Find(tb, "postgres", "/usr/lib/postgresql/*/bin/postgres"))
	s := &PostgresServer{dir: serverDir(tb, "postgres"), bin: bin, Port: FreePort(tb)}
	s.Socket = s.dir
	s.newCluster(tb)
	settings := map[string]string{
		"listen_addresses": "127.0.0.1", "port": strconv.Itoa(s.Port), "unix_socket_directories": s.dir,
		"max_connections": "300", "shared_buffers": "32MB", "fsync": "off", "full_page_writes": "off", "log_checkpoints": "off",
		"dynamic_shared_memory_type": "mmap", // in its directory, so that nothing is left of one that is killed
	}
	if o.Fsync {
		settings["fsync"], settings["full_page_writes"] = "on", "on"
	}
	maps.Copy(settings, o.Settings)
	s.argv = []string{filepath.Join(bin, "postgres"), "-D", s.data()}
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		s.argv = append(s.argv, "-c", name+"="+settings[name])
	}
	s.env = os.Environ()
	if o.Faketime {
		s.env = append(s.env, "LD_PRELOAD="+libfaketime(tb), "FAKETIME_TIMESTAMP_FILE="+s.clockFile(),
			"FAKETIME_NO_CACHE=1", "FAKETIME_DONT_FAKE_MONOTONIC=1", "DONT_FAKE_MONOTONIC=1")
		s.Step(tb, 0)
	}
	s.Start(tb)
	return s
}

func (s *PostgresServer) data() string      { return filepath.Join(s.dir, "data") }
func (s *PostgresServer) clockFile() string { return filepath.Join(s.dir, "clock") }

// URL of the database that every cluster has, for the superuser.
func (s *PostgresServer) URL() string { return s.urlOf("postgres") }

func (s *PostgresServer) urlOf(database string) string {
	return fmt.Sprintf("postgres://postgres@127.0.0.1:%d/%s?sslmode=disable", s.Port, database)
}

// NewDatabase makes an empty database, dropped when the test ends, and returns
// its URL.
func (s *PostgresServer) NewDatabase(tb testing.TB) string {
	tb.Helper()
	name := fmt.Sprintf("db%d", s.databases.Add(1))
	if err := s.Exec("CREATE DATABASE " + name); err != nil {
		tb.Fatalf("creating a database: %v", err)
	}
	tb.Cleanup(func() {
		if !s.proc.Exited() {
			_ = s.Exec("DROP DATABASE " + name + " WITH (FORCE)")
		}
	})
	return s.urlOf(name)
}

// Exec runs one statement as the superuser in the database that every cluster has.
func (s *PostgresServer) Exec(sql string) error { return s.exec(sql, time.Minute) }

func (s *PostgresServer) exec(sql string, within time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	conn, err := pgx.Connect(ctx, s.URL())
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, sql)
	return err
}

// Start starts the server again after it was stopped.
func (s *PostgresServer) Start(tb testing.TB) {
	tb.Helper()
	s.launch(tb)
	Eventually(tb, 2*time.Minute, "PostgreSQL answers", func() error {
		if s.proc.Exited() {
			tb.Fatalf("PostgreSQL has ended:\n%s", s.proc.Output())
		}
		return s.exec("SELECT 1", time.Minute)
	})
}

func (s *PostgresServer) launch(tb testing.TB) {
	cmd := exec.Command(s.argv[0], s.argv[1:]...)
	cmd.Env, cmd.Dir, cmd.SysProcAttr = s.env, s.dir, asServer(tb)
	s.proc = Start(tb, cmd)
}

// Stop ends the server and breaks its connections.
func (s *PostgresServer) Stop() { s.proc.Stop(syscall.SIGINT) }

// Kill ends the server and all its processes as a crash of the machine would,
// save that what was written to files is not lost.
func (s *PostgresServer) Kill() {
	s.proc.Signal(syscall.SIGSTOP) // it starts no more of them
	children := s.children()
	for _, pid := range children {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	s.proc.Kill()
	// The next server refuses to start while one of them has the shared memory.
	for end := time.Now().Add(time.Minute); slices.ContainsFunc(children, lives) && time.Now().Before(end); {
		<-time.After(time.Millisecond)
	}
}

// lives reports whether a process has not ended; one that nobody has waited for yet has.
func lives(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, _ := strings.Cut(string(stat), ") ")
	return err == nil && !strings.HasPrefix(rest, "Z") && !strings.HasPrefix(rest, "X")
}

// Restart stops and starts the server.
func (s *PostgresServer) Restart(tb testing.TB) {
	tb.Helper()
	s.Stop()
	s.Start(tb)
}

// BecomeStandby starts the server again as a standby, which accepts no writes until it is promoted: SELECT pg_promote().
func (s *PostgresServer) BecomeStandby(tb testing.TB) {
	tb.Helper()
	s.Stop()
	if err := os.WriteFile(filepath.Join(s.data(), "standby.signal"), nil, 0o644); err != nil {
		tb.Fatal(err)
	}
	if os.Geteuid() == 0 {
		uid, gid := serverUser(tb)
		if err := os.Chown(filepath.Join(s.data(), "standby.signal"), uid, gid); err != nil {
			tb.Fatal(err)
		}
	}
	s.Start(tb)
}

// Pause stops the server's processes where they are; Resume lets them continue.
func (s *PostgresServer) Pause()  { s.signalAll(syscall.SIGSTOP) }
func (s *PostgresServer) Resume() { s.signalAll(syscall.SIGCONT) }

func (s *PostgresServer) signalAll(sig syscall.Signal) {
	s.proc.Signal(sig)
	for _, pid := range s.children() {
		_ = syscall.Kill(pid, sig)
	}
}

// children are the processes that the server has started itself.
func (s *PostgresServer) children() (pids []int) {
	pid := s.proc.Pid()
	list, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	for field := range strings.FieldsSeq(string(list)) {
		if child, err := strconv.Atoi(field); err == nil {
			pids = append(pids, child)
		}
	}
	return pids
}

func libfaketime(tb testing.TB) string {
	tb.Helper()
	return Find(tb, "libfaketime", "/usr/lib/*/faketime/libfaketime.so.1")
}

// Step sets the server's wall clock to d from the host's. It needs Faketime.
func (s *PostgresServer) Step(tb testing.TB, d time.Duration) {
	tb.Helper()
	// Renamed into place, so that no process of the server reads half a line.
	next := s.clockFile() + ".next"
	if err := os.WriteFile(next, fmt.Appendf(nil, "%+fs\n", d.Seconds()), 0o644); err != nil {
		tb.Fatal(err)
	}
	if err := os.Rename(next, s.clockFile()); err != nil {
		tb.Fatal(err)
	}
}

// OnSocket is the URL of the same database by the server's Unix socket.
func (s *PostgresServer) OnSocket(rawURL string) string {
	u, err := url.Parse(rawURL)
	if err != nil {
		return rawURL
	}
	q := u.Query()
	q.Set("host", s.Socket)
	q.Set("port", strconv.Itoa(s.Port))
	u.Host, u.RawQuery = "", q.Encode()
	return u.String()
}

// first is the cluster that those of the other servers are copies of, if Main runs the tests.
var first struct {
	dir  string
	mu   sync.Mutex
	made bool
}

// Main runs the tests of a package with many PostgreSQL servers, for its TestMain. Each gets a
// copy of one cluster, which takes a fifth of the time of making it.
func Main(m *testing.M) int {
	dir, err := os.MkdirTemp("", "understudy-cluster")
	if err != nil {
		fmt.Fprintln(os.Stderr, "a directory for a database cluster:", err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	first.dir = filepath.Join(dir, "data")
	return m.Run()
}

// newCluster makes the server's data directory.
func (s *PostgresServer) newCluster(tb testing.TB) {
	tb.Helper()
	if first.dir == "" {
		s.initdb(tb)
		return
	}
	first.mu.Lock()
	defer first.mu.Unlock()
	if !first.made {
		s.initdb(tb)
		run(tb, exec.Command("cp", "-a", s.data(), first.dir))
		first.made = true
		return
	}
	run(tb, exec.Command("cp", "-a", first.dir, s.data()))
}

func (s *PostgresServer) initdb(tb testing.TB) {
	tb.Helper()
	cmd := exec.Command(filepath.Join(s.bin, "initdb"), "--pgdata="+s.data(), "--username=postgres", "--auth=trust",
		"--encoding=UTF8", "--locale=C.UTF-8", "--no-sync", "--no-instructions")
	cmd.Dir, cmd.SysProcAttr = s.dir, asServer(tb)
	run(tb, cmd)
}

func run(tb testing.TB, cmd *exec.Cmd) {
	tb.Helper()
	if out, err := cmd.CombinedOutput(); err != nil {
		tb.Fatalf("%s: %v\n%s", cmd.Path, err, out)
	}
}

// asServer gives a process the identity of a server: PostgreSQL and PgBouncer
// refuse to run as root, so that under root it is that of the user "postgres".
func asServer(tb testing.TB) *syscall.SysProcAttr {
	tb.Helper()
	if os.Geteuid() != 0 {
		return &syscall.SysProcAttr{}
	}
	uid, gid := serverUser(tb)
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
}

func serverUser(tb testing.TB) (uid, gid int) {
	tb.Helper()
	u, err := user.Lookup("postgres")
	if err != nil {
		tb.Fatalf("servers must not run as root, and there is no other user for them: %v", err)
	}
	uid, _ = strconv.Atoi(u.Uid)
	gid, _ = strconv.Atoi(u.Gid)
	return uid, gid
}

// serverDir makes a directory that the user of asServer owns and can reach,
// which those of testing are not, with a name short enough for a socket.
func serverDir(tb testing.TB, name string) string {
	tb.Helper()
	dir, err := os.MkdirTemp("", "understudy-"+name)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = os.RemoveAll(dir) })
	if os.Geteuid() == 0 {
		uid, gid := serverUser(tb)
		if err := os.Chown(dir, uid, gid); err != nil {
			tb.Fatal(err)
		}
	}
	return dir
}
