package startlistener

import (
	"bytes"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// standInConn is a connection of an address, which only remembers that it was closed.
type standInConn struct {
	net.Conn
	from   string
	closed bool
}

func (c *standInConn) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.ParseIP(c.from), Port: 1} }
func (c *standInConn) Close() error         { c.closed = true; return nil }

// standInTLS is one whose Close would wait for a client that does not read.
type standInTLS struct {
	*standInConn
	waited bool
}

func (c *standInTLS) NetConn() net.Conn { return c.standInConn }
func (c *standInTLS) Close() error      { c.waited = true; return c.standInConn.Close() }

func TestConnLimit(t *testing.T) {
	var out bytes.Buffer
	l := limitConns(nil, 8, slog.New(slog.NewTextHandler(&out, nil)))
	add := func(from string) (*standInConn, bool) {
		c := &standInConn{from: from}
		return c, l.admit(c)
	}
	first, _ := add("10.0.0.1")
	second, ok := add("10.0.0.1")
	if !ok {
		t.Fatal("two of an address are refused")
	}
	if _, ok := add("10.0.0.1"); ok {
		t.Error("a third connection of one address, a quarter of eight, is let in while two are busy")
	}
	var others []net.Conn
	for i, from := range []string{"2001:db8::1", "2001:db8::2:3", "2001:db8::ffff:1:2:3", "2001:db8:0:1::1"} {
		c, ok := add(from)
		if want := i != 2; ok != want {
			t.Errorf("%s is let in: %t; one host has a whole /64, of which two are busy", from, ok)
		}
		others = append(others, c)
	}
	for _, c := range others {
		l.note(c, http.StateClosed)
	}
	l.note(second, http.StateIdle)
	l.note(first, http.StateIdle)
	l.conns[first].idle = l.conns[second].idle.Add(time.Second)
	if _, ok := add("10.0.0.1"); !ok || !second.closed || first.closed {
		t.Errorf("let in %t, and the one that has been idle the longest is closed: %t", ok, second.closed)
	}
	for i := range 6 {
		if _, ok := add(fmt.Sprintf("10.0.1.%d", i)); !ok {
			t.Errorf("connection %d of others is refused", i)
		}
	}
	if _, ok := add("10.0.2.1"); !ok || !first.closed {
		t.Error("the port is full, and the idle connection of another address was not closed for a new one")
	}
	for range 100 {
		if _, ok := add("10.0.2.2"); ok {
			t.Fatal("a full port lets one more in")
		}
	}
	l.note(first, http.StateClosed) // it was forgotten before
	if len(l.conns) != 8 {
		t.Errorf("%d connections are counted", len(l.conns))
	}
	for c := range l.conns {
		l.note(c, http.StateClosed)
	}
	if len(l.conns) != 0 || len(l.count) != 0 {
		t.Errorf("%d connections of %d addresses are remembered", len(l.conns), len(l.count))
	}
	full := &standInTLS{standInConn: &standInConn{from: "10.0.0.1"}}
	l.admit(full)
	add("10.0.0.1")
	l.note(full, http.StateIdle)
	if _, ok := add("10.0.0.1"); !ok || !full.closed || full.waited {
		t.Errorf("let in %t; an idle TLS connection is closed %t, and with the lock held its client is waited for: %t", ok, full.closed, full.waited)
	}
	if n := strings.Count(out.String(), "\n"); n != 1 {
		t.Errorf("%d lines: %s", n, out.String())
	}
}
