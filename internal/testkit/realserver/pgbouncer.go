package realserver

import (
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

// PgBouncerServer is a PgBouncer that was started.
type PgBouncerServer struct {
	Port int
	proc *Process
}

// PgBouncer starts a PgBouncer in transaction mode in front of the server, until
// the test ends.
func PgBouncer(tb testing.TB, behind *PostgresServer) *PgBouncerServer {
	tb.Helper()
	program := Find(tb, "pgbouncer", "/usr/sbin/pgbouncer")
	dir := serverDir(tb, "pgbouncer")
	b := &PgBouncerServer{Port: FreePort(tb)}
	config := fmt.Sprintf(`[databases]
* = host=127.0.0.1 port=%d user=postgres
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %d
unix_socket_dir =
auth_type = any
pool_mode = transaction
max_client_conn = 500
default_pool_size = 5
server_login_retry = 0.2
`, behind.Port, b.Port)
	file := filepath.Join(dir, "pgbouncer.ini")
	if err := os.WriteFile(file, []byte(config), 0o644); err != nil {
		tb.Fatal(err)
	}
	cmd := exec.Command(program, file)
	cmd.Dir, cmd.SysProcAttr = dir, asServer(tb)
	b.proc = Start(tb, cmd)
	Eventually(tb, 2*time.Minute, "PgBouncer listens", func() error {
		if b.proc.Exited() {
			tb.Fatalf("PgBouncer has ended:\n%s", b.proc.Output())
		}
		conn, err := net.DialTimeout("tcp", b.addr(), time.Minute)
		if err == nil {
			conn.Close()
		}
		return err
	})
	return b
}

func (b *PgBouncerServer) addr() string {
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(b.Port))
}

// URL is the way through PgBouncer to a database of the server behind it.
func (b *PgBouncerServer) URL(database string) string {
	u, err := url.Parse(database)
	if err != nil {
		return database
	}
	u.Host = b.addr()
	return u.String()
}
