package sableplain_test

import (
	"bufio"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/internal/testkit/realserver"
	"github.com/understudy-ha/understudy/internal/testkit/sableplain"
)

// client speaks to the stand-in, and reads the first line of each answer.
type client struct {
	t    *testing.T
	conn net.Conn
	in   *bufio.Reader
}

func dial(t *testing.T, s *sableplain.Server) *client {
	conn, err := net.Dial("tcp", s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	return &client{t, conn, bufio.NewReader(conn)}
}

func (c *client) do(command string) string {
	c.t.Helper()
	args := strings.Fields(command)
	var out strings.Builder
	fmt.Fprintf(&out, "*%d\r\n", len(args))
	for _, a := range args {
		fmt.Fprintf(&out, "$%d\r\n%s\r\n", len(a), a)
	}
	if _, err := c.conn.Write([]byte(out.String())); err != nil {
		c.t.Fatal(err)
	}
	line, err := c.in.ReadString('\n')
	if err != nil {
		c.t.Fatalf("%s: %v", command, err)
	}
	return strings.TrimSpace(line)
}

func start(t *testing.T) *sableplain.Server {
	s, err := sableplain.Start(realserver.Redis(t, realserver.RedisOptions{}).Addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// What SableDB lacks is refused, each in a connection of its own, and counted.
func TestRefusesWhatSableDBLacks(t *testing.T) {
	s := start(t)
	lacks := []string{
		"EVAL x 0", "EVALSHA x 0", "SCRIPT LOAD x", "FUNCTION LIST", "TIME", "SUBSCRIBE c", "PUBLISH c m", "AUTH p", "HELLO 3", "ROLE", "WAIT 1 1",
		"SELECT 1", "CLIENT SETINFO LIB-NAME x", "LOCK a", "SET k v PX 5", "SET k v XX", "SET k v GET", "SET k v KEEPTTL", "SET k v EX 0", "SET k",
		"EXPIRE k 5 NX", "EXPIRE k -1", "PEXPIRE k 5", "PTTL k", "EXPIREAT k 5", "GETEX k", "INCRBY k 2", "RPOP k", "LPOP k", "LMOVE a b LEFT LEFT",
		"ZRANGE k 0 -1", "ZREM k m", "XADD s * a b", "XRANGE s - +", "HSETNX h f v", "SCARD s", "SPOP s", "SRANDMEMBER s", "UNLINK k", "RENAME a b",
		"BRPOP q 0", "BRPOP q", "EXEC", "DISCARD", "FLUSHALL", "SHUTDOWN", "DEBUG SLEEP 1", "OBJECT ENCODING k", "COPY a b",
	}
	for _, command := range lacks {
		if got := dial(t, s).do(command); !strings.HasPrefix(got, "-ERR") {
			t.Errorf("%s: %s, want an error", command, got)
		}
	}
	if got := s.Refused(); len(got) != len(lacks) {
		t.Errorf("%d refusals are remembered of %d", len(got), len(lacks))
	}
}

func TestTransactions(t *testing.T) {
	s := start(t)
	a, b := dial(t, s), dial(t, s)
	for _, step := range []struct {
		who           *client
		command, want string
	}{
		{a, "WATCH k", "+OK"}, {a, "WATCH l", "-ERR a second WATCH"}, {b, "SET k 1", "+OK"},
		{a, "MULTI", "+OK"}, {a, "SET k 2", "+QUEUED"}, {a, "EXEC", "*-1"},
		{a, "WATCH k", "+OK"}, {a, "MULTI", "+OK"}, {a, "GET k", "+QUEUED"}, {a, "PING", "-ERR command ping can not"}, {a, "EXEC", "-EXECABORT"},
		{a, "SET k 3 EX 100", "+OK"}, {a, "TTL k", ":100"}, {a, "EXPIRE k 50", ":1"}, {a, "TTL none", ":-2"},
		{a, "INFO server", "$"},
	} {
		if got := step.who.do(step.command); !strings.HasPrefix(got, step.want) {
			t.Errorf("%s: %s, want %s", step.command, got, step.want)
		}
	}
}

// A broken server is one whose transactions are carried out whatever came in between.
func TestIgnoreWatch(t *testing.T) {
	s := start(t)
	s.IgnoreWatch()
	a, b := dial(t, s), dial(t, s)
	a.do("WATCH k")
	b.do("SET k 1")
	a.do("MULTI")
	a.do("SET k 2")
	if got := a.do("EXEC"); got != "*1" {
		t.Errorf("EXEC: %s, want *1", got)
	}
}
