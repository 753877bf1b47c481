package checks_test

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/internal/testkit/realserver"
	"github.com/understudy-ha/understudy/shard"
	"github.com/understudy-ha/understudy/shard/checks"
)

// TestHAProxy lets a real HAProxy lead clients by the checks.
func TestHAProxy(t *testing.T) {
	program := realserver.Find(t, "haproxy", "/usr/sbin/haproxy")
	first, second := &agent{status: primary()}, &agent{status: replica()}
	writes, reads := realserver.FreePort(t), realserver.FreePort(t)
	config := fmt.Sprintf(`
defaults
  mode tcp
  timeout connect 5s
  timeout client 60s
  timeout server 60s
  timeout check 60s
  default-server inter 500ms fall 1 rise 1 on-marked-down shutdown-sessions
frontend writes
  bind 127.0.0.1:%d
  default_backend primary
frontend reads
  bind 127.0.0.1:%d
  default_backend replicas
backend primary
  option httpchk OPTIONS /primary
`, writes, reads)
	var servers strings.Builder
	for i, a := range []*agent{first, second} {
		agents := httptest.NewServer(handler(t, checks.Config{Agent: a}))
		t.Cleanup(agents.Close)
		_, port, _ := net.SplitHostPort(agents.Listener.Addr().String())
		fmt.Fprintf(&servers, "  server node%d %s check port %s\n", i+1, node(t, fmt.Sprint("node", i+1)), port)
	}
	config += servers.String() + "backend replicas\n  option httpchk GET /replica?lag=1kB\n" + servers.String()
	file := filepath.Join(t.TempDir(), "haproxy.cfg")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	realserver.Start(t, exec.Command(program, "-db", "-f", file))

	leads := func(port int, to string) (c net.Conn) {
		t.Helper()
		realserver.Eventually(t, time.Minute, "HAProxy leads to "+to, func() (err error) {
			var got string
			c, got, err = greeted(port)
			if err == nil && got != to {
				c.Close()
				return fmt.Errorf("it leads to %q", got)
			}
			return err
		})
		return c
	}
	client := leads(writes, "node1")
	defer client.Close()
	leads(reads, "node2").Close()

	first.set(with(primary(), func(s *shard.Status) { s.Holding, s.Open = false, false }))
	_ = client.SetReadDeadline(time.Now().Add(time.Minute))
	if _, err := client.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the client of the deposed primary: %v", err)
	}
	promoted := with(primary(), func(s *shard.Status) { s.NodeID = id(2); s.View.Row.Primary = id(2) })
	second.set(promoted)
	first.set(with(replica(), func(s *shard.Status) { s.NodeID = id(1); s.View.Row.Primary = id(2) }))
	leads(writes, "node2").Close()
	leads(reads, "node1").Close()
}

// greeted connects and reads the name of whoever is there.
func greeted(port int) (net.Conn, string, error) {
	c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return nil, "", err
	}
	_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
	line, err := bufio.NewReader(c).ReadString('\n')
	if err != nil {
		c.Close()
		return nil, "", err
	}
	return c, strings.TrimSpace(line), nil
}

// node says its name to each client.
func node(t *testing.T, name string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var open []net.Conn
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			fmt.Fprintln(c, name)
			mu.Lock()
			open = append(open, c)
			mu.Unlock()
		}
	}()
	t.Cleanup(func() {
		l.Close()
		<-done
		for _, c := range open {
			c.Close()
		}
	})
	return l.Addr().String()
}
