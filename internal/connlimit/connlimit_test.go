package connlimit

import (
	"bytes"
	"fmt"
	"log/slog"
	"net"
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
	l := New(8, true, slog.New(slog.NewTextHandler(&out, nil)))
	add := func(from string) (*standInConn, bool) {
		c := &standInConn{from: from}
		return c, l.Admit(c, false)
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
		l.Forget(c)
	}
	l.SetIdle(second)
	l.SetIdle(first)
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
	l.Forget(first) // it was forgotten before
	if len(l.conns) != 8 {
		t.Errorf("%d connections are counted", len(l.conns))
	}
	for c := range l.conns {
		l.Forget(c)
	}
	if len(l.conns) != 0 || len(l.count) != 0 {
		t.Errorf("%d connections of %d addresses are remembered", len(l.conns), len(l.count))
	}
	full := &standInTLS{standInConn: &standInConn{from: "10.0.0.1"}}
	l.Admit(full, false)
	add("10.0.0.1")
	l.SetIdle(full)
	if _, ok := add("10.0.0.1"); !ok || !full.closed || full.waited {
		t.Errorf("let in %t; an idle TLS connection is closed %t, and with the lock held its client is waited for: %t", ok, full.closed, full.waited)
	}
	if n := strings.Count(out.String(), "\n"); n != 1 {
		t.Errorf("%d lines: %s", n, out.String())
	}
}

// Callers on this host may have all connections of some ports, but not more.
func TestLoopbackHasNoShare(t *testing.T) {
	for i, l := 0, New(8, false, slog.New(slog.DiscardHandler)); i < 3; i++ {
		if got := l.Admit(&standInConn{from: "127.0.0.1"}, false); got != (i < 2) {
			t.Errorf("of another port connection %d is let in %t", i, got)
		}
	}
	l := New(8, true, slog.New(slog.DiscardHandler))
	for i := range 8 {
		c := &standInConn{from: []string{"127.0.0.1", "::1", "::ffff:127.0.0.1"}[i%3]}
		if !l.Admit(c, true) {
			t.Errorf("connection %d, from %s, is refused", i, c.from)
		}
		l.SetBusy(c)
	}
	if l.Admit(&standInConn{from: "127.0.0.1"}, true) || len(l.conns) != 8 {
		t.Errorf("a full port lets one more in: %d", len(l.conns))
	}
}

// One that has not shown who it is makes room for one that may, and is counted.
func TestHandshakesMakeRoom(t *testing.T) {
	var out bytes.Buffer
	l := New(8, true, slog.New(slog.NewTextHandler(&out, nil)))
	add := func(from string) (*standInConn, bool) {
		c := &standInConn{from: from}
		return c, l.Admit(c, true)
	}
	first, _ := add("10.0.0.1")
	second, _ := add("10.0.0.1")
	l.conns[first].idle = l.conns[second].idle.Add(-time.Second)
	if _, ok := add("10.0.0.1"); !ok || !first.closed || second.closed {
		t.Errorf("let in %t; of two in handshake the older is closed %t, the other %t", ok, first.closed, second.closed)
	}
	for c := range l.conns {
		l.SetBusy(c)
	}
	for range 100 {
		if _, ok := add("10.0.0.1"); ok {
			t.Fatal("a third connection of one address, a quarter of eight, is let in although two are done with it")
		}
	}
	for i := range 7 {
		if _, ok := add(fmt.Sprintf("10.0.1.%d", i)); !ok {
			t.Errorf("connection %d of others is refused", i)
		}
	}
	if n := l.Refused(); n != 102 || len(l.conns) != 8 || second.closed {
		t.Errorf("%d were refused, and %d are there", n, len(l.conns))
	}
	if text := out.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "address=10.0.0.1") {
		t.Error(text)
	}
}
